/* The large cache, which its owner uses without the heap lock (cache/large_cache.h), every schedule within the bounds: an owner that
 * allocates and frees, steps of upkeep that ask for its blocks and take them. Each block is in one place afterwards. What stands
 * between the two sides is time, which the model of weak orders does not have, so there is no weak_large: here a store is seen
 * at once, as it is by the time that a sweeper comes again. The planted bugs: an owner that does not look whether it was asked, a
 * sweeper that does not ask, and one that does not look whether the owner is inside. */
// test: check
#include "heap/heap.h"

#define BIN_CLASS HAK_CLASS_65536
#include "bin_world.h"

#include "cache/cache.h"
#include "cache/large_cache.h"
#include "diag/options.h"
#include "os/os.h"

enum { BLOCK_BYTES = 64 << 10 };

_Atomic uint64_t hak__option_words[HAK_OPTIONS] = { [HAK_OPTION_thread_budget] = 64 << 20 };

static struct hak_bin *bin(void) { return &the_heap()->classes[BIN_CLASS].hidden; }

/* --- what large_cache.c calls ------------------------------------------------------------------------------------------ */

void hak__cache_give(struct hak_heap *heap, uint32_t class, void *const *blocks, uint32_t count, const char *function)
{
    (void)heap, (void)class, (void)function;
    for (uint32_t i = 0; i < count; i++)
        given[number(blocks[i])]++;
}
void hak__heap_give(struct hak_heap *heap, void *const *blocks, uint32_t count, const char *function)
{
    hak__cache_give(heap, BIN_CLASS, blocks, count, function);
}
bool hak__cache_charge_large(struct hak_heap *heap) { return heap->large_cache.charged += 1 << 20, true; }
void hak__cache_discharge_large(struct hak_heap *heap) { (void)heap; }
void *hak__heap_take_at_hand(struct hak_heap *heap, uint32_t class) { return (void)heap, (void)class, NULL; }
uint32_t hak__heap_take(struct hak_heap *heap, uint32_t class, void **out, uint32_t want)
{
    return (void)heap, (void)class, (void)out, (void)want, 0;
}
int hak__os_resident(uintptr_t address, size_t size, unsigned char *pages) { return (void)address, (void)size, (void)pages, 1; }

/* --- the threads: as malloc.c, kinds/plain.c and upkeep/step.c do it ------------------------------------------------- */

static void *take(void)
{
    struct hak_heap *heap = the_heap();
    void *block = NULL;
    uint32_t turns = hak__large_cache_begin(&heap->large_cache);
    if (turns != 0) {
        block = hak__large_cache_pop_near(heap, BIN_CLASS);
        hak__large_cache_end(&heap->large_cache, turns);
    }
    if (block == NULL) {
        EXPLORE_EXPECT(hak__heap_lock(heap), "nobody has given the heap up");
        block = hak__large_cache_refill(heap, BIN_CLASS);
        hak__heap_unlock(heap);
    }
    if (block != NULL)
        in_use[number(block)]++;
    return block;
}

static void give(void *block)
{
    struct hak_heap *heap = the_heap();
    bool cached = false;
    if (block == NULL)
        return;
    in_use[number(block)]--;
    uint32_t turns = hak__large_cache_begin(&heap->large_cache);
    if (turns != 0) {
        cached = hak__large_cache_push_quickly(heap, BIN_CLASS, block);
        hak__large_cache_end(&heap->large_cache, turns);
    }
    if (!cached) {
        EXPLORE_EXPECT(hak__heap_lock(heap), "nobody has given the heap up");
        hak__large_cache_push(heap, BIN_CLASS, block, "free");
        hak__heap_unlock(heap);
    }
}

static void owner_takes(void) { take(); }

static void owner_works(void)
{
    give(take());
    take();
}

static void step(void)
{
    if (!hak__heap_try_lock(the_heap(), HAK_SWEEPER))
        return;
    hak__large_cache_reclaim(the_heap(), 1000, true);
    hak__heap_unlock(the_heap());
}

static void two_steps(void)
{
    step();
    step();
}

static void setup(void)
{
    struct hak_heap *heap = the_heap();
    bin_reset(bin());
    heap->large_out = BLOCKS * BLOCK_BYTES;
    heap->large_cache.classes = 1ull << BIN_CLASS;
    heap->large_cache.bytes = heap->large_cache.charged = BLOCKS * BLOCK_BYTES;
    heap->large_cache.sure = 1 << 20;
    heap->large_cache.clock = BLOCKS;
    heap->large_cache.peak = 1 << 20;
    atomic_store(&heap->large_cache.owner_turns, 0);
    atomic_store(&heap->large_cache.asked_ms, 0);
}

static void check(void)
{
    bin_check(bin());
    EXPLORE_EXPECT(the_heap()->large_cache.bytes == (size_t)(bin()->top - (slots + 1)) * BLOCK_BYTES, "bytes are counted");
}

static const struct explore_case cases[] = {
    { "an owner takes, two steps", 6, 2, setup, { owner_takes, two_steps }, check },
    { "an owner works, two steps", 4, 2, setup, { owner_works, two_steps }, check },
    { "an owner works, two sweepers", 3, 3, setup, { owner_works, two_steps, step }, check },
};

int main(int argc, char **argv) { return explore_main(cases, sizeof cases / sizeof cases[0], argc, argv); }
