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
    void *alone = malloc(100 << 10);   /* has a span of its own */
    p = malloc(100 << 10);
    pthread_create(&thread, NULL, free_inside, NULL);
    pthread_join(thread, NULL);
    free(alone);
    return 0;
}
