/* The rare halves of quarantine.h. */
#include "harden/quarantine.h"

#include "arena/window.h"
#include "base/assert.h"
#include "cache/cache.h"
#include "os/os.h"

void hak__quarantine_open(struct hak_heap *heap)
{
    hak_assert(heap->quarantine == NULL, "a heap has one quarantine");
    struct hak_quarantine *quarantine = hak__meta_alloc(sizeof *quarantine);
    if (quarantine == NULL)
        return;
    quarantine->unwinds_left = HAK_UNWINDS_MOST;
    quarantine->random = hak__os->random();
    quarantine->mixed_most = (uint32_t)(hak__hardened.quarantine / (2 * HAK_QUARANTINE_MIXED));
    hak_owner_store(&heap->quarantine, quarantine);
}

/* Caller may hold the heap lock. */
void hak__quarantine_let_out(struct hak_heap *heap, void *p, uint32_t word, const char *function)
{
    uint32_t class = hak__owner_class(word);
    bool mine = hak__owner_id(word) == heap->id, inside = hak__lock_word_is_mine(&heap->lock);
    if (!mine && hak__outbox_add(heap, p))
        return;
    if (!inside && !hak__heap_lock(heap))
        return; /* a forked child that had to abandon the heap never reuses its blocks */
    if (!mine)
        hak__outbox_add_slow(heap, p, word, function);
    else if (hak__is_large(class) || hak_unlikely((heap->mode & HAK_MODE_HARDENED) == 0)) /* the heap's bins are open */
        hak__heap_give(heap, &p, 1, function);
    else if (heap->classes[class].capacity == 0 || !hak__cache_push(hak__heap_bin(heap, class), p))
        hak__cache_overflow(heap, class, p, function);
    if (!inside)
        hak__heap_unlock(heap);
}

bool hak__quarantine_flush(struct hak_heap *heap, const char *function)
{
    struct hak_quarantine *quarantine = heap->quarantine;
    bool any = false;
    for (uint32_t i = 0; quarantine != NULL && i < HAK_QUARANTINE_MIXED; i++) {
        void *p = quarantine->mixed[i];
        hak_slot_store(&quarantine->mixed[i], NULL);
        any |= p != NULL;
        if (p != NULL)
            hak__quarantine_leave(heap, p, function);
    }
    for (; quarantine != NULL && hak__quarantine_queued(quarantine) != 0; any = true)
        hak__quarantine_leave(heap, hak__quarantine_first(quarantine), function);
    return any;
}

/* Calls back for the block in every slot, NULL included. */
hak_inline bool look_through(const struct hak_heap *heap, bool look(void *argument, const void *p), void *argument)
{
    struct hak_quarantine *quarantine = hak_peek(&heap->quarantine);
    bool found = false;
    for (uint32_t i = 0; quarantine != NULL && i < HAK_QUARANTINE_MIXED && !found; i++)
        found = look(argument, hak_peek(&quarantine->mixed[i]));
    for (uint32_t i = 0; quarantine != NULL && i < HAK_QUARANTINE_QUEUE && !found; i++)
        found = look(argument, hak_peek(&quarantine->queue[i]));
    return found;
}

static bool is_this(void *argument, const void *p) { return p == argument; }

bool hak__quarantine_has(const struct hak_heap *heap, const void *p) { return look_through(heap, is_this, (void *)(uintptr_t)p); }

static bool count_one(void *argument, const void *p)
{
    uint32_t *sums = argument, class = p == NULL ? HAK_CLASSES : hak__owner_class(hak__owner_of(p));
    if (class < HAK_CLASSES)
        sums[class]++;
    return false;
}

void hak__quarantine_count(struct hak_heap *heap, uint32_t *sums) { look_through(heap, count_one, sums); }
