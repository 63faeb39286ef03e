// expect: hakmem: free\(\): invalid pointer 0x[0-9a-f]+: not the start of a block
// A pointer into another thread's block.
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>

static char *p;

static void *free_inside(void *argument)
{
    free(p + 16);
    malloc_trim(0);
    return argument;
}

int main(void)
{
    pthread_t thread;
    p = malloc(96);
    pthread_create(&thread, NULL, free_inside, NULL);
    pthread_join(thread, NULL);
    return 0;
}
