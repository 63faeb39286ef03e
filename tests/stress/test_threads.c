/* Stress: many short threads.
 *
 * Exercises: attaching, draining, parking and reusing heaps at a high rate; blocks that outlive their thread and are
 * freed by later ones, among them while their heap is parked or belongs to a third thread; steps of upkeep, which empty
 * the records of parked heaps while threads take these up.
 * Expects: no more heaps than threads at once (and the main thread's and the late one), and mapped memory that does
 * not grow with the number of threads. In hardened mode a heap keeps up to three emptied and purged spans of each large
 * class, and it takes more threads than a short run has until each heap has them all.
 *
 * Knobs (environment)        default                long run
 *   HAK_STRESS_SECONDS       2                      60
 *   HAK_STRESS_SHORT         1700 x seconds         100000      threads in all
 *   HAK_STRESS_WINDOW        8                      32          threads at once */
// test: check timeout=600
#include "harden/mode.h"
#include "os/os.h"
#include "support/figures.h"
#include "support/stress.h"
#include "upkeep/upkeep.h"

enum { BLOCKS = 64, MAILBOX = 256, WINDOW_MAX = 256 };

static struct stress_block mailbox[MAILBOX];
static pthread_mutex_t mailbox_lock = PTHREAD_MUTEX_INITIALIZER;

/* Leaves a block and takes the one that was there before. */
static struct stress_block leave(struct stress_random *random, struct stress_block block)
{
    size_t i = stress_below(random, MAILBOX);
    pthread_mutex_lock(&mailbox_lock);
    struct stress_block former = mailbox[i];
    mailbox[i] = block;
    pthread_mutex_unlock(&mailbox_lock);
    return former;
}

static void *short_life(void *argument)
{
    struct stress_random random = { (uint64_t)(uintptr_t)argument * 7919 };
    struct stress_block blocks[BLOCKS];
    size_t count = 1 + stress_below(&random, BLOCKS);
    for (size_t i = 0; i < count; i++)
        blocks[i] = stress_alloc(&random, stress_size(&random) / (i % 4 == 0 ? 1 : 16));
    for (size_t i = 0; i < count; i++) {
        if (i % 8 == 0)
            blocks[i] = leave(&random, blocks[i]);
        stress_free(&blocks[i]);
    }
    return NULL;
}

static size_t mapped_now(void)
{
    struct arena_figures figures;
    arena_figures(&figures);
    return figures.mapped + figures.meta;
}

int main(void)
{
    pthread_t running[WINDOW_MAX];
    size_t window = (size_t)stress_knob("HAK_STRESS_WINDOW", 8), early = 0;
    size_t total = (size_t)stress_knob("HAK_STRESS_SHORT", 1700 * stress_knob("HAK_STRESS_SECONDS", 2));
    for (size_t i = 0; i < total + window; i++) {
        if (i >= window)
            pthread_join(running[i % window], NULL);
        if (i < total)
            running[i % window] = stress_thread(short_life, (void *)(uintptr_t)(i + 1));
        if (i % 4 == 0)
            hak__upkeep_step(hak__os->now_ms(), i % 32 == 0 ? HAK_UPKEEP_ALL : HAK_UPKEEP_BOUNDED);
        if (i == total / 2)
            early = mapped_now();
    }
    for (int i = 0; i < MAILBOX; i++)
        stress_free(&mailbox[i]);
    size_t late = mapped_now();
    printf("threads=%zu heaps=%u mapped_early=%zu mapped_late=%zu peak_rss=%zu\n", total, hak__heap_last_id(), early,
           late, stress_rss_peak());
    /* One each, the main thread's, the shared one of late frees; in hardened mode that of what was allocated before the options
     * were read serves no more. */
    STRESS_EXPECT(hak__heap_last_id() <= window + 2 + hak__hardened.on, "%u heaps for %zu threads at once",
                  hak__heap_last_id(), window);
    size_t kept = hak__hardened.on ? window << 22 : (size_t)8 << 20;
    STRESS_EXPECT(late <= early + early / 2 + kept, "%zu bytes mapped after %zu", late, early);
    stress_expect_empty();
    return 0;
}
