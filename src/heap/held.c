/* The SuperSlabs that a heap holds for its large blocks: it looks there first, and other heaps are not shown them, so that
 * threads which open and end spans all the time do not meet on the words of the same SuperSlabs. Called by sources.c, and
 * by thread.c and upkeep/ when the heap is to let go; always with the heap entered.
 *
 * To hold is a preference and gives no rights: anybody may give slabs back, purge them, or claim some before a further
 * SuperSlab is opened (hak__pool_take_held). An entry of the list may be out of date; the holder's id decides. */
#include "base/bits.h"
#include "heap/heap.h"
#include "shared/pool.h"
#include "shared/tiers.h"

static void forget(struct hak_heap *heap, unsigned place) { heap->held[place] = heap->held[--heap->held_count]; }

static void let_go_of(struct hak_heap *heap, unsigned place)
{
    size_t super = heap->held[place];
    forget(heap, place);
    hak__pool_let_go(super, heap->id);
}

/* Unused slabs of an entry that has a run of `count`, 0 if it has none; entries that are no good any more leave the list. */
static unsigned room_in(struct hak_heap *heap, unsigned place, unsigned count)
{
    size_t super = heap->held[place];
    if (hak_load(&hak__supers[super].holder, HAK_RELAXED) != heap->id) {
        forget(heap, place);
        return 0;
    }
    if (hak__tier_draining(super)) {
        let_go_of(heap, place);
        return 0;
    }
    uint32_t unused = hak__slabs_unused(hak_load(&hak__supers[super].slabs, HAK_RELAXED));
    return hak_run_starts(unused, count) == 0 ? 0 : hak_popcount32(unused);
}

/* The fullest that has a run, so that the others empty. */
size_t hak__held_take(struct hak_heap *heap, unsigned count, bool *fresh)
{
    unsigned least = HAK_SUPER_SLABS + 1, best = 0;
    for (unsigned place = heap->held_count; place-- > 0;) {
        unsigned room = room_in(heap, place, count);
        if (room != 0 && room < least) {
            least = room;
            best = heap->held[place];
        }
    }
    heap->held_moves++;
    return least > HAK_SUPER_SLABS ? HAK_NO_RUN : hak__pool_take_near((size_t)best * HAK_SUPER_SLABS, count, fresh);
}

/* The fullest has least to offer. */
static unsigned worst_place(const struct hak_heap *heap)
{
    unsigned worst = 0, least = HAK_SUPER_SLABS + 1;
    for (unsigned place = 0; place < heap->held_count; place++) {
        unsigned room = hak_popcount32(hak__slabs_unused(hak_load(&hak__supers[heap->held[place]].slabs, HAK_RELAXED)));
        if (room < least) {
            least = room;
            worst = place;
        }
    }
    return worst;
}

void hak__held_add(struct hak_heap *heap, size_t slab)
{
    size_t super = slab / HAK_SUPER_SLABS;
    for (unsigned place = 0; place < heap->held_count; place++)
        if (heap->held[place] == super)
            return;
    if (!hak__pool_hold(super, heap->id))
        return;
    if (heap->held_count == HAK_HELD_MAX)
        let_go_of(heap, worst_place(heap));
    heap->held[heap->held_count++] = (uint32_t)super;
}

void hak__held_let_go(struct hak_heap *heap)
{
    while (heap->held_count != 0)
        let_go_of(heap, 0);
}
