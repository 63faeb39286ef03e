// expect: hakmem: free\(\): double free of 0x[0-9a-f]+ \(96-byte block\)
// Two frees by another thread than the one that allocated.
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>

static void *p, *keep;

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
    p = malloc(96);
    keep = malloc(96);
    pthread_create(&thread, NULL, free_twice, NULL);
    pthread_join(thread, NULL);
    return 0;
}
