/* Large blocks in a heap: the SuperSlabs assigned to it for them, and resizing in place. See heap.h.
 *
 * A heap with many large blocks looks first in the SuperSlabs assigned to it. Other heaps skip these, so threads that open and end
 * spans all the time do not contend for the words of the same SuperSlabs. An assignment is a preference and gives no rights: any
 * thread may give slabs back, purge them, or claim some before it opens a new SuperSlab (hak__pool_take_assigned). An entry of the
 * list may be out of date; the id in the SuperSlab's entry decides. */
#include "heap/heap.h"

#include "arena/mapping.h"
#include "arena/returned.h"
#include "base/assert.h"
#include "base/bits.h"
#include "span/pool.h"

/* --- assigned SuperSlabs --------------------------------------------------------------------------------------------- */

/* Read by upkeep before it locks the heap. */
static void set_count(struct hak_heap *heap, uint32_t count) { hak_owner_store(&heap->assigned.count, count); }

/* Keeps the order: the first assigned serves first. */
static void large_forget(struct hak_heap *heap, unsigned place)
{
    hak_assert(place < heap->assigned.count, "an entry of the list");
    set_count(heap, heap->assigned.count - 1);
    for (; place < heap->assigned.count; place++)
        heap->assigned.supers[place] = heap->assigned.supers[place + 1];
}

static void let_go_of(struct hak_heap *heap, unsigned place)
{
    size_t super = heap->assigned.supers[place];
    large_forget(heap, place);
    hak__pool_unassign(super, heap->id);
}

/* A run in an entry's SuperSlab. An entry out of date is removed from the list and gives none. */
static size_t take_at(struct hak_heap *heap, unsigned place, unsigned count, bool *fresh)
{
    size_t super = heap->assigned.supers[place];
    heap->assigned.moves++; /* only here: the page of a heap without any stays untouched */
    if (hak_unlikely(hak_load(&hak__supers[super].assigned_to, HAK_RELAXED) != heap->id)) {
        large_forget(heap, place);
        return HAK_NO_RUN;
    }
    if (hak_unlikely(hak__tier_draining(super))) {
        let_go_of(heap, place);
        return HAK_NO_RUN;
    }
    uint32_t unused = hak__slabs_unused(hak_load(&hak__supers[super].slabs, HAK_RELAXED));
    return hak_run_starts(unused, count) == 0 ? HAK_NO_RUN : hak__pool_take_near(super * HAK_SUPER_SLABS, count, fresh);
}

/* Takes from the first that has a run, so that the last ones empty. */
size_t hak__assigned_take(struct hak_heap *heap, unsigned count, bool *fresh)
{
    hak_assert(count != 0, "a run has slabs");
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    size_t slab = HAK_NO_RUN;
    for (unsigned place = 0; place < heap->assigned.count && slab == HAK_NO_RUN;) {
        unsigned before = heap->assigned.count;
        slab = take_at(heap, place, count, fresh);
        place += heap->assigned.count == before;
    }
    return slab;
}

static bool is_spare(const struct hak_heap *heap, size_t super)
{
    return hak_load(&hak__supers[super].assigned_to, HAK_RELAXED) == heap->id
        && hak__slabs_unused(hak_load(&hak__supers[super].slabs, HAK_RELAXED)) == ~0u;
}

/* Keeps a few empty SuperSlabs, so that a thread whose blocks come and go does not open and close them all the time. */
void hak__assigned_emptied(struct hak_heap *heap, size_t slab)
{
    size_t super = slab / HAK_SUPER_SLABS;
    for (unsigned i = 0; i < HAK_ASSIGNED_SPARES; i++) {
        size_t spare = heap->assigned.spare[i];
        if (spare == super || spare >= hak__arena_top() || !is_spare(heap, spare)) {
            heap->assigned.spare[i] = (uint32_t)super;
            return;
        }
    }
    hak__pool_unassign(super, heap->id);
}

/* The fullest SuperSlab has the least to offer. */
static unsigned worst_place(const struct hak_heap *heap)
{
    unsigned worst = 0, least = HAK_SUPER_SLABS + 1;
    for (unsigned place = 0; place < heap->assigned.count; place++) {
        unsigned room = hak_popcount32(hak__slabs_unused(hak_load(&hak__supers[heap->assigned.supers[place]].slabs, HAK_RELAXED)));
        if (room < least) {
            least = room;
            worst = place;
        }
    }
    return worst;
}

void hak__assigned_add(struct hak_heap *heap, size_t slab)
{
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    size_t super = slab / HAK_SUPER_SLABS;
    if (!hak__retain_assigned(heap->large_out, hak_load(&heap->large_remote_freed, HAK_RELAXED)))
        return;
    for (unsigned place = 0; place < heap->assigned.count; place++)
        if (heap->assigned.supers[place] == super)
            return;
    if (!hak__pool_assign(super, heap->id))
        return;
    if (heap->assigned.count == HAK_ASSIGNED_MAX)
        let_go_of(heap, worst_place(heap));
    heap->assigned.supers[heap->assigned.count] = (uint32_t)super;
    heap->assigned.moves++;
    set_count(heap, heap->assigned.count + 1);
}

void hak__assigned_let_go(struct hak_heap *heap)
{
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    while (heap->assigned.count != 0)
        let_go_of(heap, 0);
}

/* The unused part of a slab is returned at once if it is worth a system call: nothing else can use it. */
enum { REST_LEAST = 16 << 10 };

/* --- resizing ----------------------------------------------------------------------------------------------------------- */

/* Writes the owner words of the inner slabs that a single-block span gains or keeps. */
static void describe_large(struct hak_span *span, uint32_t heap_id, uint32_t class, unsigned slabs)
{
    size_t slab = hak__span_slab(span);
    for (unsigned i = span->slabs; i < slabs; i++)
        hak__owner_set(slab + i, hak__owner_inner(heap_id));
    for (unsigned i = slabs; i < span->slabs; i++)
        hak__owner_set(slab + i, 0);
    hak__owner_set(slab, hak__owner_aged(hak__owner_generation(hak__owner_at(slab)), heap_id, class));
    span->slabs = (uint8_t)slabs;
    span->class = (uint16_t) class;
    hak__span_map_places(span);
}

/* A shortened block ends within the last slab that it keeps; the slabs behind go to the pool. */
static void cut_off(const struct hak_span *span, size_t slab, unsigned had)
{
    size_t end = (size_t)span->slabs << HAK_SLAB_SHIFT, used = hak_align_up(hak__classes[span->class].size, hak__page_size());
    if (end >= used + REST_LEAST)
        hak__arena_purge_range(hak__slab_start(slab) + used, end - used, HAK_UNUSED_PAGES);
    hak__pool_give(slab + span->slabs, had - span->slabs);
}

bool hak__large_resize_owner(struct hak_heap *heap, void *block, uint32_t class)
{
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    size_t slab = hak__slab_of(block);
    struct hak_span *span = hak__span_at(slab);
    unsigned have = span->slabs, want = hak__class_single_slabs(class);
    uint32_t former = span->class;
    hak_assert(former >= HAK_CLASS_FIRST_LARGE && class >= HAK_CLASS_FIRST_LARGE, "only large blocks resize in place");
    if (span->blocks != 1 || hak__super_is_bare(slab / HAK_SUPER_SLABS))
        return false;
    while (want >= have && class + 1 < HAK_CLASSES && hak__class_single_slabs(class + 1) == want)
        class++;
    hak_assert(!span->listed && hak__span_allocated(span) == 1, "the block is in the program's hands");
    if (want > have && !hak__pool_extend(slab, have, want))
        return false;
    describe_large(span, heap->id, class, want);
    if (want < have)
        cut_off(span, slab, have);
    hak__heap_large_moved(heap, former, (size_t)-1);
    hak__heap_large_moved(heap, class, 1);
    hak_count(&heap->classes[former].drained, 1);
    hak_count(&heap->classes[former].span_count, (uint64_t)-1);
    hak_count(&heap->classes[class].refilled, 1);
    hak_count(&heap->classes[class].span_count, 1);
    hak_count(&heap->counts.slabs, (uint64_t)want - have);
    return true;
}
