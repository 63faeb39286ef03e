/* hak_stats_ledger: the states add up to the kernel's resident size within 3 % in the situations that a heap can be in,
 * and each situation's memory is found where it belongs, also that of sampled blocks, which lie outside of the window. The kernel's figure is the Rss of all mappings, which the
 * ledger reads; /proc/self/statm, which it does not read, must agree but for what the kernel counts late. */
// test: serial ordinary
#include "cases.h"

#include <errno.h>
#include <pthread.h>

#include "hakmem.h"
#include "hakmem_stats.h"

enum { SMALL = 200 << 20, BLOCK = 64, COUNT = SMALL / BLOCK, KEPT = 64, THREADS = 8, HEAPS = 3000 };

static struct hak_stats stats;
static void **blocks;

static size_t distance(size_t a, size_t b) { return a > b ? a - b : b - a; }

static void check(const char *situation)
{
    expect(hak_stats_ledger(&stats, sizeof stats) == 0);
    expect(stats.flags & HAK_STATS_HAS_LEDGER);
    if (distance(stats.ledger_sum, stats.ledger_rss) * 100 > stats.ledger_rss * 3)
        fprintf(stderr, "%s: sum %zu, resident %zu\n", situation, (size_t)stats.ledger_sum, (size_t)stats.ledger_rss);
    expect(distance(stats.ledger_sum, stats.ledger_rss) * 100 <= stats.ledger_rss * 3);
    expect(distance(stats.ledger_rss, resident_bytes()) <= stats.ledger_rss / 33 + (1 << 20));
    expect(stats.ledger_unread_spans == 0);
}

static const struct hak_stats_class *class_of(uint64_t size)
{
    const struct hak_stats_class *class = stats.classes;
    while (class->size != size)
        class++;
    return class;
}

static void small_blocks(void)
{
    size_t before = stats.ledger_live;
    for (size_t i = 0; i < COUNT; i++)
        memset(blocks[i] = malloc(BLOCK), 1, BLOCK);
    check("small blocks");
    expect(distance(stats.ledger_live - before, SMALL) < SMALL / 50);
    for (size_t i = 0; i < COUNT; i++)
        if (i % KEPT != 0)
            free(blocks[i]);
    check("every 64th block kept");
    expect(stats.ledger_live - before < SMALL / KEPT + (2 << 20));
    expect(stats.ledger_free_in_slabs > SMALL / 10 * 9);
    expect(class_of(BLOCK)->pinned > SMALL / 10 * 9);
    for (size_t i = 0; i < COUNT; i += KEPT)
        free(blocks[i]);
    hak_collect();
    check("all freed");
    expect(stats.ledger_free_in_slabs < SMALL / 50);
}

static void huge_blocks(void)
{
    char *huge[4];
    size_t before = stats.ledger_huge, empty = stats.ledger_empty;
    for (int i = 0; i < 4; i++)
        memset(huge[i] = malloc(20 << 20), 1, 10 << 20); /* half of it is never touched */
    check("huge blocks");
    expect(distance(stats.ledger_huge - before, 40 << 20) <= 1 << 20);
    free(huge[3]);
    check("a huge block freed");
    expect(stats.ledger_huge <= before + (31 << 20));
    expect(stats.ledger_empty + stats.ledger_huge >= empty);
    for (int i = 0; i < 3; i++)
        free(huge[i]);
    check("huge blocks freed");
    expect(stats.ledger_huge <= before + (1 << 20));
    hak_collect();
    check("huge blocks collected");
    expect(stats.ledger_empty < 4 << 20);
}

static pthread_barrier_t filled, looked;

static void *cache_much(void *argument)
{
    enum { BLOCKS = 400, SIZE = 1000 };
    void *p[BLOCKS];
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < BLOCKS; i++)
            memset(p[i] = malloc(SIZE), 1, SIZE);
        for (int i = 0; i < BLOCKS; i++)
            free(p[i]);
    }
    pthread_barrier_wait(&filled);
    pthread_barrier_wait(&looked);
    return argument;
}

static void threads_with_caches(void)
{
    pthread_t threads[THREADS];
    pthread_barrier_init(&filled, NULL, THREADS + 1);
    pthread_barrier_init(&looked, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++)
        expect(pthread_create(&threads[i], NULL, cache_much, NULL) == 0);
    pthread_barrier_wait(&filled);
    check("threads with caches");
    expect(stats.ledger_cached >= THREADS * 50 * 1000);
    pthread_barrier_wait(&looked);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    check("threads ended");
    expect(stats.ledger_cached < THREADS * 50 * 1000);
}

/* One block in each: the rest of its span is free. */
static void user_heaps(void)
{
    static hak_heap_t *heaps[HEAPS];
    size_t before = stats.ledger_live;
    for (size_t i = 0; i < HEAPS; i++) {
        heaps[i] = hak_heap_new(NULL);
        expect(heaps[i] != NULL && memset(hak_heap_malloc(heaps[i], BLOCK), 1, BLOCK) != NULL);
    }
    check("user heaps");
    expect(stats.ledger_live - before < HEAPS * 1024);
    for (size_t i = 0; i < HEAPS; i++)
        hak_heap_destroy(heaps[i]);
    check("user heaps destroyed");
}

static void sizes(void)
{
    struct hak_stats part;
    memset(&part, 0xee, sizeof part);
    expect(hak_stats_snapshot(NULL, sizeof part) == EINVAL);
    expect(hak_stats_snapshot(&part, 8) == EINVAL);
    expect(hak_stats_snapshot(&part, offsetof(struct hak_stats, system_mmap)) == 0);
    expect(part.magic == HAK_STATS_MAGIC && part.version == HAK_STATS_VERSION);
    expect(part.size == offsetof(struct hak_stats, system_mmap));
    expect(part.remote_heaps >= 1 && part.system_mmap == 0xeeeeeeeeeeeeeeeeull);
    struct {
        struct hak_stats known;
        char unknown[64];
    } larger;
    memset(&larger, 0xee, sizeof larger);
    expect(hak_stats_snapshot(&larger.known, sizeof larger) == 0);
    expect(larger.known.size == sizeof part && larger.unknown[0] == 0 && larger.unknown[63] == 0);
    expect(larger.known.ledger_sum == 0 && (larger.known.flags & HAK_STATS_HAS_LEDGER) == 0);
}

/* --- sampled blocks ---------------------------------------------------------------------------------------------------- */

enum { SAMPLES = 10000, SAMPLE = 5000 };

static void samples(void)
{
    static char *p[SAMPLES];
    check("no sample");
    size_t before = stats.ledger_live, free_before = stats.ledger_free_in_slabs, not_ours = stats.ledger_not_ours;
    for (size_t i = 0; i < SAMPLES; i++)
        memset(p[i] = malloc(SAMPLE), 1, SAMPLE);
    check("samples");
    size_t live = stats.ledger_live - before, all = (size_t)SAMPLES * SAMPLE;
    expect(live >= all && (live < all / 4 * 5 || not_emulated("machine's speed, by which fewer blocks get guards")));
    expect(distance(stats.ledger_not_ours, not_ours) < 2 << 20 || not_emulated("account of resident pages without its own"));
    for (size_t i = 0; i < SAMPLES; i += 2)
        free(p[i]);
    check("every other sample freed");
    expect(stats.ledger_live - before < live / 8 * 5);
    expect(stats.ledger_free_in_slabs - free_before + stats.ledger_cached > all / 4 || getenv("HAKMEM_SAMPLE_GUARDS") != NULL);
}

static void with_samples(const char *first, const char *second)
{
    char program[] = "/proc/self/exe", word[] = "samples", *arguments[] = { program, word, NULL };
    pid_t child = fork();
    expect(child >= 0);
    if (child == 0) {
        putenv((char *)(uintptr_t)first);
        putenv((char *)(uintptr_t)second);
        execv(program, arguments);
        _exit(127);
    }
    expect(end_of_child(child) == 0);
}

int main(int count, char **words)
{
    (void)words;
    if (count > 1) {
        samples();
        _exit(0); /* no dump */
    }
    with_samples("HAKMEM_PROFILE=1", "HAKMEM_PROFILE_INTERVAL=1");
    with_samples("HAKMEM_SAMPLE_GUARDS=1", "HAKMEM_SAMPLE_SLOTS=4096");
    check("fresh");
    sizes();
    user_heaps();
    blocks = malloc(COUNT * sizeof *blocks);
    memset(blocks, 0, COUNT * sizeof *blocks);
    check("one huge block");
    small_blocks();
    huge_blocks();
    threads_with_caches();
    return 0;
}
