// expect: hakmem: free\(\): invalid pointer 0x[0-9a-f]+: not the start of a block
// A slab's start inside another thread's block of 100 KiB, which shares its span with others.
#include <pthread.h>
#include <stdlib.h>

static char *p;

static void *free_inside(void *argument)
{
    free(p + (64 << 10));
    return argument;
}

int main(void)
{
    pthread_t thread;
    void *alone[3];   /* the first three have spans of their own */
    for (int i = 0; i < 3; i++)
        alone[i] = malloc(100 << 10);
    p = malloc(100 << 10);
    pthread_create(&thread, NULL, free_inside, NULL);
    pthread_join(thread, NULL);
    for (int i = 0; i < 3; i++)
        free(alone[i]);
    return 0;
}
