/*
 * lines_known CASE THREADS ROUNDS
 *
 * Programs whose transfers follow from their text, for the test of bench/lines.  Run with --turn=0: a thread goes
 * on until it yields, and turns go round, so that no two rounds of one thread follow each other.
 */
#include <pthread.h>
#include <sched.h>
#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64, RING = 8 };

/* Each fills a line of its own. */
alignas(64) volatile uint64_t known_shared[8];
alignas(64) volatile uint32_t known_pair[16];
alignas(64) volatile uint64_t known_handed[8];
alignas(64) volatile uint64_t known_padded[MOST][8];
alignas(64) volatile uint64_t known_head[8];
alignas(64) volatile uint64_t known_tail[8];
alignas(64) volatile uint64_t known_slot[RING];
alignas(64) volatile uint64_t known_sum[8];

#if defined(__x86_64__)
static void known_prefetch(volatile uint64_t *word)
{
    __asm__ volatile("prefetchw %0" : : "m"(*word));
}
#else
static void known_prefetch(volatile uint64_t *word)
{
    __builtin_prefetch((const void *)word, 1);
}
#endif

static unsigned threads;
static uint64_t rounds;
static pthread_barrier_t line;

__attribute__((noinline)) void lines_begin(void)
{
    __asm__ volatile("" : : : "memory");
}

/* One word to which all threads add. */
static void shared(unsigned me)
{
    (void)me;
    __atomic_fetch_add(&known_shared[0], 1, __ATOMIC_RELAXED);
}

/* The word is read, then written by another instruction. */
static void look(unsigned me)
{
    (void)me;
    uint64_t value = known_shared[0];
    known_shared[0] = value + 1;
}

/* The same, after the line was asked for as its writer. */
static void claim(unsigned me)
{
    known_prefetch(known_shared);
    look(me);
}

/* A counter per thread, each on its own line. */
static void padded(unsigned me)
{
    __atomic_fetch_add(&known_padded[me][0], 1, __ATOMIC_RELAXED);
}

/* A counter per thread, all on one line. */
static void pair(unsigned me)
{
    __atomic_fetch_add(&known_pair[me], 1, __ATOMIC_RELAXED);
}

/* A word that every thread overwrites and nobody reads. */
static void handed(unsigned me)
{
    known_handed[0] = me;
}

/* One value per round from the first thread to the second. */
static void ring(unsigned me)
{
    if (me == 0) {
        uint64_t head = known_head[0];
        known_slot[head % RING] = head;
        known_tail[0] = head + 1;
    } else {
        uint64_t tail = known_tail[0];
        known_sum[0] = known_slot[(tail - 1) % RING];
        known_head[0] = tail;
    }
}

static const struct {
    const char *name;
    void (*step)(unsigned me);
} cases[] = {{"shared", shared}, {"look", look}, {"claim", claim}, {"padded", padded}, {"pair", pair}, {"handed", handed}, {"ring", ring}};

static void (*step)(unsigned me);

static void *body(void *argument)
{
    pthread_barrier_wait(&line);
    unsigned me = (unsigned)(uintptr_t)argument;
    for (uint64_t i = 0; i < rounds; i++) {
        step(me);
        sched_yield();
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread[MOST];
    if (argc != 4)
        return 2;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (strcmp(argv[1], cases[i].name) == 0)
            step = cases[i].step;
    threads = (unsigned)atoi(argv[2]);
    rounds = (uint64_t)atoll(argv[3]);
    if (step == NULL || threads == 0 || threads > MOST)
        return 2;
    lines_begin();
    pthread_barrier_init(&line, NULL, threads);
    for (unsigned i = 0; i < threads; i++)
        if (pthread_create(&thread[i], NULL, body, (void *)(uintptr_t)i) != 0)
            return 1;
    for (unsigned i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    return 0;
}
