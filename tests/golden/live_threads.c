/* Many threads at once, each of which has allocated as threads do and keeps a little of it. Prints how many bytes are
 * resident while all of them live. Run by test_live_threads.py, with the library and without.
 *   live_threads COUNT SIZES       SIZES sizes, from 48 bytes up in steps of 48 */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STACK = 64 << 10, ROUNDS = 300, HELD = 10, STEP = 48 };

static pthread_barrier_t all;
static unsigned sizes;

static void *live(void *argument)
{
    char *held[HELD] = { NULL };
    for (unsigned i = 0; i < ROUNDS; i++) {
        size_t n = (i * 7u % sizes + 1) * STEP;
        free(held[i % HELD]);
        held[i % HELD] = memset(malloc(n), 1, n);
        char *text = strdup("a word");
        free(text);
    }
    pthread_barrier_wait(&all);   /* all have allocated */
    pthread_barrier_wait(&all);   /* it has been looked at */
    for (int i = 0; i < HELD; i++)
        free(held[i]);
    return argument;
}

/* Exact, and without allocating. */
static unsigned long resident_kib(void)
{
    static char text[4096];
    int file = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (length <= 0)
        exit(3);
    text[length] = 0;
    const char *line = strstr(text, "\nRss:");
    return line == NULL ? 0 : strtoul(line + 5, NULL, 10);
}

int main(int argc, char **argv)
{
    unsigned count = argc == 3 ? (unsigned)atoi(argv[1]) : 0;
    sizes = argc == 3 ? (unsigned)atoi(argv[2]) : 0;
    if (count == 0 || sizes == 0)
        return 2;
    pthread_t *threads = calloc(count, sizeof *threads);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    pthread_barrier_init(&all, NULL, count + 1);
    for (unsigned i = 0; i < count; i++) {
        if (pthread_create(&threads[i], &attributes, live, NULL) != 0) {
            printf("%u threads cannot be had here\n", count);
            fflush(stdout);
            _exit(77);
        }
    }
    pthread_barrier_wait(&all);
    printf("%lu\n", resident_kib() << 10);
    pthread_barrier_wait(&all);
    for (unsigned i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    free(threads);
    return 0;
}
