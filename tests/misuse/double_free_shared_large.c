// expect: hakmem: free\(\): double free of 0x[0-9a-f]+ \(114688-byte block\)
// Another thread frees a block of 100 KiB twice; a second one keeps their common span alive.
#include <pthread.h>
#include <stdlib.h>

static void *p;

static void *free_twice(void *argument)
{
    free(p);
    free(p);
    return argument;
}

int main(void)
{
    pthread_t thread;
    void *alone[3];   /* the first three have spans of their own */
    for (int i = 0; i < 3; i++)
        alone[i] = malloc(100 << 10);
    void *other = malloc(100 << 10);
    p = malloc(100 << 10);
    pthread_create(&thread, NULL, free_twice, NULL);
    pthread_join(thread, NULL);
    free(other);
    for (int i = 0; i < 3; i++)
        free(alone[i]);
    return 0;
}
