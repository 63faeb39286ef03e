/* malloc and free of a hardened process (harden/harden.h). As in any other process, nearly all calls pop from a stack of the
 * thread's or push to one, without the heap lock; but the stack is the one behind the closed bin, and a pushed block has waited in
 * quarantine. Called by malloc_slow.c, free_slow.c, calloc.c and aligned.c. */
#include "hardened.h"

#include <errno.h>

#include "alloc.h"
#include "base/bits.h"
#include "base/forked.h"
#include "cache/quarantine.h"
#include "diag/latency.h"
#include "guard/check.h"
#include "harden/harden.h"
#include "harden/zero_size.h"
#include "late.h"
#include "profile/profile.h"
#include "request.h"
#include "sample/sample.h"
#include "trace/trace.h"
#include "upkeep/polling.h"
#include "upkeep/step.h"

enum { CALLS_PER_UPKEEP = 256 };

/* Whether the heap's hidden bins are used without its lock. */
hak_inline bool is_quick(const struct hak_heap *heap)
{
    return hak_likely((heap->mode & ~(uint32_t)(HAK_MODE_POLLING | HAK_MODE_PROFILED)) == HAK_MODE_HARDENED && hak__hardened.quick
                      && heap->quarantine != NULL);
}

/* So that a program whose calls all hit takes steps of upkeep too. */
hak_inline void count_call(struct hak_heap *heap)
{
    if (hak_unlikely(++heap->quarantine->calls % CALLS_PER_UPKEEP == 0)) {
        heap->quarantine->unwinds_left = (uint32_t)hak_min(heap->quarantine->unwinds_left + HAK_UNWINDS_MORE, HAK_UNWINDS_MOST);
        hak__upkeep_poll_now(heap);
    }
}

/* --- malloc ------------------------------------------------------------------------------------------------------------- */

static hak_noinline void *huge_hardened(size_t align, size_t n, bool *zero, uint32_t id)
{
    void *block = n > PTRDIFF_MAX - HAK_SUPER_SIZE ? NULL : hak__alloc_huge(hak__harden_huge_room(n), align, zero);
    if (block == NULL)
        return hak__no_memory();
    hak__harden_huge_seal(block, n);
    hak__trace_allocated(block, id, n);
    return block;
}

static hak_noinline void *memalign_by(size_t align, size_t n, bool *zero, uint32_t id)
{
    void *block;
    *zero = hak__hardened.zero;
    /* A default heap's blocks of no bytes are ordinary ones, which end with it. */
    if (n == 0 && align <= HAK_ALIGN && hak__request_standard() == NULL && (block = hak__zero_size_malloc()) != NULL) {
        hak__trace_allocated(block, id, n);
        return block;
    }
    if (hak_unlikely(hak__sample_on()) && align <= HAK_ALIGN
        && (block = hak__sample_malloc(hak__heap_current(), n)) != NULL)
        return block;
    uint32_t class = hak__harden_class(align, n);
    if (class >= HAK_CLASSES)
        return huge_hardened(hak_max(align, HAK_SUPER_SIZE), n, zero, id);
    block = hak__alloc_timed(class, n);
    if (hak_likely(block != NULL))
        hak__trace_allocated(block, id, n);
    return block;
}

hak_noinline void *hak__memalign_hardened(size_t align, size_t n, bool *zero)
{
    struct hak_here here = HAK_HERE(&hak__thread_word);
    return memalign_by(align, n, zero, hak__trace_take(hak__heap_current(), &here));
}

hak_noinline void *hak__malloc_hardened(size_t n)
{
    hak__fork_check();
    struct hak_heap *heap = hak__heap_current();
    struct hak_here here = HAK_HERE(&hak__thread_word);
    uint32_t id = hak__trace_take(heap, &here);
    bool zero;
    if (hak_unlikely(n - 1 >= HAK_MID_MAX - HAK_SEAL || !is_quick(heap)))
        return memalign_by(HAK_ALIGN, n, &zero, id);
    uint32_t class = hak__class_of(n + (hak__hardened.canary ? HAK_SEAL : 0));
    count_call(heap);
    void *block = heap->classes[class].capacity == 0 ? NULL : hak__cache_pop(&heap->classes[class].hidden);
    if (hak_unlikely(block == NULL))
        return memalign_by(HAK_ALIGN, n, &zero, id);
    hak__harden_begin_block(heap, block, class, n);
    hak__trace_allocated(block, id, n);
    return block;
}

/* --- free --------------------------------------------------------------------------------------------------------------- */

static hak_noinline void free_hardened_slow(void *p, uint32_t word, uint32_t id)
{
    int saved = errno;
    uint64_t started = hak__latency_begin();
    hak__harden_size(p, word, "free", NULL);
    hak__trace_freed(p, id);
    if (hak_unlikely(hak__profile_ever()))
        hak__profile_forget(p);
    struct hak_heap *heap = hak__request_enter();   /* for its quarantine, however few blocks the thread will free */
    if (hak_likely(heap != NULL)) {
        hak__harden_free(heap, p, word, "free");
        hak__heap_unlock(heap);
        hak__upkeep_poll(heap);
    } else {
        hak__free_late(p, word, "free");
    }
    hak__check_poll();
    hak__latency_end(HAK_LATENCY_FREE, started);
    errno = saved;
}

/* Long blocks, and blocks that leave the quarantine, take system calls. Every free may come to the latter, so they keep errno. */
hak_noinline void hak__free_hardened(void *p, uint32_t word)
{
    hak__fork_check();
    struct hak_heap *heap = hak__heap_current();
    struct hak_here here = HAK_HERE(&hak__thread_word);
    uint32_t class = hak__owner_class(word), id = hak__trace_take(heap, &here);
    if (hak_unlikely(!is_quick(heap) || class > HAK_CLASS_MID_LAST || !hak__harden_is_block(p, class))) {
        free_hardened_slow(p, word, id);
        return;
    }
    count_call(heap);
    hak__trace_freed(p, id);
    hak__harden_clear(heap, p, class);
    hak__quarantine_add(heap, p, word, "free");
}

void hak__freed_hardened(const void *p)
{
    struct hak_here here = HAK_HERE(&hak__thread_word);
    hak__trace_freed(p, hak__trace_take(hak__heap_current(), &here));
}
