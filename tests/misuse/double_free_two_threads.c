// expect: hakmem: free\(\): double free of 0x[0-9a-f]+ \(96-byte block\)
// One free by the owner, one by another thread.
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>

static void *p, *keep;

static void *free_it(void *argument)
{
    free(p);
    malloc_trim(0);
    return argument;
}

int main(void)
{
    pthread_t thread;
    p = malloc(96);
    keep = malloc(96);
    free(p);
    malloc_trim(0);
    pthread_create(&thread, NULL, free_it, NULL);
    pthread_join(thread, NULL);
    malloc_trim(0);
    return 0;
}
