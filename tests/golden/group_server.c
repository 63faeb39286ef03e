/* A server for test_limits_live.py: group_server SECONDS. Four threads serve requests: each request takes blocks of many sizes, touches
 * them, and frees most; some 130 MiB stay in use. Load comes in waves, so that what one size needs another has freed, and what a
 * thread has freed is not what it asks for next: an allocator that keeps what was freed holds far more than is in use. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4, WAVES = 6, MIB = 1 << 20, EACH_MIB = 33 };
static const size_t sizes[WAVES] = { 700, 9000, 40000, 200000, 3000, 900000 };
static double seconds;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void *serve(void *argument)
{
    static _Thread_local struct {
        char *block;
        size_t size;
    } kept[65536];
    unsigned seed = 17 + (unsigned)(size_t)argument;
    double end = now() + seconds;
    size_t held = 0, first = 0, next = 0;
    for (unsigned wave = (unsigned)(size_t)argument; now() < end; wave++) {
        size_t size = sizes[wave % WAVES], taken = 0;
        while (taken < (size_t)EACH_MIB * MIB) {
            size_t n = size / 2 + (size_t)rand_r(&seed) % size;
            while (held + n > (size_t)EACH_MIB * MIB || next - first == 65536) {
                held -= kept[first % 65536].size;
                free(kept[first++ % 65536].block);
            }
            char *block = malloc(n);
            if (block == NULL)
                abort();
            memset(block, 1, n);
            kept[next % 65536].block = block;
            kept[next++ % 65536].size = n;
            held += n;
            taken += n;
        }
        usleep(20000);
    }
    return NULL;
}

int main(int count, char **words)
{
    pthread_t threads[THREADS];
    seconds = count > 1 ? atof(words[1]) : 5;
    for (size_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, serve, (void *)i);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    puts("served");
}
