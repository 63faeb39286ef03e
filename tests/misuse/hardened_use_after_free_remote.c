// expect: hakmem: crash: SIGSEGV at 0x[0-9a-f]+: inside a free block of 229376 bytes, offset 100 \(block 0x[0-9a-f]+, heap 1, this thread's\)\nhakmem:   accessed by thread [0-9]+:\nhakmem:     #0 0x[0-9a-f]+ \S+/hardened_use_after_free_remote\+0x[0-9a-f]+\n(?:hakmem:     #[^\n]*\n)*hakmem:   allocated:\nhakmem:     #0 0x[0-9a-f]+ \S+/hardened_use_after_free_remote\+0x[0-9a-f]+\n(?:hakmem:     #[^\n]*\n)*hakmem:   freed:\nhakmem:     #0 0x[0-9a-f]+ \S+/hardened_use_after_free_remote\+0x[0-9a-f]+\n(?:hakmem:     #[^\n]*\n?)*
// env: HAKMEM_HARDEN=1
// env: HAKMEM_CRASH_REPORT=1
// signal: SIGSEGV
// The block was freed by another thread, in whose quarantine it is.
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <unistd.h>

static sem_t done;

static void *drop(void *p)
{
    free(p);
    sem_post(&done);
    pause();
    return p;
}

int main(void)
{
    pthread_t thread;
    volatile char *volatile p = malloc(200 << 10);
    sem_init(&done, 0, 0);
    pthread_create(&thread, NULL, drop, (void *)p);
    sem_wait(&done);
    return p[100];
}
