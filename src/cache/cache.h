/* The thread cache: per class a stack of ready blocks, the same for the tiny, mid and large pools. This header is the
 * fast path (pop and push); refill.c, drain.c, outbox.c and tune.c are its slow halves. The heap below does not know
 * what a stack is.
 *
 *      bottom[-1]   bottom                 top            end = bottom + capacity
 *        NULL      | oldest ... newest    | (free slots) |
 *
 * A slot is stored before `top` moves over it, so a record is valid at every instruction: a signal handler or a forked
 * child never sees a stack that contains a slot not yet written. */
#ifndef HAK_CACHE_CACHE_H
#define HAK_CACHE_CACHE_H

#include "heap/heap.h"

hak_inline struct hak_record *hak__record_at(struct hak_heap *heap, uint32_t code)
{
    return (struct hak_record *)((char *)heap->records + code);
}

/* The newest block, or NULL when the record is empty or closed. */
hak_inline void *hak__cache_pop(struct hak_record *record)
{
    void **top = record->top;
    void *block = top[-1];
    if (hak_likely(block != NULL))
        hak_owner_store(&record->top, top - 1);
    return block;
}

/* False when the record is full or closed. */
hak_inline bool hak__cache_push(struct hak_record *record, void *block)
{
    void **top = record->top;
    if (hak_unlikely(top == record->end))
        return false;
    *top = block;
    hak_owner_store(&record->top, top + 1);
    return true;
}

/* The stack that really holds the class's blocks, visible or hidden. */
hak_inline struct hak_record *hak__cache_real(struct hak_heap *heap, uint32_t class)
{
    return heap->classes[class].closed ? &heap->classes[class].hidden : &heap->records[class];
}

/* What a closed record points to: empty to a pop, full to a push. */
extern void *const hak__closed_slots[2];
#define HAK_CLOSED_TOP ((void **)(uintptr_t)&hak__closed_slots[1])

/* Gives a new heap its records, with first capacities from the options and its mode. */
void hak__cache_open(struct hak_heap *heap, uint32_t mode);

/* A block of a class whose record is empty: refills the record. NULL when the system refuses. */
void *hak__cache_refill(struct hak_heap *heap, uint32_t class);

/* Takes in a block whose record is full: makes room by growth or by draining the oldest half. */
void hak__cache_overflow(struct hak_heap *heap, uint32_t class, void *block, const char *function);

/* Gives the oldest `count` blocks of a class back to the heap. */
void hak__cache_drain(struct hak_heap *heap, uint32_t class, uint32_t count, const char *function);

/* Empties all records and the outbox. */
void hak__cache_flush(struct hak_heap *heap);

/* Blocks in the record, as far as another thread can tell. */
uint32_t hak__cache_count(struct hak_heap *heap, uint32_t class);

/* --- the outbox (outbox.c): frees of other heaps' blocks, gathered as bits of their remote words ------------------ */

hak_inline uint64_t hak__outbox_key(size_t slab, uint64_t index) { return (slab << 6 | index / 64) + 1; }
hak_inline struct hak_outbox_entry *hak__outbox_entry(struct hak_heap *heap, uint64_t key)
{
    return &heap->outbox[key * 0x9e3779b97f4a7c15ull >> 59];
}
_Static_assert(HAK_OUTBOX_ENTRIES == 32, "the hash gives five bits");

/* A block of another heap, whose owner word is `word`. True when it joined others of its word of bits that wait
 * already, which is one store; otherwise nothing has happened and hak__outbox_add_slow is to be called. */
hak_inline bool hak__outbox_add(struct hak_heap *heap, void *p, uint32_t word)
{
    const struct hak_class *class = &hak__classes[hak__owner_code(word) / HAK_RECORD_SIZE];
    struct hak_span *span = hak__span_at(hak__slab_of(p));
    size_t slab = hak__span_slab(span), bytes = heap->outbox_bytes + class->size;
    struct hak_place place = hak__place_of(class->reciprocal, (size_t)((char *)p - hak__slab_start(slab)));
    uint64_t key = hak__outbox_key(slab, place.index), bit = 1ull << place.index % 64;
    struct hak_outbox_entry *entry = hak__outbox_entry(heap, key);
    bool joins = entry->key == key && (entry->bits & bit) == 0 && bytes < HAK_OUTBOX_BYTES;
    if (hak_unlikely(!joins || !hak__place_is_block(place, class->reciprocal, class->blocks)))
        return false;
    hak_owner_store(&entry->bits, entry->bits | bit);
    heap->outbox_bytes = bytes;
    return true;
}

/* The same with everything that can come of it: a new entry, publication, a report of misuse. */
void hak__outbox_add_slow(struct hak_heap *heap, void *p, uint32_t word, const char *function);

/* The same from a thread that has no heap: published at once. */
void hak__outbox_bypass(void *p, uint32_t word, const char *function);
void hak__outbox_flush(struct hak_heap *heap, const char *function);

/* Capacities (tune.c). Growth doubles within the ceiling and the thread's budget; false when it may not. */
bool hak__cache_grow(struct hak_heap *heap, uint32_t class);

bool hak__cache_is_valid(struct hak_heap *heap);

#endif
