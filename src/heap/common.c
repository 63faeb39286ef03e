/* The common heaps belong to no thread. They serve each thread's first blocks of all classes but the large ones in a process that
 * has many: otherwise a thread that uses little would need pages for each class. Blocks that such a thread frees, beyond one or two,
 * return at once, for any other thread's next request (cache/outbox.c). Once a class has taken FIRST_BLOCKS, the thread's own spans
 * serve it. The heap's next thread gets them anew, and so does a thread for which they lasted a while (cache/tune.c).
 *
 * A thread locks a common heap as a sweeper and never waits: it tries a few, then uses its own spans. There are several because a
 * thread may be interrupted for long while it holds one. A forked child treats them as heaps of threads that do not exist. */
#include "heap/heap.h"

#include "base/assert.h"

/* FIRST_BLOCKS: the blocks of a class that a thread gets from here. TAKEN_BYTES: the bytes that one request takes. */
enum { FIRST_BLOCKS = 16, TAKEN_BYTES = 512 };

/* Several smaller blocks share a cache line. */
enum { COMMON_LEAST = 64 };

/* HEAPS_EACH: the number of heaps for each common heap. COMMON_TRIES: how many of them a thread tries. */
enum { COMMON_MAX = 32, HEAPS_EACH = 16, COMMON_TRIES = 8 };

static _Atomic uint32_t commons[COMMON_MAX]; /* ids */
static _Atomic uint32_t common_count;

bool hak__common_add(struct hak_heap *heap)
{
    uint32_t count = hak_load(&common_count, HAK_RELAXED);
    if (count == COMMON_MAX || heap->id / HEAPS_EACH <= count)
        return false;
    if (!hak_cas_strong(&common_count, &count, count + 1, HAK_RELAXED, HAK_RELAXED))
        return false;
    /* release: pairs with the acquire in enter_common; the heap is open. */
    hak_store(&commons[count], heap->id, HAK_RELEASE);
    return true;
}

void hak__common_fork_child(void)
{
    hak_store(&common_count, 0, HAK_RELAXED);
    for (uint32_t i = 0; i < COMMON_MAX; i++)
        hak_store(&commons[i], 0, HAK_RELAXED);
}

bool hak__common_exist(void) { return hak_load(&common_count, HAK_RELAXED) != 0; }

uint32_t hak__common_first(const struct hak_heap *heap, uint32_t class)
{
    bool fits = hak__classes[class].size >= COMMON_LEAST && class <= HAK_CLASS_MID_LAST;
    return fits && heap->takes_common ? FIRST_BLOCKS : 0;
}

/* Locks a free one, or returns NULL. Threads begin at different ones. The last may have no id yet. */
static struct hak_heap *enter_common(uint32_t first)
{
    uint32_t count = hak_load(&common_count, HAK_RELAXED);
    for (uint32_t i = 0; i < count && i < COMMON_TRIES; i++) {
        uint32_t id = hak_load(&commons[(first + i) % count], HAK_ACQUIRE);
        if (id != 0 && hak__enter_foreign(hak__heap_by_id(id), 1))
            return hak__heap_by_id(id);
    }
    return NULL;
}

uint32_t hak__common_take(struct hak_heap *heap, uint32_t class_index, void **out)
{
    hak_assert(heap->classes[class_index].common_left != 0, "the common heaps may still give");
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    struct hak_heap_class *class = &heap->classes[class_index];
    struct hak_heap *source = enter_common(heap->id);
    if (source == NULL)
        return 0;
    uint32_t want = (uint32_t)hak_max(1, TAKEN_BYTES / hak__classes[class_index].size);
    want = (uint32_t)hak_min(want, class->capacity);
    heap->foreign[class_index] = true; /* before the blocks become visible: a child forked in between has to know */
    uint32_t got = hak__heap_take(source, class_index, out, (uint32_t)hak_min(want, class->common_left));
    hak__heap_unlock(source);
    class->common_left = (uint8_t)(class->common_left - got);
    hak_count(&heap->counts.common_taken, got);
    return got;
}
