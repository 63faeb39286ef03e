/* Stress: spans lose their keys and get them back, again and again, while live blocks are asked about.
 *
 * Exercises: upkeep returns the pages of free blocks and makes the limits of their slabs 0 (span/span.h) in the middle of
 * checks of live blocks in the same slabs, whose owner makes the limits what they were by taking blocks there. No check may
 * take a live block for one that was never allocated or is free.
 *
 * Knobs (environment)      default   long run
 *   HAK_STRESS_SECONDS     2         60
 */
// test: timeout=300
#include "support/stress.h"

enum { BLOCKS = 512, SIZE = 2048, KEPT = 16, ASKED = 20 };   /* one block of 16 stays: pages between are free */

static _Atomic bool stop;

static void *collects(void *argument)
{
    uint64_t rounds = 0;
    for (; !hak_load(&stop, HAK_RELAXED); rounds++)
        hak_collect();
    *(uint64_t *)argument = rounds;
    return NULL;
}

static void ask(void *const *blocks)
{
    for (int round = 0; round < ASKED; round++)
        for (int i = 0; i < BLOCKS; i += KEPT)
            STRESS_EXPECT(hak_usable_size(blocks[i]) >= SIZE, "a live block has become small");
}

/* Those that do not stay, all at once, so that they pass through the spans. */
static void refill(void **blocks)
{
    for (int i = 0; i < BLOCKS; i++)
        if (i % KEPT != 0)
            STRESS_EXPECT((blocks[i] = hak_malloc(SIZE)) != NULL, "no memory");
    for (int i = 0; i < BLOCKS; i++)
        if (i % KEPT != 0)
            memset(blocks[i], 1, SIZE);
}

static void empty(void **blocks)
{
    for (int i = 0; i < BLOCKS; i++)
        if (i % KEPT != 0)
            hak_free(blocks[i]);
}

int main(void)
{
    static void *blocks[BLOCKS];
    uint64_t rounds = 0, collected = 0;
    double end = stress_now() + stress_knob("HAK_STRESS_SECONDS", 2);
    for (int i = 0; i < BLOCKS; i++)
        STRESS_EXPECT((blocks[i] = hak_malloc(SIZE)) != NULL, "no memory");
    pthread_t thread = stress_thread(collects, &collected);
    for (; stress_now() < end; rounds++) {
        empty(blocks);
        ask(blocks);
        refill(blocks);
    }
    hak_store(&stop, true, HAK_RELAXED);
    pthread_join(thread, NULL);
    empty(blocks);
    for (int i = 0; i < BLOCKS; i += KEPT)
        hak_free(blocks[i]);
    printf("rounds=%llu collections=%llu\n", (unsigned long long)rounds, (unsigned long long)collected);
    stress_expect_empty();
    return 0;
}
