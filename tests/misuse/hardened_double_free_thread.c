// expect: hakmem: free\(\): double free of 0x[0-9a-f]+ \(112-byte block\)\nhakmem:   called by thread [0-9]+:\nhakmem:     #0 0x[0-9a-f]+ \S+/hardened_double_free_thread\+0x[0-9a-f]+\n(?:hakmem:     #[^\n]*\n)*hakmem:   allocated:\nhakmem:     #0 0x[0-9a-f]+ \S+/hardened_double_free_thread\+0x[0-9a-f]+\n(?:hakmem:     #[^\n]*\n)*hakmem:   freed:\nhakmem:     #0 0x[0-9a-f]+ \S+/hardened_double_free_thread\+0x[0-9a-f]+\n(?:hakmem:     #[^\n]*\n?)*
// env: HAKMEM_HARDEN=1
// The second free by another thread.
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
    void *volatile p = malloc(98);
    free(p);
    pthread_create(&thread, NULL, drop, p);
    pthread_join(thread, NULL);
    return 0;
}
