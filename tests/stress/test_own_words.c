/* Stress: programs whose data looks like ours.
 *
 * Exercises: frees, sized frees, realloc and malloc_usable_size of blocks in use that begin with the key that freed
 * blocks bear (span/span.h), so that every one of them is looked up in the heaps (cache/contents.c); their other words are
 * words of our tables and addresses of blocks, live and freed. By the owner and by others, in every pool, while records
 * grow and shrink, buckets are published, heaps are swept and collected, threads end and their spans are adopted.
 * Expects: no report; content that stays; everything back at the end. What is freed twice is for tests/misuse.
 *
 * Knobs (environment)        default                              long run
 *   HAK_STRESS_SECONDS       2                                    60
 *   HAK_STRESS_OPERATIONS    500,000 x seconds; with sanitizers   1000000000   operations in all
 *                            a tenth of that
 *   HAK_STRESS_THREADS       4                                    8            at once */
// test: timeout=600
#include "support/stress.h"

enum { OWN = 256, MAILBOX = 512, THREADS_MAX = 64, LIFE = 20000, BURST = 3000 };

typedef uint64_t word __attribute__((may_alias));

/* A block in use: word 0 is the key, or the 0 of a page that went back to the system; word 1 is the size asked
 * for, the rest as it comes. */
static _Atomic(word *) mailbox[MAILBOX];
static _Atomic int64_t left;
static uint64_t key;

/* The key as a program may come by it: from what it has freed. */
static uint64_t read_key(void)
{
    volatile word *freed = hak_malloc(64);
    hak_free((void *)(uintptr_t)freed);
    return *freed;
}

/* Words that stand in our own tables, or did. */
static uint64_t own_word(struct stress_random *random, const word *p)
{
    size_t slab = hak__slab_of(p);
    switch (stress_below(random, 6)) {
    case 0: return hak__owner_of(p);   /* a sampled block has no slab */
    case 1: return hak__owner_word(1 + (uint32_t)stress_below(random, 8), 0) | (uint32_t)stress_below(random, 1024);
    case 2: return (uint64_t)(uintptr_t)p;
    case 3: return (uint64_t)(uintptr_t)hak__slab_start(slab);
    case 4: return ~0ull;
    default: return key;
    }
}

static size_t some_size(struct stress_random *random)
{
    size_t roll = stress_below(random, 1000);
    if (roll < 900)
        return 16 + stress_below(random, 1024);
    return roll < 990 ? 1024 + stress_below(random, 60 << 10) : stress_size(random) + 16;
}

static word *take(struct stress_random *random, size_t size)
{
    word *p = stress_below(random, 8) == 0 ? hak_calloc(1, size) : hak_malloc(size);
    STRESS_EXPECT(p != NULL, "%zu bytes", size);
    STRESS_EXPECT(p[0] != key || size > HAK_LARGE_MAX, "a new block of %zu bytes bears the key", size);
    for (size_t i = 2; i < 8 && (i + 1) * sizeof *p <= size; i++)
        p[i] = own_word(random, p);
    p[0] = stress_below(random, 4) == 0 ? 0 : key;
    p[1] = size;
    return p;
}

static void check(const word *p)
{
    STRESS_EXPECT(p[0] == key || p[0] == 0, "the first word of %p has become %llx", (const void *)p, (unsigned long long)p[0]);
    STRESS_EXPECT(hak_usable_size(p) >= p[1], "%zu of %zu bytes", hak_usable_size(p), (size_t)p[1]);
}

static void give(struct stress_random *random, word *p)
{
    if (p == NULL)
        return;
    if (stress_below(random, 4) == 0)
        check(p);
    if (stress_below(random, 4) == 0)
        hak_free_sized(p, p[1]);
    else
        hak_free(p);
}

static word *change(struct stress_random *random, word *p)
{
    size_t size = some_size(random);
    p = hak_realloc(p, size);
    STRESS_EXPECT(p != NULL, "realloc to %zu bytes", size);
    STRESS_EXPECT(p[0] == key || p[0] == 0, "realloc to %zu bytes has lost the first word", size);
    p[1] = size;
    return p;
}

/* Many blocks of one class, so that its record grows, then drains. */
static void burst(struct stress_random *random)
{
    static _Thread_local word *blocks[BURST];
    size_t size = 16 + stress_below(random, 2048);
    for (int i = 0; i < BURST; i++)
        blocks[i] = take(random, size);
    for (int i = 0; i < BURST; i++) {
        word *other = blocks[i];
        if (i % 3 == 0)
            other = atomic_exchange(&mailbox[stress_below(random, MAILBOX)], blocks[i]);
        give(random, other);
    }
}

static void step(struct stress_random *random, word **own)
{
    word **mine = &own[stress_below(random, OWN)];
    size_t roll = stress_below(random, 10000);
    if (*mine == NULL)
        *mine = take(random, some_size(random));
    else if (roll < 3500)
        *mine = atomic_exchange(&mailbox[stress_below(random, MAILBOX)], *mine);
    else if (roll < 5000)
        *mine = change(random, *mine);
    else if (roll < 9990) {
        give(random, *mine);
        *mine = NULL;
    } else if (roll < 9995)
        burst(random);
    else
        hak_collect();
}

static void *life(void *argument)
{
    struct stress_random random = { (uint64_t)(uintptr_t)argument * 104729 };
    word *own[OWN] = { NULL };
    for (int i = 0; i < LIFE && atomic_fetch_sub(&left, 1) > 0; i++)
        step(&random, own);
    for (int i = 0; i < OWN; i++)
        give(&random, own[i]);
    return NULL;
}

int main(void)
{
    pthread_t running[THREADS_MAX];
    size_t threads = (size_t)stress_knob("HAK_STRESS_THREADS", 4), started = 0;
    double operations = (STRESS_SANITIZED ? 50e3 : 500e3) * stress_knob("HAK_STRESS_SECONDS", 2);
    int64_t total = (int64_t)stress_knob("HAK_STRESS_OPERATIONS", operations);
    struct stress_random random = { 1 };
    STRESS_EXPECT(threads >= 1 && threads <= THREADS_MAX, "HAK_STRESS_THREADS is from 1 to %d", THREADS_MAX);
    key = read_key();
    STRESS_EXPECT(key == hak__freed_key, "a freed block bears %llx", (unsigned long long)key);
    atomic_store(&left, total);
    for (; started < threads || atomic_load(&left) > 0; started++) {
        if (started >= threads)
            pthread_join(running[started % threads], NULL);
        running[started % threads] = stress_thread(life, (void *)(uintptr_t)(started + 1));
    }
    for (size_t i = started - threads; i < started; i++)
        pthread_join(running[i % threads], NULL);
    for (int i = 0; i < MAILBOX; i++)
        give(&random, mailbox[i]);
    printf("operations=%lld threads=%zu heaps=%u\n", (long long)total, started, hak__heap_last_id());
    stress_expect_empty();
    return 0;
}
