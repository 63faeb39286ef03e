/* Huge blocks. A guard follows each: the run's next page and all behind it are unmapped; or a tail, unused pages
 * (arena/retained.h). For a block of whole SuperSlabs the run is one SuperSlab of addresses longer. No guard is a page inside a
 * mapping: mlockall(2) gives up a mapping at the first page that faults (docs/decisions/0066). Run = supers_of(bytes + guard).
 * The first slab's owner word names the reserved huge owner; exchanging it decides which of two racing frees is the second. All
 * other state of a block is in its first SuperSlab's descriptor. */
#include "huge/huge.h"

#include <string.h>

#include "arena/limit.h"
#include "arena/retained.h"
#include "arena/runs.h"
#include "base/assert.h"
#include "base/bits.h"
#include "diag/report.h"
#include "harden/mode.h"
#include "span/shield.h"

struct hak_huge_counts hak__huge_counts;

void hak__huge_unsealed(const void *p, bool whole)
{
    hak__map_start_bound(&hak__window.map[hak__slab_of(p)], whole ? HAK_HUGE_WHOLE : HAK_HUGE_UNSEALED);
}

static size_t supers_of(size_t bytes) { return hak_div_up(bytes, HAK_SUPER_SIZE); }

/* --- guards ---------------------------------------------------------------------------------------------------------- */

/* The bytes of the guard behind a new block. Each guard starts a mapping. */
static size_t room_for_guard(void) { return hak__limit_was_crowded() ? 0 : hak__page_size(); }

static size_t run_of(size_t first, size_t bytes) { return supers_of(bytes + hak_load(&hak__supers[first].guard, HAK_RELAXED)); }

/* The `room` bytes behind the block are the last page of its run. There is no guard if that page is to stay mapped, has old pages
 * instead (never in hardened mode), or cannot be unmapped. */
static void begin_guard(size_t first, size_t bytes, size_t room)
{
    if (!hak__supers_shorten(first, supers_of(bytes + room), bytes, !hak__hardened.on)) {
        if (supers_of(bytes + room) > supers_of(bytes))
            hak__supers_give(first + supers_of(bytes), 1);
        room = 0;
    }
    hak_store(&hak__supers[first].guard, (uint32_t)room, HAK_RELAXED);
}

/* --- allocation and free ---------------------------------------------------------------------------------------------- */

static bool round_to_pages(size_t *n)
{
    size_t page = hak__page_size();
    if (*n > HAK_WINDOW_SIZE)
        return false;
    *n = hak_align_up(hak_max(*n, 1), page);
    return true;
}

/* A run for n bytes, and `room` for a guard, at a multiple of `step` SuperSlabs; HAK_NO_SUPER when the system refuses. */
static size_t take_run(size_t n, size_t room, size_t step, bool *zero)
{
    return hak__supers_take(supers_of(n + room), step, n, HAK_SUPER_HUGE, zero);
}

/* Fills a new block, whose content does not matter, with pages of emptied SuperSlabs. False: the block was lost and has been
 * returned. */
static bool fill_run(size_t first, size_t n, size_t room)
{
    if (hak__supers_fill(first, n))
        return true;
    hak__supers_trim(first, supers_of(n + room), 0);
    hak__supers_give(first, supers_of(n + room));
    return false;
}

/* The block's bytes in the run's i-th SuperSlab that may hold old data. */
static size_t old_bytes(size_t first, size_t i, size_t n)
{
    return hak_min(hak__supers[first + i].dirty, n - (i << HAK_SUPER_SHIFT));
}

/* Clears the old part of a new block, so that the caller does not touch pages that are zero already. False: all of it may be
 * old, and the caller clears it once it knows how much is wanted. */
static bool clear_part(size_t first, size_t n)
{
    size_t old = 0, count = supers_of(n);
    for (size_t i = 0; i < count; i++)
        old += old_bytes(first, i, n);
    hak_assert(old <= n, "only the block's own bytes are cleared");
    for (size_t i = 0; i < count && old < n; i++)
        memset(hak__super_start(first + i), 0, old_bytes(first, i, n));
    return old < n;
}

void *hak__huge_alloc(size_t n, size_t align, bool *zero)
{
    bool fresh;
    if (!round_to_pages(&n) || align > HAK_WINDOW_SIZE)
        return NULL;
    size_t step = hak_max(1, align >> HAK_SUPER_SHIFT), room = room_for_guard();
    size_t first = take_run(n, room, step, &fresh);
    if (first == HAK_NO_SUPER && room != 0) { /* the last mappable bytes are the program's */
        room = 0;
        first = take_run(n, room, step, &fresh);
    }
    if (zero == NULL && first != HAK_NO_SUPER && !fill_run(first, n, room))
        first = HAK_NO_SUPER;
    if (first == HAK_NO_SUPER) {
        hak__limit_deliver();
        return NULL;
    }
    if (zero != NULL)
        *zero = fresh || clear_part(first, n);
    begin_guard(first, n, room);
    hak_store(&hak__supers[first].huge_bytes, n, HAK_RELAXED);
    hak_store(&hak__supers[first].shielded, 0, HAK_RELAXED);
    hak__huge_unsealed(hak__super_start(first), false);
    hak__owner_set(first * HAK_SUPER_SLABS, hak__owner_huge());
    hak_fetch_add(&hak__huge_counts.allocated, 1, HAK_RELAXED);
    hak_fetch_add(&hak__huge_counts.live_bytes, n, HAK_RELAXED);
    hak__limit_deliver();
    return hak__super_start(first);
}

/* The SuperSlab that the block at p begins, or HAK_NO_SUPER. */
static size_t block_at(const void *p)
{
    size_t offset = (uintptr_t)p - hak__window.base;
    bool start = offset % HAK_SUPER_SIZE == 0 && hak__owner_of(p) == hak__owner_huge();
    return start ? offset >> HAK_SUPER_SHIFT : HAK_NO_SUPER;
}

size_t hak__huge_usable(const void *p)
{
    size_t first = block_at(p);
    return first == HAK_NO_SUPER ? 0 : hak_load(&hak__supers[first].huge_bytes, HAK_RELAXED);
}

/* Hardened mode: a freed block is unmapped at once, and its addresses wait until WAITING_RUNS others have been freed. A word
 * holds the first SuperSlab's number above RUN_BITS bits for their count; the exchange returns an earlier one, or 0. */
enum { WAITING_RUNS = 32, RUN_BITS = 24 };
_Static_assert(HAK_WINDOW_SUPERS < 1ull << RUN_BITS, "a number of SuperSlabs fits");

static void huge_retire(size_t *first, size_t *run)
{
    static hak_rare_data _Atomic uint64_t waiting[WAITING_RUNS], turn;
    if (hak__hardened.zero || hak__hardened.quarantine != 0) /* only addresses wait */
        hak__supers_trim(*first, *run, 0);
    if (hak__hardened.quarantine == 0)
        return;
    uint64_t mine = (uint64_t)*first << RUN_BITS | *run;
    /* acq_rel: another thread put in the word taken out, and was done with its run. */
    uint64_t other = hak_exchange(&waiting[hak_fetch_add(&turn, 1, HAK_RELAXED) % WAITING_RUNS], mine, HAK_ACQ_REL);
    *first = other >> RUN_BITS;
    *run = other & ((1u << RUN_BITS) - 1);
}

static void give_run(size_t first, size_t bytes)
{
    size_t run = run_of(first, bytes);
    hak_store(&hak__supers[first].guard, 0, HAK_RELAXED);
    hak__supers_give(first, run);
}

void hak__huge_free(void *p, const char *function)
{
    size_t first = block_at(p);
    if (first == HAK_NO_SUPER) {
        hak__misuse_invalid(function, p, "not the start of a block");
        return;
    }
    size_t bytes = hak_load(&hak__supers[first].huge_bytes, HAK_RELAXED);
    bool usable = hak__shield_lift(p);
    if (hak_exchange(&hak__window.map[first * HAK_SUPER_SLABS].owner, 0, HAK_RELAXED) != hak__owner_huge()) {
        hak__misuse_double_free(function, p, bytes);
        return;
    }
    hak_fetch_add(&hak__huge_counts.freed, 1, HAK_RELAXED);
    hak_fetch_sub(&hak__huge_counts.live_bytes, bytes, HAK_RELAXED);
    size_t run = usable ? run_of(first, bytes) : 0;
    hak_store(&hak__supers[first].guard, 0, HAK_RELAXED);
    if (hak_unlikely(hak__hardened.on))
        huge_retire(&first, &run);
    if (run != 0)
        hak__supers_give(first, run);
}

/* --- waiting runs --------------------------------------------------------------------------------------------------- */

static hak_noinline void count_without_heap(_Atomic uint64_t *count, size_t bytes)
{
    hak_fetch_add(count, 1, HAK_RELAXED);
    hak_fetch_add(&hak__huge_counts.live_bytes, bytes, HAK_RELAXED);
}

static void count_taken(struct hak_heap *heap, size_t bytes)
{
    if (hak_unlikely((heap->mode & HAK_MODE_SENTINEL) != 0)) {
        count_without_heap(&hak__huge_counts.allocated, bytes);
        return;
    }
    hak_count(&heap->counts.huge_allocated, 1);
    hak_count(&heap->counts.huge_bytes, bytes);
    hak__heap_idle_less(heap, bytes);
}

static void count_given(struct hak_heap *heap, size_t bytes)
{
    if (hak_unlikely((heap->mode & HAK_MODE_SENTINEL) != 0)) {
        count_without_heap(&hak__huge_counts.freed, 0 - bytes);
        return;
    }
    hak_count(&heap->counts.huge_freed, 1);
    hak_count(&heap->counts.huge_bytes, 0 - bytes);
    hak__heap_idle_more(heap, bytes);
}

/* The block that begins the run is unchanged: its guard, its size, its missing seal. */
void *hak__huge_alloc_quickly(struct hak_heap *heap, size_t n)
{
    size_t bytes, first = hak__waiting_take(hak__waiting_line(heap->id), n, &bytes);
    if (first == HAK_NO_SUPER)
        return NULL;
    hak__owner_set(first * HAK_SUPER_SLABS, hak__owner_huge());
    count_taken(heap, bytes);
    return hak__super_start(first);
}

bool hak__huge_free_quickly(struct hak_heap *heap, void *p)
{
    size_t offset = (uintptr_t)p - hak__window.base, first = offset >> HAK_SUPER_SHIFT;
    if (offset % HAK_SUPER_SIZE != 0 || hak_unlikely(hak__hardened.on) || hak_unlikely(hak__shield_has_huge(first)))
        return false;
    size_t bytes = hak_load(&hak__supers[first].huge_bytes, HAK_RELAXED);
    struct hak_waiting_line *line = hak__waiting_line(heap->id);
    _Atomic uint64_t *word = hak__waiting_word(line, bytes);
    if (word == NULL)
        return false;
    if (hak_exchange(&hak__window.map[first * HAK_SUPER_SLABS].owner, 0, HAK_RELAXED) != hak__owner_huge()) {
        hak__misuse_double_free("free", p, bytes);
        return true;
    }
    count_given(heap, bytes);
    if (hak_unlikely(!hak__waiting_put(word, first, bytes))) /* another thread with the same line came first */
        give_run(first, bytes);
    return true;
}

/* --- resizing ----------------------------------------------------------------------------------------------------------- */

static void account_resize(size_t first, size_t before, size_t after)
{
    hak_store(&hak__supers[first].huge_bytes, after, HAK_RELAXED);
    hak_fetch_add(&hak__huge_counts.live_bytes, after - before, HAK_RELAXED);
}

static void huge_shrink(size_t first, size_t before, size_t after, size_t run)
{
    size_t room = room_for_guard(), keep = supers_of(after + room);
    hak_store(&hak__supers[first].guard, 0, HAK_RELAXED);
    account_resize(first, before, after);
    if (run > keep && hak__hardened.on && hak__hardened.zero)
        hak__supers_trim(first + keep, run - keep, 0);
    if (run > keep)
        hak__supers_give(first + keep, run - keep);
    begin_guard(first, after, room);
}

/* Moves the pages to a run that is long enough. Maps the target first, so that no foreign mapping is replaced. */
static void *huge_move(size_t first, size_t before, size_t after, size_t run)
{
    bool zero;
    size_t room = room_for_guard(), to = take_run(after, room, 1, &zero);
    if (to == HAK_NO_SUPER)
        return NULL;
    if (!hak__supers_move(first, before, to, after)) {
        hak__supers_give(to, supers_of(after + room));
        return NULL;
    }
    hak_store(&hak__supers[to].huge_bytes, before, HAK_RELAXED);
    hak_store(&hak__supers[to].shielded, 0, HAK_RELAXED);
    account_resize(to, before, after);
    begin_guard(to, after, room);
    hak__huge_unsealed(hak__super_start(to), false);
    hak__owner_set(to * HAK_SUPER_SLABS, hak__owner_huge());
    hak__owner_set(first * HAK_SUPER_SLABS, 0);
    hak_store(&hak__supers[first].guard, 0, HAK_RELAXED);
    hak__supers_give(first, run);
    hak_fetch_add(&hak__huge_counts.moved, 1, HAK_RELAXED);
    return hak__super_start(to);
}

/* Restores the guard behind the block, whether or not it has grown. */
static void *grow_run(size_t first, size_t before, size_t n, size_t run)
{
    size_t room = room_for_guard(), roomy = hak__ahead_counts() ? n : n + n / 8;
    /* A block that grows will probably grow again: map an eighth more and touch no page of it. */
    if (round_to_pages(&roomy) && hak__supers_extend(first, run, supers_of(roomy + room), roomy)) {
        n = roomy;
    } else if (!hak__supers_extend(first, run, hak_max(run, supers_of(n + room)), n)) {
        void *q = huge_move(first, before, n, run);
        if (q == NULL) /* a part of the intended run may be mapped */
            begin_guard(first, before, hak_load(&hak__supers[first].guard, HAK_RELAXED));
        return q;
    }
    account_resize(first, before, n);
    hak_fetch_add(&hak__huge_counts.grown_in_place, 1, HAK_RELAXED);
    begin_guard(first, n, room);
    return hak__super_start(first);
}

static void *resize_run(void *p, size_t n)
{
    size_t first = block_at(p);
    if (first == HAK_NO_SUPER || !round_to_pages(&n))
        return NULL;
    size_t before = hak_load(&hak__supers[first].huge_bytes, HAK_RELAXED), run = run_of(first, before);
    if (n == before)
        return p;
    if (n > before)
        return grow_run(first, before, n, run);
    huge_shrink(first, before, n, run);
    return p;
}

void *hak__huge_resize(void *p, size_t n)
{
    void *q = resize_run(p, n);
    hak__limit_deliver();
    return q;
}
