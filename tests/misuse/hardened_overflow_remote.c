// expect: (?s)hakmem: free\(\): overflow of 0x[0-9a-f]+ \(112-byte block\): something was written past its end\nhakmem:   called by thread [0-9]+:\nhakmem:     #0 0x[0-9a-f]+ \S+/hardened_overflow_remote\+0x[0-9a-f]+\n.*\nhakmem:   allocated:\nhakmem:     #0 0x[0-9a-f]+ \S+/hardened_overflow_remote\+0x[0-9a-f]+\n(?!.*freed).*
// env: HAKMEM_HARDEN=1
// An overflow that is found by the free of another thread.
#include <pthread.h>
#include <stdlib.h>

static void *drop(void *p)
{
    free(p);
    return NULL;
}

int main(void)
{
    pthread_t thread;
    char *volatile p = malloc(104);
    p[104] = 'x';
    return pthread_create(&thread, NULL, drop, p) || pthread_join(thread, NULL);
}
