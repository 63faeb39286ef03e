/* Warm calls of a heap of one's own, for valgrind to count: `heap_path KIND THREADS COUNT SIZE`, KIND is "malloc" (malloc and
 * free), "heap" (hak_heap_malloc and free), "turnsN" (the same with N heaps by turns), "default" (malloc and free with a default
 * heap), "requests" (a heap that is made, gets 1,000 blocks of 16 to 1040 bytes, and ends; COUNT times), "blocks" (the same blocks
 * by malloc, freed one by one), "life" (a heap that is made, gets one block, and ends; COUNT times) or "held" (COUNT such heaps at once;
 * prints the resident bytes of each). With HEAP_PATH_FLAGS in the environment the heaps of the last two have these flags. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hakmem.h"
#include "support/memory.h"

enum { WARM = 1000, BLOCKS = 1000, THREADS_MAX = 16, HEAPS_MAX = 4096 };

static const char *kind;
static hak_heap_t *heap;
static unsigned long count;
static size_t size;

static void pairs(unsigned long rounds)
{
    for (unsigned long i = 0; i < rounds; i++)
        free(heap != NULL ? hak_heap_malloc(heap, size) : malloc(size));
}

/* Each heap is warm once it has had its turns. */
static void turns(unsigned long rounds, unsigned long heaps)
{
    static hak_heap_t *all[HEAPS_MAX];
    for (unsigned long h = 0; h < heaps; h++)
        all[h] = hak_heap_new(NULL);
    for (unsigned long i = 0; i < rounds + 4 * heaps; i++)
        free(hak_heap_malloc(all[i % heaps], size));
}

static void requests(unsigned long rounds)
{
    static __thread void *blocks[BLOCKS];
    for (unsigned long i = 0; i < rounds; i++) {
        hak_heap_t *mine = strcmp(kind, "requests") == 0 ? hak_heap_new(NULL) : NULL;
        for (unsigned b = 0; b < BLOCKS; b++) {
            size_t n = 16 + b * 7919 % 1025;
            blocks[b] = mine != NULL ? hak_heap_malloc(mine, n) : malloc(n);
        }
        for (unsigned b = 0; b < BLOCKS && mine == NULL; b++)
            free(blocks[b]);
        hak_heap_destroy(mine);
    }
}

/* The first ones are warm-up. The block of malloc's keeps the memory that heaps leave from going back. */
static void lives(unsigned long rounds, int held)
{
    struct hak_heap_options options = { .size = sizeof options };
    const char *flags = getenv("HEAP_PATH_FLAGS");
    void *volatile kept = malloc(size);
    size_t before = 0;
    options.flags = flags == NULL ? 0 : (uint32_t)strtoul(flags, NULL, 0);
    for (unsigned long i = 0; i < WARM + rounds; i++) {
        before = i == WARM ? resident_bytes() : before;
        hak_heap_t *one = hak_heap_new(&options);
        char *block = hak_heap_malloc(one, size);
        if (block == NULL)
            exit(2);
        *block = 1;
        if (!held)
            hak_heap_destroy(one);
    }
    if (held)
        printf("bytes=%zu\n", (resident_bytes() - before) / rounds);
    free(kept);
}

static void *run(void *argument)
{
    if (strcmp(kind, "requests") == 0 || strcmp(kind, "blocks") == 0)
        requests(count);
    else if (strcmp(kind, "life") == 0 || strcmp(kind, "held") == 0)
        lives(count, kind[0] == 'h');
    else if (strncmp(kind, "turns", 5) == 0)
        turns(count, strtoul(kind + 5, NULL, 10) % HEAPS_MAX);
    else
        pairs(WARM + count);
    return argument;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS_MAX];
    if (argc != 5)
        return fprintf(stderr, "usage: heap_path KIND THREADS COUNT SIZE\n"), 2;
    kind = argv[1];
    count = strtoul(argv[3], NULL, 10);
    size = strtoul(argv[4], NULL, 10);
    if (strcmp(kind, "heap") == 0)
        heap = hak_heap_new(NULL);
    if (strcmp(kind, "default") == 0)
        hak_heap_set_default(hak_heap_new(NULL));
    unsigned long others = strtoul(argv[2], NULL, 10);
    for (unsigned long i = 1; i < others && i < THREADS_MAX; i++)
        pthread_create(&threads[i], NULL, run, NULL);
    run(NULL);
    for (unsigned long i = 1; i < others && i < THREADS_MAX; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
