/* What test_profile.py runs: one thing that a profiled process may meet. Arguments: what, then what it needs. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hakmem.h"

enum { BLOCKS = 20000, THREADS = 500 };

static void *kept[BLOCKS];
static volatile sig_atomic_t signals;

static void check(int right, const char *what)
{
    if (right)
        return;
    fprintf(stderr, "not so: %s\n", what);
    exit(1);
}

static void fill(void)
{
    for (int i = 0; i < BLOCKS; i++) {
        free(kept[i]);
        kept[i] = malloc((size_t)(i % 700) + 1);
        check(kept[i] != NULL, "a block");
        memset(kept[i], i, (size_t)(i % 700) + 1);
    }
}

static void holds(void)
{
    for (int i = 0; i < BLOCKS; i++)
        for (int j = 0; j < i % 700 + 1; j += 97)
            check(((unsigned char *)kept[i])[j] == (unsigned char)i, "the contents of a block");
}

static void *work(void *argument)
{
    void *mine[40];
    for (int i = 0; i < 400; i++) {
        int place = i % 40;
        if (i >= 40)
            free(mine[place]);
        mine[place] = malloc((size_t)(i * 37 % 3000));
    }
    for (int i = 0; i < 40; i++)
        free(mine[i]);
    return argument;
}

static void threads(const char *path)
{
    static pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++)
        check(pthread_create(&thread[i], NULL, work, NULL) == 0, "a thread");
    check(hak_profile_dump(path) == 0, "a dump beside threads");
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
}

static void *dump_often(void *path)
{
    for (int i = 0; i < 200; i++)
        check(hak_profile_dump(path) == 0, "a dump beside those of children");
    return NULL;
}

/* Children of a process of which another thread is writing a dump: they go on, and can write their own. */
static void forks(char *path, const char *of_child)
{
    pthread_t writer;
    check(pthread_create(&writer, NULL, dump_often, path) == 0, "a thread");
    for (int i = 0; i < 40; i++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            fill();
            _exit(hak_profile_dump(of_child) != 0);
        }
        check(waitpid(child, &status, 0) == child && status == 0, "a child that writes a dump");
    }
    pthread_join(writer, NULL);
}

static void handler(int number)
{
    (void)number;
    hak_profile_dump("signal.json");
    signals++;
}

/* Dumps are written in a handler, which interrupts samples as well. */
static void in_signals(void)
{
    struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };
    sigaction(SIGALRM, &action, NULL);
    for (int i = 0; i < 40; i++) {
        ualarm(200, 0);
        fill();
    }
    check(signals > 5, "signals came");
}

static void module(const char *file)
{
    void *handle = dlopen(file, RTLD_NOW);
    check(handle != NULL, "the module");
    void *(*make)(size_t) = (void *(*)(size_t))dlsym(handle, "module_make");
    for (int i = 0; i < BLOCKS; i++)
        kept[i] = make(500);
    dlclose(handle);
    check(hak_profile_dump("module.json") == 0, "a dump after dlclose");
    for (int i = 0; i < BLOCKS; i++)
        free(kept[i]), kept[i] = NULL;
}

static void *make_in(const char *file, size_t n, int close)
{
    void *handle = dlopen(file, RTLD_NOW);
    check(handle != NULL, "the module");
    void *(*make)(size_t) = (void *(*)(size_t))dlsym(handle, "module_make");
    for (int i = 0; i < 10; i++)
        kept[i] = make(n);
    if (close)
        dlclose(handle);
    return (void *)make;
}

/* A library is closed, and another one comes to its place. */
static void replace(const char *first, const char *second)
{
    void *before = make_in(first, 40000, 1), *after = make_in(second, 50000, 0);
    printf("%d\n", before == after);
    check(hak_profile_dump("replaced.json") == 0, "a dump after both");
}

__attribute__((noinline)) static void lose(void)
{
    for (int i = 0; i < 100; i++) {
        void *volatile lost = malloc(1234);
        lost = NULL;
        (void)lost;
    }
}

static void switching(void)
{
    check(hak_profile_dump("never.json") != 0, "no dump before a start");
    for (int i = 0; i < 8; i++) {
        check(hak_profile_start(1000u << i % 8) == 0, "a start");
        fill();
        holds();
        hak_profile_stop();
        fill();
        holds();
    }
    check(hak_profile_dump("switched.json") == 0, "a dump after the stop");
}

int main(int count, char **argument)
{
    const char *what = count > 1 ? argument[1] : "";
    char *path = count > 2 ? argument[2] : NULL;
    if (strcmp(what, "switch") == 0)
        switching();
    else if (strcmp(what, "module") == 0)
        module(path);
    else if (strcmp(what, "replace") == 0) {
        replace(path, argument[3]);
        return 0;
    } else if (strcmp(what, "lose") == 0)
        lose();
    else if (strcmp(what, "threads") == 0)
        threads(path);
    else if (strcmp(what, "forks") == 0)
        forks(path, argument[3]);
    else if (strcmp(what, "signals") == 0)
        in_signals();
    else if (strcmp(what, "dump") == 0) {
        fill();
        printf("%d\n", hak_profile_dump(path));
    } else if (strcmp(what, "dumping") == 0) {   /* until somebody kills it */
        fill();
        while (hak_profile_dump(path) == 0)
            continue;
        return 1;
    } else if (strcmp(what, "steadily") == 0) {   /* until somebody kills it: 1,000 blocks of 3000 bytes each 10 ms */
        for (;; usleep(10000))
            for (int i = 0; i < 1000; i++)
                free(*(void *volatile *)&kept[0] = malloc(3000));
    } else if (strcmp(what, "grow") == 0) {
        for (int i = 0; i < 256; i++)
            memset(kept[i] = malloc(1 << 20), i, 1);
    } else if (strcmp(what, "raise") == 0) {
        fill();
        raise(atoi(path));
        fill();
        raise(atoi(path));
    } else if (strcmp(what, "misuse") == 0) {
        char *p = malloc(100);
        if (strcmp(path, "inside") == 0)
            free(p + 16);
        free(p);
        free(p);
    } else if (strcmp(what, "sleep") == 0) {
        for (int i = 0; i < 60; i++) {
            fill();
            usleep(10000);
        }
    }
    if (strcmp(what, "module") != 0 && strcmp(what, "misuse") != 0 && strcmp(what, "grow") != 0) {
        fill();
        holds();
    }
    return 0;
}

/* The module, when compiled as one. */
__attribute__((noinline, visibility("default"))) void *module_make(size_t n);
void *module_make(size_t n)
{
    char *p = malloc(n);
    p[0] = 1;
    return p;
}
