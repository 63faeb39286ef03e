/* Frees by threads without a heap: those that have none yet, and those that have ended theirs. Called by plain.c and harden/kinds.c. */
#include "base/assert.h"
#include "cache/large_cache.h"
#include "cache/outbox.h"
#include "diag/report.h"
#include "harden/harden.h"
#include "harden/quarantine.h"
#include "heap/heap.h"
#include "kinds/kind.h"
#include "process/thread.h"

/* Frees a block of the exit heap itself, not yet checked. */
static void late_give_back(struct hak_heap *heap, void *p, uint32_t word, const char *function)
{
    uint32_t class = hak__owner_class(word);
    hak_assert(hak__owner_id(word) == heap->id && class < HAK_CLASSES, "the exit heap's own");
    if (hak__looks_freed(p) && (hak__heap_has_free(heap, class, p) || hak__heaps_ask(heap, hak__heap_has_free, class, p, 1))) {
        hak__misuse_double_free(function, p, hak__classes[class].size);
        return;
    }
    hak__mark_freed(p);
    if (hak__is_large(class))
        hak__large_cache_push(heap, class, p, function);
    else if (!hak__cache_push(hak__heap_bin(heap, class), p))
        hak__cache_overflow(heap, class, p, function);
}

/* Caller holds the heap lock. */
static void free_by(struct hak_heap *heap, void *p, uint32_t word, const char *function)
{
    if (hak__hardened_at(hak__slab_of(p)))
        hak__harden_free(heap, p, word, function);
    else if (hak__owner_id(word) != heap->id)
        hak__outbox_add_slow(heap, p, word, function);
    else
        late_give_back(heap, p, word, function);
}

/* Counts the free as published. Leaves nothing in the heap's outbox and quarantine, since no thread comes back to it. */
void hak__free_late(void *p, uint32_t word, const char *function)
{
    struct hak_heap *heap = hak__exit_heap_lock();
    if (heap == NULL) {
        if (hak__hardened_at(hak__slab_of(p)))
            hak__harden_clear(NULL, p, hak__owner_class(word));
        hak__outbox_bypass(p, word, function);
        return;
    }
    free_by(heap, p, word, function);
    hak__quarantine_flush(heap, function);
    hak__outbox_flush(heap, function);
    hak__exit_heap_unlock();
}

void hak__free_unattached(void *p, uint32_t word, const char *function)
{
    struct hak_heap *heap = hak__thread_attach_to_free();
    if (heap == NULL || !hak__heap_lock(heap)) {
        hak__free_late(p, word, function);
        return;
    }
    free_by(heap, p, word, function);
    hak__heap_unlock(heap);
}
