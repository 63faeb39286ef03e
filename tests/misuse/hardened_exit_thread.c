// expect: hakmem: at exit: 0x[0-9a-f]+ \(112-byte block, 98 asked for\) was written after free\nhakmem:   allocated:\nhakmem:     #0 0x[0-9a-f]+ \S+/hardened_exit_thread\+0x[0-9a-f]+\n(?:hakmem:     #[^\n]*\n)*hakmem:   freed:\nhakmem:     #0 0x[0-9a-f]+ \S+/hardened_exit_thread\+0x[0-9a-f]+\n(?:hakmem:     #[^\n]*\n?)*hakmem: at exit: overflow of 0x[0-9a-f]+ \(1024-byte block, 1000 asked for\): something was written past its end\nhakmem:   allocated:\nhakmem:     #0 0x[0-9a-f]+ \S+/hardened_exit_thread\+0x[0-9a-f]+\n(?:hakmem:     #[^\n]*\n?)*
// env: HAKMEM_HARDEN=1
// Both by a thread that still runs, in the middle of other work, when the program ends.
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>

static sem_t done;

static void *work(void *argument)
{
    char *volatile p = malloc(98), *volatile q = malloc(1000);
    free(p);
    p[50] = 'x';
    q[1000] = 'x';
    sem_post(&done);
    for (;;)
        free(malloc(5000));
    return argument;
}

int main(void)
{
    pthread_t thread;
    sem_init(&done, 0, 0);
    pthread_create(&thread, NULL, work, NULL);
    sem_wait(&done);
    return 0;
}
