/* Threads that allocate, resize and free in every pool, hand blocks to each other, and check what they hold. */
#ifndef HAK_TESTS_OVERRIDE_CHURN_H
#define HAK_TESTS_OVERRIDE_CHURN_H

#include "expect.h"

#include <pthread.h>
#include <stdatomic.h>

enum { CHURN_OWN = 64, CHURN_SHARED = 256, CHURN_THREADS_MAX = 16 };

/* A block begins with its size and a number made of it, and ends with the low byte of that number. */
struct churn_head {
    size_t size;
    uint64_t check;
};

static _Atomic(void *) churn_shared[CHURN_SHARED];
static atomic_bool churn_over;
static pthread_t churn_threads[CHURN_THREADS_MAX];
static unsigned churn_count;

static inline uint64_t churn_check(size_t size) { return size * 0x9e3779b97f4a7c15ull ^ 0x5bd1e995; }

static inline size_t churn_size(unsigned *seed)
{
    *seed = *seed * 1103515245u + 12345u;
    unsigned r = *seed >> 8;
    static const size_t most[16] = { 64, 64, 64, 64, 200, 200, 200, 1000, 1000, 5000, 5000, 30000, 60000, 300000, 900000, 2000000 };
    return sizeof(struct churn_head) + 1 + (*seed >> 4) % most[r % 16];
}

static inline void *churn_fill(void *p, size_t size)
{
    struct churn_head *head = p;
    expect(p != NULL && (uintptr_t)p % 16 == 0);
    *head = (struct churn_head){ size, churn_check(size) };
    ((unsigned char *)p)[size - 1] = (unsigned char)head->check;
    if (size == sizeof *head)
        head->check = churn_check(size);
    return p;
}

static inline void churn_verify(const void *p)
{
    const struct churn_head *head = p;
    expect(head->check == churn_check(head->size));
    expect(((const unsigned char *)p)[head->size - 1] == (unsigned char)head->check);
}

static inline void *churn_make(unsigned *seed)
{
    size_t size = churn_size(seed);
    switch (*seed >> 28) {
    case 0: return churn_fill(calloc(1, size), size);
    case 1: return churn_fill(aligned_alloc(64, size), size);
    case 2: return churn_fill(realloc(NULL, size), size);
    default: return churn_fill(malloc(size), size);
    }
}

static inline void churn_free(void *p)
{
    if (p == NULL)
        return;
    churn_verify(p);
    memset(p, 0, sizeof(struct churn_head));
    free(p);
}

static inline void churn_step(unsigned *seed, void **own)
{
    *seed = *seed * 1103515245u + 12345u;
    void **place = &own[(*seed >> 10) % CHURN_OWN];
    switch ((*seed >> 20) % 8) {
    case 0:   /* to another thread, and another's to here */
        churn_free(atomic_exchange(&churn_shared[(*seed >> 8) % CHURN_SHARED], *place));
        *place = NULL;
        return;
    case 1:
        if (*place != NULL) {
            size_t size = churn_size(seed);
            churn_verify(*place);
            *place = churn_fill(realloc(*place, size), size);
        }
        return;
    default:
        churn_free(*place);
        *place = churn_make(seed);
    }
}

static inline void churn_steps(unsigned seed, unsigned steps)
{
    void *own[CHURN_OWN] = { NULL };
    for (unsigned i = 0; i < steps; i++)
        churn_step(&seed, own);
    for (unsigned i = 0; i < CHURN_OWN; i++)
        churn_free(own[i]);
}

static inline void *churn_thread(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    while (!atomic_load(&churn_over))
        churn_steps(seed += 77, 500);
    return NULL;
}

static inline void *churn_briefly(void *argument)
{
    churn_steps((unsigned)(uintptr_t)argument, 200);
    return NULL;
}

static inline void churn_begin(unsigned count)
{
    atomic_store(&churn_over, false);
    for (churn_count = 0; churn_count < count; churn_count++)
        expect(pthread_create(&churn_threads[churn_count], NULL, churn_thread, (void *)(uintptr_t)(churn_count + 1)) == 0);
}

static inline void churn_end(void)
{
    atomic_store(&churn_over, true);
    for (unsigned i = 0; i < churn_count; i++)
        expect(pthread_join(churn_threads[i], NULL) == 0);
    for (unsigned i = 0; i < CHURN_SHARED; i++)
        churn_free(atomic_exchange(&churn_shared[i], NULL));
    churn_count = 0;
}

/* What a child may do: free what it has inherited, allocate everywhere, have threads. In a forked child the block that
 * another thread was exchanging at that moment is nobody's. */
static inline void churn_as_child(bool threads)
{
    pthread_t some[3];
    for (unsigned i = 0; i < CHURN_SHARED; i++)
        churn_free(atomic_exchange(&churn_shared[i], NULL));
    churn_steps(99, 300);
    for (uintptr_t i = 0; threads && i < 3; i++)
        expect(pthread_create(&some[i], NULL, churn_briefly, (void *)i) == 0);
    for (unsigned i = 0; threads && i < 3; i++)
        expect(pthread_join(some[i], NULL) == 0);
    churn_steps(5, 300);
}

#endif
