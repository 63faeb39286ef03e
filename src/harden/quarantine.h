/* Hardened mode: freed blocks wait here before reuse. One quarantine per heap; only its owner uses it, with or without the heap
 * lock. A child that another thread forks meanwhile may lose a block but never has one twice. A new block swaps with a random
 * one of QUARANTINE_MIXED; the displaced block queues until there are HAK_QUARANTINE_QUEUE or the option's bytes are exceeded.
 * Longer blocks only queue, and the last few stay whatever their size. A leaving block goes where a free would have taken it:
 * into the bin behind the closed one, or to its owner's heap. Called by contents.c, harden.c and kinds/. */
#pragma once

#include "base/assert.h"
#include "cache/cache.h"
#include "harden/mode.h"

enum { HAK_QUARANTINE_MIXED = 128, HAK_QUARANTINE_QUEUE = 512, HAK_QUARANTINE_LEAST = 4 };

enum { HAK_UNWINDS_MOST = 1024, HAK_UNWINDS_MORE = 4 }; /* the latter in 256 calls; see trace/trace.h */

struct hak_quarantine {
    uint64_t random;
    uint32_t calls; /* of malloc and free since upkeep was last polled, modulo 2^32 */
    uint32_t unwinds_left; /* stacks that the heap's calls may still unwind (trace/trace.h) */
    const void *at; /* the block that the thread is sealing or clearing now */
    size_t bytes; /* of the blocks in it */
    uint32_t first, next; /* of the queue, modulo 2^32 */
    uint32_t mixed_most; /* longer blocks only queue */
    void *mixed[HAK_QUARANTINE_MIXED];
    void *queue[HAK_QUARANTINE_QUEUE];
};

/* Opens a hardened heap's quarantine. Without memory there is none, and blocks are reused at once. */
hak_cold void hak__quarantine_open(struct hak_heap *heap);

/* While the thread seals or clears a block, the check at program exit skips it: the thread may have been interrupted there for
 * good. Returns the value to restore. NULL: the thread's heap has no quarantine, or the thread no heap. */
hak_inline const void *hak__quarantine_at(struct hak_quarantine *quarantine, const void *p)
{
    if (hak_unlikely(quarantine == NULL))
        return NULL;
    const void *before = quarantine->at;
    hak_slot_store(&quarantine->at, p);
    hak_signal_fence();
    return before;
}
hak_inline void hak__quarantine_at_end(struct hak_quarantine *quarantine, const void *before)
{
    hak_signal_fence();
    if (hak_likely(quarantine != NULL))
        hak_slot_store(&quarantine->at, before);
}

/* The rest of hak__quarantine_leave. Called by the owner, under the heap lock. */
hak_aside void hak__quarantine_let_out(struct hak_heap *heap, void *p, uint32_t word, const char *function);

hak_inline uint32_t hak__quarantine_queued(const struct hak_quarantine *quarantine) { return quarantine->next - quarantine->first; }

/* A leaving block is out of the quarantine before it is anywhere else. */
hak_inline void *hak__quarantine_first(struct hak_quarantine *quarantine)
{
    hak_assert(hak__quarantine_queued(quarantine) != 0, "a block is queued");
    void **slot = &quarantine->queue[quarantine->first % HAK_QUARANTINE_QUEUE], *p = *slot;
    hak_slot_store(slot, NULL);
    hak_owner_store(&quarantine->first, quarantine->first + 1);
    return p;
}

hak_inline uint32_t hak__quarantine_bytes(uint32_t word) { return hak__owner_sizes(word)->size; }

/* Takes a block in; returns one that has to leave, or NULL. */
hak_inline void *hak__quarantine_swap(struct hak_quarantine *quarantine, void *p, uint32_t bytes)
{
    quarantine->bytes += bytes;
    if (hak_likely(bytes <= quarantine->mixed_most)) {
        void **slot = &quarantine->mixed[hak__random_next(&quarantine->random) % HAK_QUARANTINE_MIXED], *other = *slot;
        hak_slot_store(slot, p);
        p = other;
    }
    if (hak_unlikely(p == NULL))
        return NULL;
    void **last = &quarantine->queue[quarantine->next % HAK_QUARANTINE_QUEUE], *out = NULL;
    if (hak_likely(hak__quarantine_queued(quarantine) == HAK_QUARANTINE_QUEUE)) { /* the first one's place is the next */
        out = *last;
        hak_owner_store(&quarantine->first, quarantine->first + 1);
    }
    hak_slot_store(last, p);
    hak_owner_store(&quarantine->next, quarantine->next + 1);
    return out;
}

hak_inline bool hak__quarantine_excess(const struct hak_quarantine *quarantine)
{
    return quarantine->bytes > hak__hardened.quarantine && hak__quarantine_queued(quarantine) > HAK_QUARANTINE_LEAST;
}

/* Passes a leaving block to where a free takes it. NULL: in a forked child, a block that another thread had just taken out. */
hak_inline void hak__quarantine_leave(struct hak_heap *heap, void *p, const char *function)
{
    if (hak_unlikely(p == NULL))
        return;
    uint32_t word = hak__owner_of(p), class = hak__owner_class(word);
    heap->quarantine->bytes -= hak__quarantine_bytes(word);
    bool own = hak__owner_id(word) == heap->id && heap->classes[class].capacity != 0 && !hak__is_large(class);
    if (hak_unlikely(!own || !hak__cache_push(&heap->classes[class].hidden, p)))
        hak__quarantine_let_out(heap, p, word, function);
}

/* Adds a freed, cleared block whose slab's owner word is `word`. */
hak_inline void hak__quarantine_add(struct hak_heap *heap, void *p, uint32_t word, const char *function)
{
    struct hak_quarantine *quarantine = heap->quarantine;
    if (hak_unlikely(quarantine == NULL || hak__hardened.quarantine == 0)) {
        hak__quarantine_let_out(heap, p, word, function);
        return;
    }
    p = hak__quarantine_swap(quarantine, p, hak__quarantine_bytes(word));
    if (hak_likely(p != NULL))
        hak__quarantine_leave(heap, p, function);
    while (hak_unlikely(hak__quarantine_excess(quarantine)))
        hak__quarantine_leave(heap, hak__quarantine_first(quarantine), function);
}

/* Lets all blocks leave; returns whether there were any. */
hak_cold bool hak__quarantine_flush(struct hak_heap *heap, const char *function);

hak_cold bool hak__quarantine_has(const struct hak_heap *heap, const void *p);

/* Adds the number of waiting blocks of each class to `sums`; approximate from another thread. */
hak_cold void hak__quarantine_count(struct hak_heap *heap, uint32_t *sums);
