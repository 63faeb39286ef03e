/* A share: a hak_heap that belongs to a heap of one's own (own/own.h) instead of a thread. What this layer has to know of it:
 * the slabs that it holds count against the heap's limit, and all its spans are in one list, full ones too, so that the heap
 * can end without a look at any block. Included by heap.h; used by sources.c and own/.
 *
 * account.used = bytes of the slabs of all the heap's shares, of its huge blocks, and of its samples elsewhere;  used <= limit, unless
 * that was lowered */
#pragma once

#include "os/robust.h"
#include "span/span.h"

struct hak_heap;
struct hak_own;

struct hak_account {
    _Atomic size_t used, peak;
    _Atomic size_t limit;        /* SIZE_MAX: none */
    _Atomic uint64_t refused;    /* times that the limit has kept slabs from the heap */
};

struct hak_share {
    struct hak_account *account; /* NULL: this is a thread's heap, or a share that is of no heap just now */
    struct hak_heap *next;       /* of a share: the next of the same heap, or of those that nobody has */
    struct hak_heap *attached;   /* of a thread's heap: the shares that the thread has, by last use; of a share: the next there */
    _Atomic(struct hak_heap *) user; /* of a share: the heap of the thread that has it; NULL: none has */
    struct hak_own *standard;    /* of a thread's heap in HAK_MODE_REDIRECTED: where requests go */
    uint32_t first_span;         /* all spans of a share: the first one's slab, plus one */
    bool merged;                 /* of a share without a heap: its bins may hold blocks that are the process's now */
    struct hak_robust_thread robust; /* of a thread's heap: for the locks of regions (own/region.h) */
};

/* Counts `bytes` against the limit; false, and nothing is counted: it does not allow them. Relaxed: the figure guards nothing. */
hak_inline bool hak__account_take(struct hak_account *account, size_t bytes)
{
    size_t used = hak_load(&account->used, HAK_RELAXED);
    do {
        size_t limit = hak_load(&account->limit, HAK_RELAXED);
        if (hak_unlikely(bytes > limit || used > limit - bytes)) {
            hak_fetch_add(&account->refused, 1, HAK_RELAXED);
            return false;
        }
    } while (!hak_cas_weak(&account->used, &used, used + bytes, HAK_RELAXED, HAK_RELAXED));
    if (used + bytes > hak_load(&account->peak, HAK_RELAXED))   /* of two at once the lower may stay: it is a figure for people */
        hak_store(&account->peak, used + bytes, HAK_RELAXED);
    return true;
}

hak_inline void hak__account_give(struct hak_account *account, size_t bytes)
{
    hak_fetch_sub(&account->used, bytes, HAK_RELAXED);
}

/* A span or huge block of the slab joins or leaves a list that begins at *first. The caller holds the list's lock. */
hak_inline void hak__owned_add(uint32_t *first, size_t slab)
{
    struct hak_span *span = &hak__spans[slab];
    span->prev_owned = 0;
    span->next_owned = *first;
    if (*first != 0)
        hak__spans[*first - 1].prev_owned = (uint32_t)slab + 1;
    *first = (uint32_t)slab + 1;
}

hak_inline void hak__owned_remove(uint32_t *first, size_t slab)
{
    const struct hak_span *span = &hak__spans[slab];
    if (span->prev_owned != 0)
        hak__spans[span->prev_owned - 1].next_owned = span->next_owned;
    else
        *first = span->next_owned;
    if (span->next_owned != 0)
        hak__spans[span->next_owned - 1].prev_owned = span->prev_owned;
}

