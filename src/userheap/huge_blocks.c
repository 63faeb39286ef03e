/* Huge blocks of user heaps: ordinary huge blocks (huge/huge.h), whose first slab's descriptor names the heap and links its
 * list. The heap's lock covers the list; a block is in it exactly while it is in use. */
#include "base/assert.h"
#include "diag/report.h"
#include "huge/huge.h"
#include "userheap/userheap.h"

static size_t huge_bytes(const void *p) { return hak__huge_usable(p); }

/* The run's pages mapped for n bytes, as far as known beforehand. */
static size_t huge_wanted(size_t n) { return n > PTRDIFF_MAX ? n : hak_align_up(hak_max(n, 1), hak__page_size()); }

static void own_huge_count(struct hak_uheap *own, size_t bytes, bool came)
{
    hak_fetch_add(&own->huge_bytes, came ? bytes : 0 - bytes, HAK_RELAXED);
    hak_fetch_add(&own->huge_count, came ? 1 : (uint64_t)-1, HAK_RELAXED);
}

/* The caller holds own's lock, here and below. */
static void huge_link(struct hak_uheap *own, const void *p)
{
    size_t slab = hak__slab_of(p);
    hak_assert(hak__spans[slab].account == NULL || hak__spans[slab].account == HAK_SPAN_DESTROYED,
               "a new huge block is no heap's yet");
    hak_owner_store(&hak__spans[slab].account, own);
    hak__owned_add(&own->first_huge, slab);
    own_huge_count(own, huge_bytes(p), true);
}

static void huge_unlink(struct hak_uheap *own, size_t slab)
{
    own_huge_count(own, huge_bytes(hak__slab_start(slab)), false);
    hak__owned_remove(&own->first_huge, slab);
    hak_owner_store(&hak__spans[slab].account, NULL); /* a free that races with a merge may read it */
}

void *hak__uheap_huge_alloc(struct hak_uheap *own, size_t n, size_t align, bool *zero)
{
    size_t want = huge_wanted(n);
    if (!hak__account_take(&own->account, want))
        return NULL;
    void *block = hak__huge_alloc(n, align, zero);
    if (block == NULL) {
        hak__account_give(&own->account, want);
        return NULL;
    }
    hak__lock_acquire(&own->lock);
    huge_link(own, block);
    hak__lock_release(&own->lock);
    return block;
}

/* Removes the block from the heap; with `give` its account gets the bytes back at once: after the unlock the heap may have been
 * merged, ended and restarted. Of two racing frees, the second finds the block off the list, or its word gone (huge.c). */
static void huge_claim(struct hak_uheap *own, void *p, bool give)
{
    size_t slab = hak__slab_of(p);
    hak__lock_acquire(&own->lock);
    if (hak__spans[slab].account == own && p == hak__slab_start(slab)) {
        hak__account_give(&own->account, give ? huge_bytes(p) : 0);
        huge_unlink(own, slab);
    }
    hak__lock_release(&own->lock);
}

void hak__uheap_huge_free(struct hak_uheap *own, void *p, const char *function)
{
    huge_claim(own, p, true);
    hak__huge_free(p, function);
}

/* The block is in no list while it moves: no other thread may end the heap or use the block meanwhile. */
void *hak__uheap_huge_resize(struct hak_uheap *own, void *p, size_t n)
{
    size_t want = huge_wanted(n);
    if (want > huge_bytes(p) && !hak__account_take(&own->account, want - huge_bytes(p)))
        return NULL;
    size_t taken = hak_max(want, huge_bytes(p));
    huge_claim(own, p, false);
    void *q = hak__huge_resize(p, n);
    hak__lock_acquire(&own->lock);
    huge_link(own, q != NULL ? q : p);
    hak__lock_release(&own->lock);
    size_t after = huge_bytes(q != NULL ? q : p);
    if (after < taken)
        hak__account_give(&own->account, taken - after);
    else /* room to grow stays the block's, even beyond the limit */
        hak_fetch_add(&own->account.used, after - taken, HAK_RELAXED);
    return q;
}

void hak__uheap_huge_end_all(struct hak_uheap *own, bool keep)
{
    while (own->first_huge != 0) {
        size_t slab = own->first_huge - 1;
        void *block = hak__slab_start(slab);
        hak__account_give(&own->account, huge_bytes(block));
        huge_unlink(own, slab);
        if (!keep)
            hak__huge_free(block, "hak_heap_destroy");
    }
}
