/* The process ends while its other threads go on allocating and freeing each other's blocks: by return from main, by
 * exit() in another thread, and by _exit(). It ends at once and with the code it was given. */
#include "expect.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

enum { THREADS = 4, SLOTS = 256, PROCESSES = 12 };

static _Atomic(void *) slots[SLOTS];

static void *churn(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    for (;;) {
        seed = seed * 1103515245u + 12345u;
        size_t n = (size_t)1 << seed / 65536 % 21;
        char *p = malloc(n);
        expect(p != NULL);
        p[0] = p[n - 1] = 1;
        free(atomic_exchange(&slots[seed / 256 % SLOTS], p));
    }
    return NULL;
}

static void at_exit(void)
{
    for (unsigned i = 0; i < 1000; i++)
        free(malloc(i * 100));
}

static void *exit_from_thread(void *argument)
{
    exit(*(int *)argument);
}

static void end_somehow(int code)
{
    pthread_t thread;
    if (code % 3 == 0)
        exit(code);
    if (code % 3 == 1)
        _exit(code);
    pthread_create(&thread, NULL, exit_from_thread, &code);
    for (;;)
        free(malloc(100));
}

static void busy_process(int code)
{
    pthread_t thread;
    atexit(at_exit);
    for (uintptr_t i = 0; i < THREADS; i++)
        expect(pthread_create(&thread, NULL, churn, (void *)(i + 1)) == 0);
    usleep(20000);
    end_somehow(code);
}

int main(void)
{
    for (int code = 1; code <= PROCESSES; code++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            busy_process(code);
        }
        expect(waitpid(child, &status, 0) == child);
        expect(WIFEXITED(status) && WEXITSTATUS(status) == code);
    }
    return 0;
}
