/* Records the functions that one call runs, for tools/path.py: linked with the library's sources, each compiled alone with
 * -finstrument-functions. Prints the smallest trace that it saw, one function's address per line, a - where one returns.
 *
 *   path_probe malloc     hak_malloc(100), among the calls that mapped a SuperSlab
 *   path_probe free       hak_free of another thread's block, among the calls that ran PUBLISHES */
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "hakmem.h"

#define UNWATCHED __attribute__((no_instrument_function))

enum { LONGEST = 1 << 16, BLOCKS = 200000 };

void PUBLISHES(void);

static __thread bool recording;
static void *trace[LONGEST], *smallest[LONGEST];   /* NULL: a return */
static size_t length, smallest_length = LONGEST;
static void *blocks[BLOCKS];
static pthread_barrier_t allocated, freed;

UNWATCHED static void record(void *function)
{
    if (recording && length < LONGEST)
        trace[length++] = function;
}

UNWATCHED void __cyg_profile_func_enter(void *function, void *caller);
UNWATCHED void __cyg_profile_func_exit(void *function, void *caller);

void __cyg_profile_func_enter(void *function, void *caller)
{
    (void)caller;
    record(function);
}

void __cyg_profile_func_exit(void *function, void *caller)
{
    (void)function;
    (void)caller;
    record(NULL);
}

UNWATCHED static void begin_trace(void)
{
    length = 0;
    recording = true;
}

UNWATCHED static void keep_if_smallest(void)
{
    if (length >= smallest_length)
        return;
    memcpy(smallest, trace, length * sizeof trace[0]);
    smallest_length = length;
}

/* The process's address space, asked for without a call that allocates. */
UNWATCHED static size_t mapped_bytes(int statm)
{
    char text[64] = "";
    if (pread(statm, text, sizeof text - 1, 0) <= 0)
        abort();
    return strtoul(text, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE);
}

UNWATCHED static void record_mallocs(void)
{
    int statm = open("/proc/self/statm", O_RDONLY);
    for (int i = 0; i < BLOCKS; i++) {
        size_t before = mapped_bytes(statm);
        begin_trace();
        blocks[i] = hak_malloc(100);
        recording = false;
        if (mapped_bytes(statm) >= before + HAK_SUPER_SIZE)
            keep_if_smallest();
    }
}

/* The owner stays while its blocks are freed: another thread would take up the heap of one that has ended. */
UNWATCHED static void *own_blocks(void *unused)
{
    (void)unused;
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = hak_malloc(100);
    pthread_barrier_wait(&allocated);
    pthread_barrier_wait(&freed);
    return NULL;
}

UNWATCHED static bool has_published(void)
{
    for (size_t i = 0; i < length; i++)
        if (trace[i] == (void *)PUBLISHES)
            return true;
    return false;
}

UNWATCHED static void record_frees(void)
{
    pthread_t owner;
    pthread_barrier_init(&allocated, NULL, 2);
    pthread_barrier_init(&freed, NULL, 2);
    hak_free(hak_malloc(1));   /* attaches this thread */
    if (pthread_create(&owner, NULL, own_blocks, NULL) != 0)
        abort();
    pthread_barrier_wait(&allocated);
    for (int i = 0; i < BLOCKS; i++) {
        begin_trace();
        hak_free(blocks[i]);
        recording = false;
        if (has_published())
            keep_if_smallest();
    }
    pthread_barrier_wait(&freed);
    pthread_join(owner, NULL);
}

UNWATCHED int main(int count, char **arguments)
{
    if (count == 2 && strcmp(arguments[1], "malloc") == 0)
        record_mallocs();
    else if (count == 2 && strcmp(arguments[1], "free") == 0)
        record_frees();
    else
        return 2;
    for (size_t i = 0; smallest_length < LONGEST && i < smallest_length; i++)
        if (smallest[i] == NULL)
            puts("-");
        else
            printf("%p\n", smallest[i]);
    return smallest_length == LONGEST;
}
