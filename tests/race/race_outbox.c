/* The outbox that its owner appends to without `lock` while a sweeper publishes from it (cache/cache.h, outbox.c), every
 * schedule within the bounds: whatever the owner and the sweeper do at once, each block is published once.
 *   1. the owner appends while a sweeper is at the bucket;
 *   2. the same with two rounds of sweeping;
 *   3. the owner flushes in its slow path, before or after the sweep;
 *   4. the slab's span ends after a sweep and serves another class: an append to the old bucket does not join it. */
// test: check
#include "world.h"

#include <string.h>

#include "cache/cache.h"
#include "heap/heap.h"

enum { CLASS = HAK_CLASS_1024, OTHER_CLASS = HAK_CLASS_1280, BLOCKS = 4, MINE = 2, THEIRS = 1 };   /* two spans of one word of bits each */

static uint32_t collected;
static bool later[BLOCKS];   /* blocks whose slow path has found the heap entered by the sweeper */

static struct hak_heap *mine(void) { return hak__heap_by_id(MINE); }
static char *block(size_t i) { return hak__slab_start(0) + i * hak__classes[CLASS].size; }

static void collect(struct hak_heap *heap, struct hak_span *span)
{
    enum hak_span_fault fault;
    uint32_t culprit;
    (void)heap;
    collected += hak__span_collect_owner(span, world_is_not_free, &fault, &culprit);
    EXPLORE_EXPECT(fault == HAK_SPAN_OK, "a block is published twice, or was never out");
}

/* Blocks that are alone in their span do not go through outboxes. */
void hak__heap_end_foreign(struct hak_heap *heap, void *p, uint32_t word, const char *function)
{
    (void)heap, (void)p, (void)word, (void)function;
    explore_violation("a span of many blocks is ended as one of a single block");
}

uint32_t hak__common_first(const struct hak_heap *heap, uint32_t class)
{
    (void)heap, (void)class;
    return 0;
}

bool hak__heap_sweep(struct hak_heap *heap)
{
    (void)heap;
    explore_violation("a small block is freed as one of the large pool");
    return false;
}

/* What free does with another heap's block; where the owner would wait, the block's turn comes at the end. */
static void free_block(size_t i)
{
    if (hak__outbox_add(mine(), block(i)))
        return;
    if (!hak__heap_try_lock(mine(), HAK_OWNER)) {
        later[i] = true;
        return;
    }
    hak__outbox_add_slow(mine(), block(i), hak__owner_at(0), "free");
    hak__heap_unlock(mine());
}

/* Block 0 waits in the outbox already. */
static void setup(void)
{
    world_reset();
    memset(mine()->outbox_buckets, 0, sizeof mine()->outbox_buckets);
    atomic_store(&mine()->outbox.used, 0);
    atomic_store(&mine()->lock, HAK_LOCK_FREE);
    memset(later, 0, sizeof later);
    collected = 0;
    hak__span_create(0, 1, CLASS, THEIRS, NULL, true);
    hak__spans[0].frontier = BLOCKS;
    free_block(0);
}

static void append_1_and_2(void)
{
    free_block(1);
    free_block(2);
}
static void append_3(void) { free_block(3); }

static void sweep(void)
{
    if (!hak__heap_try_lock(mine(), HAK_SWEEPER))
        return;
    hak__outbox_sweep(mine());
    hak__heap_unlock(mine());
}
static void sweep_twice(void)
{
    sweep();
    sweep();
}
static void append_and_flush(void)
{
    append_1_and_2();
    if (hak__heap_try_lock(mine(), HAK_OWNER)) {
        hak__outbox_flush(mine(), "free");
        hak__heap_unlock(mine());
    }
    append_3();
}

/* The owner's last slow path: what had to wait is freed, and everything goes out. */
static void check_published(uint32_t expected)
{
    for (size_t i = 0; i < BLOCKS; i++)
        if (later[i])
            free_block(i);
    hak__outbox_flush(mine(), "free");
    hak__remote_receive(hak__heap_by_id(THEIRS), collect);
    EXPLORE_EXPECT(collected == expected, "a block was left in the outbox");
    EXPLORE_EXPECT(hak__span_is_valid(&hak__spans[0]), "the span is not valid");
}
static void check_three(void) { check_published(3); }
static void check_four(void) { check_published(4); }

/* The span's owner ends it as soon as all blocks are back, and its slab begins anew with larger blocks. */
static bool reborn;

static void setup_rebirth(void)
{
    setup();
    reborn = false;
    hak__spans[0].frontier = 1;   /* block 0 is the only one out */
}
static void end_and_begin(void)
{
    hak__remote_receive(hak__heap_by_id(THEIRS), collect);
    if (hak__span_allocated(&hak__spans[0]) != 0)
        return;
    hak__span_destroy(&hak__spans[0]);
    hak__span_create(0, hak__classes[OTHER_CLASS].slabs, OTHER_CLASS, THEIRS, NULL, true);
    hak__spans[0].frontier = 1;
    reborn = true;
}
static void check_rebirth(void)
{
    if (reborn) {
        /* The next free is of a block of the new class, at the same address. */
        EXPLORE_EXPECT(!hak__outbox_add(mine(), block(0)), "a block joined a bucket that was made for another class");
        hak__outbox_add_slow(mine(), block(0), hak__owner_at(0), "free");
    }
    hak__outbox_flush(mine(), "free");
    hak__remote_receive(hak__heap_by_id(THEIRS), collect);
    EXPLORE_EXPECT(collected == (reborn ? 2 : 1), "a block was left in the outbox");
}

static const struct explore_case cases[] = {
    { "append while it is swept", EXPLORE_ALL, 2, setup, { append_1_and_2, sweep }, check_three },
    { "append while it is swept twice", 4, 2, setup, { append_and_flush, sweep_twice }, check_four },
    { "two sweepers", 3, 3, setup, { append_1_and_2, sweep, sweep }, check_three },
    { "the slab serves another class", 4, 2, setup_rebirth, { sweep, end_and_begin }, check_rebirth },
};

int main(int argc, char **argv) { return explore_main(cases, sizeof cases / sizeof cases[0], argc, argv); }
