/* The walk over idle spans (upkeep/step.c) as malloc_trim takes it, at once, beside ends and rebirths: a single-block span ends by another
 * thread's free, and its slabs become a third one's span; owners take, give and end spans; two walk. The walker works only on spans of a
 * heap that it has locked. */
// test: check
#include "heap/heap.h"
#include "heaps_world.h"

#include <string.h>

#include "arena/limit.h"
#include "harden/spans.h"
#include "os/os.h"
#include "upkeep/upkeep.h"

enum { OFTEN_SINGLE = HAK_CLASS_81920 };

bool hak__limit_unmaps(void) { return false; }
int hak__os_resident(uintptr_t start, size_t bytes, unsigned char *pages)
{
    (void)start;
    memset(pages, 1, bytes / 4096);
    return 0;
}

/* The walker, thread 0, gives pages back: nobody else may be about to hand out a block there, or has written to one. */
void world_purged(size_t slab, size_t count)
{
    (void)count;
    uint32_t id = owner_of(slab);
    EXPLORE_EXPECT(explore_thread() != 0 || (id != 0 && hak__lock_word_is_mine(&heap(id)->lock)), "a walker purges a span of a heap that it has not locked");
}

static void walk(void)
{
    static const struct hak_idle_work all = { .slabs = HAK_SUPER_SLABS, .purges = UINT32_MAX, .most = SIZE_MAX };
    hak__idle_walk(&all);
}

/* Heap 1 has a span of one block at the beginning, of a class that has others; nothing else is there. */
static void one_single(void)
{
    begin();
    unsigned slabs = hak__class_single_slabs(OFTEN_SINGLE);
    hak__span_create(0, slabs, OFTEN_SINGLE, 1, NULL, false);
    EXPLORE_EXPECT(span(0)->blocks == 1 && hak__classes[OFTEN_SINGLE].blocks > 1, "another class is needed for this case");
    span(0)->frontier = 1;
    hak_count(&heap(1)->classes[OFTEN_SINGLE].span_count, 1);
}

/* Its block is freed by heap 2's thread; then heap 3's finds the slabs. */
static void end_single(void) { hak__heap_end_foreign(heap(2), hak__slab_start(0), hak__owner_at(0), "free"); }
static void ends_and_begins(void)
{
    end_single();
    void *first = take(3, SMALL);
    take(3, SMALL);
    if (first != NULL)
        give(3, first);
}
static void begins(void)
{
    void *first = take(3, SMALL);
    if (first != NULL)
        give(3, first);
}

/* Heap 1 has a span with free blocks, and one that is about to be empty. */
static void several(void)
{
    begin();
    begin_span(0, SMALL, 1, 2, 3);
    begin_span(1, SMALL, 1, 1, 0);
    begin_unused(8, 4);
}
static void owner_takes_and_gives(void)
{
    void *block = take(1, SMALL);
    give(1, block_at(1, 0));
    give(1, block);
}
static void adopts(void)
{
    hak__heap_park(heap(1));
    take(2, SMALL);
}

static void check_idle(void)
{
    for (uint32_t id = 1; id <= WORLD_HEAPS; id++)
        EXPLORE_EXPECT(hak__heap_is_valid(heap(id)) && atomic_load(&heap(id)->lock) == HAK_LOCK_FREE, "a heap is not valid, or locked");
    for (size_t slab = 0; slab < SLABS; slab++)
        if (owner_of(slab) != 0 && span(slab)->class == SMALL)
            EXPLORE_EXPECT(hak__span_allocated(span(slab)) == (unsigned)__builtin_popcount(atomic_load(&out[slab])), "a block is lost");
}

static const struct explore_case cases[] = {
    { "a span of one block ends, another begins", 3, 2, one_single, { walk, ends_and_begins }, check_idle, 1, 1 },
    { "one ends it, one begins another", 2, 3, one_single, { walk, end_single, begins }, check_idle, 1, 1 },
    { "the owner takes and gives", 3, 2, several, { walk, owner_takes_and_gives }, check_idle, 2, 1 },
    { "the spans are adopted", 2, 2, several, { walk, adopts }, check_idle, 2, 1 },
};

int main(int argc, char **argv) { return explore_main(cases, sizeof cases / sizeof cases[0], argc, argv); }
