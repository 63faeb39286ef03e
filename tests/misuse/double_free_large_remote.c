// expect: hakmem: free\(\): (double free of 0x[0-9a-f]+ \(327680-byte block\)|invalid pointer 0x[0-9a-f]+: no block is here, or it was freed before)
// A block of the large pool, freed twice by another thread.
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>

static void *p;

static void *free_twice(void *argument)
{
    free(p);
    free(p);
    malloc_trim(0);
    return argument;
}

int main(void)
{
    pthread_t thread;
    p = malloc(300000);
    pthread_create(&thread, NULL, free_twice, NULL);
    pthread_join(thread, NULL);
    return 0;
}
