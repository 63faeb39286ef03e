/* Under HAKMEM_MISUSE=report: a second free of a block that another thread has freed in between, when that thread has freed blocks of
 * others before. Two threads by turns: kept SIZE. Prints "fine" if the mistake is counted and no address has two owners. */
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hakmem.h"
#include "hakmem_stats.h"

enum { BLOCKS = 40 };
static sem_t turn[2];
static size_t size;
static void *first, *second, *shared;
static unsigned char *mine[2][BLOCKS];

static void pass(int from)
{
    sem_post(&turn[!from]);
    sem_wait(&turn[from]);
}

static void fill(int who)
{
    for (int i = 0; i < BLOCKS; i++)
        memset(mine[who][i] = malloc(size), who * BLOCKS + i + 1, size);
}

static int is_whole(int who)
{
    for (int i = 0; i < BLOCKS; i++)
        for (size_t at = 0; at < size; at++)
            if (mine[who][i][at] != who * BLOCKS + i + 1)
                return 0;
    return 1;
}

static void *other(void *argument)
{
    sem_wait(&turn[1]);
    first = malloc(size);
    second = malloc(size);
    pass(1);
    free(second);
    pass(1);
    void *more[] = { malloc(size), malloc(size), malloc(size) };
    free(shared);
    free(more[1]);
    free(more[2]);
    pass(1);
    fill(1);
    sem_post(&turn[0]);
    return argument;
}

int main(int count, char **words)
{
    static struct hak_stats stats;
    pthread_t thread;
    size = count > 1 ? strtoul(words[1], NULL, 10) : 40000;
    pthread_create(&thread, NULL, other, NULL);
    pass(0);
    free(first);
    pass(0);
    shared = malloc(size);
    pass(0);
    free(shared); /* the other thread has freed it */
    fill(0);
    sem_post(&turn[1]);
    pthread_join(thread, NULL);
    hak_stats_snapshot(&stats, sizeof stats);
    int counted = stats.misuse_double_frees + stats.misuse_invalid == 1;
    if (!counted || !is_whole(0) || !is_whole(1) || !hak_check_heap())
        return printf("%zu bytes: counted %d, whole %d %d\n", size, counted, is_whole(0), is_whole(1)), 1;
    puts("fine");
    return 0;
}
