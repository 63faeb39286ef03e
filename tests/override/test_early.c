/* Before main and after it: allocation in the program's preinit array, in constructors, in threads that constructors
 * start; and in atexit functions and destructors. A block from each time is usable and freed at every later one. */
#include "expect.h"

#include <pthread.h>
#include <semaphore.h>

enum { SIZES = 6 };

static const size_t sizes[SIZES] = { 1, 48, 1000, 5000, 100000, 3000000 };

struct set {
    char *blocks[SIZES];
};

static struct set from_preinit, from_constructor, from_thread, from_main;

static void fill(struct set *set)
{
    for (int i = 0; i < SIZES; i++) {
        set->blocks[i] = malloc(sizes[i]);
        expect(set->blocks[i] != NULL);
        set->blocks[i][0] = set->blocks[i][sizes[i] - 1] = (char)(i + 1);
    }
}

static void check(struct set *set)
{
    for (int i = 0; i < SIZES; i++)
        expect(set->blocks[i][0] == i + 1 && set->blocks[i][sizes[i] - 1] == i + 1);
}

static void release(struct set *set)
{
    check(set);
    for (int i = 0; i < SIZES; i++)
        free(set->blocks[i]);
    fill(set);
}

/* --- before main ------------------------------------------------------------------------------------------------------ */

/* A thread that is there before any constructor, and goes on until the end. */
static struct set from_early_thread;
static sem_t early_asked, early_done;

static void *lives_on(void *argument)
{
    fill(&from_early_thread);
    for (;;) {
        sem_post(&early_done);
        while (sem_wait(&early_asked) != 0)
            ;
        for (int round = 0; round < 3; round++)
            release(&from_early_thread);
    }
    return argument;
}

static void start_early_thread(void)
{
    pthread_t thread;
    expect(sem_init(&early_asked, 0, 0) == 0 && sem_init(&early_done, 0, 0) == 0);
    expect(pthread_create(&thread, NULL, lives_on, NULL) == 0);
    while (sem_wait(&early_done) != 0)
        ;
}

static void use_early_thread(void)
{
    check(&from_early_thread);
    sem_post(&early_asked);
    while (sem_wait(&early_done) != 0)
        ;
    check(&from_early_thread);
}

static void preinit(void)
{
    fill(&from_preinit);
    start_early_thread();
}
#if defined(__GLIBC__)
__attribute__((section(".preinit_array"), used)) static void (*const preinit_entry)(void) = preinit;
#else   /* musl runs no such functions; this one comes before a linked-in library's constructor */
__attribute__((constructor(90))) static void preinit_entry(void) { preinit(); }
#endif

static void *run(void *argument)
{
    check(&from_constructor);
    fill(&from_thread);
    return argument;
}

__attribute__((constructor(102))) static void construct_first(void)
{
    check(&from_preinit);
    fill(&from_constructor);
}

__attribute__((constructor)) static void construct(void)
{
    pthread_t threads[4];
    release(&from_preinit);
    for (int i = 0; i < 4; i++) {
        expect(pthread_create(&threads[i], NULL, run, NULL) == 0);
        expect(pthread_join(threads[i], NULL) == 0);
        check(&from_thread);
    }
}

/* --- after main ------------------------------------------------------------------------------------------------------- */

static void use_all(void)
{
    use_early_thread();
    release(&from_preinit);
    release(&from_constructor);
    release(&from_thread);
    release(&from_main);
}

__attribute__((destructor)) static void destruct(void) { use_all(); }
__attribute__((destructor(102))) static void destruct_last(void) { use_all(); }

int main(void)
{
    fill(&from_main);
    use_all();
    expect(atexit(use_all) == 0);
    return 0;
}
