/* Huge blocks. The first slab's owner word names the reserved huge owner; the exchange of that word decides which of
 * two racing frees is the second. Everything else about a block is in its first SuperSlab's descriptor. */
#include "huge/huge.h"

#include "arena/limit.h"
#include "base/assert.h"
#include "base/bits.h"
#include "diag/report.h"

struct hak_huge_counts hak__huge_counts;

static const uint32_t huge_word = HAK_HEAP_ID_HUGE << HAK_CODE_BITS;

static size_t supers_of(size_t bytes) { return hak_div_up(bytes, HAK_SUPER_SIZE); }

static bool round_to_pages(size_t *n)
{
    size_t page = hak__page_size();
    if (*n > HAK_WINDOW_SIZE)
        return false;
    *n = hak_align_up(hak_max(*n, 1), page);
    return true;
}

void *hak__huge_alloc(size_t n, size_t align, bool *zero)
{
    if (!round_to_pages(&n) || align > HAK_WINDOW_SIZE)
        return NULL;
    size_t step = hak_max(1, align >> HAK_SUPER_SHIFT);
    /* The window's base is aligned to a SuperSlab only; wider alignments are met by choosing among more of them. */
    size_t skew = (hak__window.base >> HAK_SUPER_SHIFT) % step, count = supers_of(n);
    size_t first = hak__supers_take(count + (skew ? step - 1 : 0), skew ? 1 : step, skew ? 0 : n, HAK_SUPER_HUGE, zero);
    if (first == HAK_NO_SUPER) {
        hak__limit_deliver();
        return NULL;
    }
    if (skew != 0) {
        /* Keep only the aligned part of the run, and map it. */
        size_t whole = count + step - 1, at = hak_align_up(first + skew, step) - skew;
        if (at > first)
            hak__supers_give(first, at - first);
        if (first + whole > at + count)
            hak__supers_give(at + count, first + whole - at - count);
        first = at;
        *zero = false;
        if (!hak__supers_extend(first, count, count, n)) {
            hak__supers_give(first, count);
            return NULL;
        }
        hak_store(&hak__supers[first].kind, HAK_SUPER_HUGE, HAK_RELAXED);
    }
    hak_store(&hak__supers[first].huge_bytes, n, HAK_RELAXED);
    hak__owner_set(first * HAK_SUPER_SLABS, huge_word);
    hak_fetch_add(&hak__huge_counts.live, 1, HAK_RELAXED);
    hak_fetch_add(&hak__huge_counts.allocated, 1, HAK_RELAXED);
    hak_fetch_add(&hak__huge_counts.live_bytes, n, HAK_RELAXED);
    hak__limit_deliver();
    return hak__super_start(first);
}

/* The SuperSlab that the block at p begins, or HAK_NO_SUPER. */
static size_t block_at(const void *p)
{
    size_t offset = (uintptr_t)p - hak__window.base;
    bool start = offset % HAK_SUPER_SIZE == 0 && hak__owner_of(p) == huge_word;
    return start ? offset >> HAK_SUPER_SHIFT : HAK_NO_SUPER;
}

size_t hak__huge_usable(const void *p)
{
    size_t first = block_at(p);
    return first == HAK_NO_SUPER ? 0 : hak_load(&hak__supers[first].huge_bytes, HAK_RELAXED);
}

void hak__huge_free(void *p, const char *function)
{
    size_t first = block_at(p);
    if (first == HAK_NO_SUPER)
        hak__misuse_invalid(function, p, "not the start of a block");
    size_t bytes = hak_load(&hak__supers[first].huge_bytes, HAK_RELAXED);
    if (hak_exchange(&hak__window.map[first * HAK_SUPER_SLABS].owner, 0, HAK_RELAXED) != huge_word)
        hak__misuse_double_free(function, p, bytes);
    hak_fetch_sub(&hak__huge_counts.live, 1, HAK_RELAXED);
    hak_fetch_add(&hak__huge_counts.freed, 1, HAK_RELAXED);
    hak_fetch_sub(&hak__huge_counts.live_bytes, bytes, HAK_RELAXED);
    hak__supers_give(first, supers_of(bytes));
}

static void account_resize(size_t first, size_t before, size_t after)
{
    hak_store(&hak__supers[first].huge_bytes, after, HAK_RELAXED);
    hak_fetch_add(&hak__huge_counts.live_bytes, after - before, HAK_RELAXED);
}

static void shrink(size_t first, size_t before, size_t after)
{
    size_t keep = supers_of(after), have = supers_of(before);
    account_resize(first, before, after);
    if (have > keep)
        hak__supers_give(first + keep, have - keep);
    hak__supers_trim(first, keep, after);
}

/* Moves the pages to a run that is long enough. The target is mapped first, so that nobody else's mapping is replaced. */
static void *move(size_t first, size_t before, size_t after)
{
    bool zero;
    size_t to = hak__supers_take(supers_of(after), 1, after, HAK_SUPER_HUGE, &zero);
    if (to == HAK_NO_SUPER)
        return NULL;
    if (!hak__supers_move(first, before, to, after)) {
        hak__supers_give(to, supers_of(after));
        return NULL;
    }
    hak_store(&hak__supers[to].huge_bytes, before, HAK_RELAXED);
    account_resize(to, before, after);
    hak__owner_set(to * HAK_SUPER_SLABS, huge_word);
    hak__owner_set(first * HAK_SUPER_SLABS, 0);
    hak__supers_give(first, supers_of(before));
    hak_fetch_add(&hak__huge_counts.moved, 1, HAK_RELAXED);
    return hak__super_start(to);
}

static void *resize_run(void *p, size_t n)
{
    size_t first = block_at(p);
    if (first == HAK_NO_SUPER || !round_to_pages(&n))
        return NULL;
    size_t before = hak_load(&hak__supers[first].huge_bytes, HAK_RELAXED);
    if (n <= before) {
        if (n < before)
            shrink(first, before, n);
        return p;
    }
    /* A block that grows tends to go on growing: an eighth more address space is mapped, no page of it is touched. */
    size_t roomy = n + n / 8;
    if (round_to_pages(&roomy) && hak__supers_extend(first, supers_of(before), supers_of(roomy), roomy))
        n = roomy;
    else if (!hak__supers_extend(first, supers_of(before), supers_of(n), n))
        return move(first, before, n);
    account_resize(first, before, n);
    hak_fetch_add(&hak__huge_counts.grown_in_place, 1, HAK_RELAXED);
    return p;
}

void *hak__huge_resize(void *p, size_t n)
{
    void *q = resize_run(p, n);
    hak__limit_deliver();
    return q;
}

void hak__huge_figures(struct hak_huge_figures *out)
{
    out->live = hak_load(&hak__huge_counts.live, HAK_RELAXED);
    out->live_bytes = hak_load(&hak__huge_counts.live_bytes, HAK_RELAXED);
    out->allocated = hak_load(&hak__huge_counts.allocated, HAK_RELAXED);
    out->freed = hak_load(&hak__huge_counts.freed, HAK_RELAXED);
    out->grown_in_place = hak_load(&hak__huge_counts.grown_in_place, HAK_RELAXED);
    out->moved = hak_load(&hak__huge_counts.moved, HAK_RELAXED);
}
