/* The program behind the example in statistics.md: a little of each kind of work. */
#include <pthread.h>
#include <stdlib.h>

enum { BLOCKS = 1000, PAIRS = 100000 };
static void *blocks[BLOCKS];

static void *free_all(void *unused)
{
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    return unused;
}

int main(void)
{
    pthread_t thread;
    for (int i = 0; i < BLOCKS; i++)   /* a thousand blocks of 100 bytes, freed by another thread */
        blocks[i] = malloc(100);
    if (pthread_create(&thread, NULL, free_all, NULL) != 0 || pthread_join(thread, NULL) != 0)
        return 1;
    for (int i = 0; i < PAIRS; i++)    /* one block at a time, freed at once */
        free(malloc(40));
    void *big = malloc(2 << 20);       /* a huge block that grows */
    void *bigger = realloc(big, 40 << 20);
    free(bigger != NULL ? bigger : big);
    return 0;
}
