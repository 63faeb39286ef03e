/* The kinds hardened, sealed and zero_size: blocks of hardened spans, with malloc in a hardened process; huge blocks; blocks of no
 * bytes. As in any process, nearly all calls pop from or
 * push to a bin of the thread without the heap lock; but the bin is the one behind the closed bin, and a pushed block has waited
 * in quarantine. Called by malloc.c and aligned.c. */
#include <errno.h>

#include "base/assert.h"
#include "base/bits.h"
#include "base/lock.h"
#include "diag/report.h"
#include "harden/harden.h"
#include "harden/quarantine.h"
#include "huge/huge.h"
#include "kinds/kind.h"
#include "process/process.h"
#include "process/request.h"
#include "profile/profile.h"
#include "span/shield.h"
#include "stats/stats.h"
#include "trace/trace.h"
#include "upkeep/upkeep.h"
#include "userheap/userheap.h"

enum { CALLS_PER_UPKEEP = 256 };

/* Whether the heap's hidden bins may be used without its lock. */
hak_inline bool is_quick(const struct hak_heap *heap)
{
    return hak_likely((heap->mode & ~(uint32_t)(HAK_MODE_POLLING | HAK_MODE_PROFILED)) == HAK_MODE_HARDENED
                      && hak_load(&hak__hardened.quick, HAK_RELAXED) && heap->quarantine != NULL);
}

/* Lets a program whose calls all hit take upkeep steps too. */
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
    hak__trace_allocated(block, TRACE_LEAST_SHIFT, id, n);
    return block;
}

static hak_noinline void *memalign_by(size_t align, size_t n, bool *zero, uint32_t id)
{
    void *block;
    *zero = hak__hardened.zero;
    /* A default heap's blocks of no bytes are ordinary ones, which end with it. */
    if (n == 0 && align <= HAK_ALIGN && hak__request_standard() == NULL && (block = hak__zero_size_malloc()) != NULL) {
        hak__trace_allocated(block, TRACE_LEAST_SHIFT, id, n);
        return block;
    }
    uint32_t class = hak__harden_class(align, n);
    if (class >= HAK_CLASSES)
        return huge_hardened(hak_max(align, HAK_SUPER_SIZE), n, zero, id);
    struct hak_uheap *standard = align > HAK_ALIGN ? hak__request_standard() : NULL;
    block = standard != NULL ? hak__uheap_alloc_class(standard, class, n, "aligned_alloc") : hak__alloc_class(class, n);
    if (hak_likely(block != NULL))
        hak__trace_allocated(block, hak__hardened.shift[class], id, n);
    return block;
}

hak_noinline void *hak__memalign_hardened(size_t align, size_t n, bool *zero)
{
    struct hak_here here = HAK_HERE(&hak__thread_word);
    return memalign_by(align, n, zero, hak__trace_take(hak__heap_mine(), &here));
}

hak_noinline void *hak__malloc_hardened(size_t n)
{
    hak__fork_check();
    struct hak_heap *heap = hak__heap_current();
    struct hak_here here = HAK_HERE(&hak__thread_word);
    uint32_t id = hak__trace_take(hak__heap_mine(), &here);
    bool zero;
    if (hak_unlikely(n - 1 >= HAK_MID_MAX - HAK_SEAL || !is_quick(heap)))
        return memalign_by(HAK_ALIGN, n, &zero, id);
    uint32_t class = hak__class_of(n + (hak__hardened.canary ? HAK_SEAL : 0));
    count_call(heap);
    void *block = heap->classes[class].capacity == 0 ? NULL : hak__cache_pop(&heap->classes[class].hidden);
    if (hak_unlikely(block == NULL))
        return memalign_by(HAK_ALIGN, n, &zero, id);
    hak_prefetch_to_write(heap->classes[class].hidden.top[-1]); /* the next one, or NULL */
    if (hak_unlikely(!hak__harden_begin_block(heap->quarantine, block, class, n)))
        return memalign_by(HAK_ALIGN, n, &zero, id);
    hak__trace_allocated(block, hak__hardened.shift[class], id, n);
    return block;
}

/* --- free --------------------------------------------------------------------------------------------------------------- */

static hak_noinline void free_hardened_slow(void *p, uint32_t word, uint32_t id)
{
    int saved = errno;
    uint64_t started = hak__latency_begin();
    if (hak__harden_size(p, word, "free", NULL) == HAK_NO_BLOCK)
        return;
    hak__trace_freed(p, hak__hardened.shift[hak__owner_class(word)], id);
    if (hak_unlikely(hak__profile_ever()))
        hak__profile_forget(p);
    struct hak_heap *heap = hak__request_enter(); /* for its quarantine, however few blocks the thread frees */
    if (hak_likely(heap != NULL)) {
        hak__harden_free(heap, p, word, "free");
        hak__heap_unlock(heap);
    } else {
        hak__free_late(p, word, "free");
    }
    hak__request_end(heap);
    hak__latency_end(HAK_LATENCY_FREE, started);
    errno = saved;
}

/* Long blocks, and blocks leaving the quarantine, take system calls. Any free may make a block leave, so it keeps errno. */
static hak_aside void hardened_free(void *p, uint32_t word, const char *function)
{
    hak_assert(hak__hardened_at(hak__slab_of(p)) && hak__names_span(word), "a block of a hardened span");
    if (hak_unlikely(hak__owner_is_own(word))) {
        hak__kind_user_heap.free(p, word, function);
        return;
    }
    if (!hak__shield_lift(p))
        return;
    hak__fork_check();
    struct hak_heap *heap = hak__heap_mine();
    struct hak_here here = HAK_HERE(&hak__thread_word);
    uint32_t class = hak__owner_class(word), id = hak__trace_take(heap, &here);
    if (hak_unlikely(!is_quick(heap) || class > HAK_CLASS_MID_LAST || !hak__harden_is_in_use(p, class))) {
        free_hardened_slow(p, word, id);
        return;
    }
    count_call(heap);
    hak__trace_freed(p, hak__hardened.shift[class], id);
    hak__harden_clear(heap->quarantine, p, class);
    hak__quarantine_add(heap, p, word, "free");
}

/* Records the call that frees a huge block, or one of no bytes. */
static hak_cold void hardened_note_freed(const void *p)
{
    struct hak_here here = HAK_HERE(&hak__thread_word);
    hak__trace_freed(p, TRACE_LEAST_SHIFT, hak__trace_take(hak__heap_mine(), &here));
}

/* --- the rest of the table ------------------------------------------------------------------------------------------------ */

static size_t hardened_usable(const void *p, const char *function)
{
    return hak__harden_size(p, hak__owner_of(p), function, "this block is free");
}

/* Only a seal knows the very size. Guards take a block's room, so an aligned request may have got a class above its own. */
static void hardened_check_size(const void *p, size_t align, size_t n, const char *function)
{
    uint32_t class = hak__owner_class(hak__owner_of(p));
    size_t have = hak__harden_asked(p, class, n);
    if (hak__hardened.canary && n != have)
        hak__misuse_size(function, p, n, have);
    if (!hak__hardened.canary && (!hak_is_power_of_two(align) || hak__harden_class(align, n) != class))
        hak__block_check_size(p, align, n, function);
}

static void *hardened_resize(void *p, size_t have, size_t n, enum hak_resize how)
{
    uint32_t class = hak__owner_class(hak__owner_of(p));
    hak_assert(class < HAK_CLASSES && have <= hak__hardened.room[class], "it has what it was asked for with");
    if (!hak__harden_resize(hak__thread_attach(), p, class, have, n, how != HAK_RESIZE_FITTING))
        return NULL;
    hak__trace_resized(p, hak__hardened.shift[class], n);
    return p;
}

static bool hardened_live(const void *p) { return hak__harden_is_live(p, hak__owner_class(hak__owner_of(p))); }

const struct hak_kind hak__kind_hardened = {
    .free = hardened_free,
    .usable = hardened_usable,
    .check_size = hardened_check_size,
    .resize = hardened_resize,
    .lift = hak__block_lift,
    .heap = hak__uheap_of,
    .live = hardened_live,
    .describe = hak__block_describe,
    .around = hak__block_start,
};

/* --- huge blocks, which end with a seal or directly at their guard --------------------------------------------------------- */

static hak_cold void sealed_free(void *p, uint32_t word, const char *function)
{
    int saved = errno;
    (void)word;
    hak_assert(hak__hardened.on, "no other process has seals");
    hak__fork_check();
    size_t n = hak__shield_lift(p) ? hak__harden_huge_size(p, function, true) : 0;
    if (n != 0 && n != HAK_NO_BLOCK)
        hardened_note_freed(p);
    if (n != HAK_NO_BLOCK)
        hak__huge_free_slow(p, function);
    errno = saved;
}

static hak_cold size_t sealed_usable(const void *p, const char *function)
{
    return hak__kind_huge.usable(p, function) == HAK_NO_BLOCK ? HAK_NO_BLOCK : hak__harden_huge_size(p, function, false);
}

static hak_cold void sealed_check_size(const void *p, size_t align, size_t n, const char *function)
{
    size_t have = hak__huge_usable(p);
    bool exact = have != 0 && hak__hardened.canary && hak__start_bound(&hak__window.map[hak__slab_of(p)]) != HAK_HUGE_UNSEALED;
    (void)align;
    if (exact)
        have = hak__harden_huge_size(p, function, false);
    if (have != 0 && (n > have || (exact && n != have)))
        hak__misuse_size(function, p, n, have);
}

/* Reseals the block after a failure that leaves it unchanged. */
static hak_cold void *sealed_resize(void *p, size_t have, size_t n, enum hak_resize how)
{
    hak_assert(have <= hak__huge_usable(p) && how <= HAK_RESIZE_ROOMY, "the bytes asked for");
    bool much_wasted = n <= HAK_LARGE_MAX && n < have / 2;
    if ((much_wasted && how == HAK_RESIZE_FITTING) || n > PTRDIFF_MAX - HAK_SUPER_SIZE)
        return NULL;
    if ((n > have || how == HAK_RESIZE_ROOMY) && hak__harden_huge_fit(p, have, n)) /* into the room from an earlier step */
        return p;
    bool sealed = hak__harden_huge_unseal(p, have);
    void *q = hak__huge_change(p, have, hak__harden_huge_room(n));
    if (q != NULL || sealed)
        hak__harden_huge_seal(q != NULL ? q : p, q != NULL ? n : have);
    return q;
}

const struct hak_kind hak__kind_sealed = {
    .free = sealed_free,
    .usable = sealed_usable,
    .check_size = sealed_check_size,
    .resize = sealed_resize,
    .resize_align = HAK_SUPER_SIZE,
    .lift = hak__block_lift,
    .heap = hak__uheap_of,
    .live = hak__huge_live,
    .describe = hak__huge_describe,
    .around = hak__huge_around,
};

/* --- blocks of no bytes ------------------------------------------------------------------------------------------------------ */

static hak_cold bool zero_size_has(const void *p) { return hak__zero_size_has(p); }

static hak_cold void zero_size_free(void *p, uint32_t word, const char *function)
{
    (void)word;
    if (hak__zero_size_free(p, function))
        hardened_note_freed(p);
}

static hak_cold size_t zero_size_usable(const void *p, const char *function)
{
    return hak__zero_size_check(p, function) ? 0 : HAK_NO_BLOCK;
}

static hak_cold void zero_size_check_size(const void *p, size_t align, size_t n, const char *function)
{
    (void)align;
    if (n != 0)
        hak__misuse_size(function, p, n, 0);
}

static hak_cold void zero_size_describe(uintptr_t address, char *text, size_t size)
{
    (void)address;
    hak__format(text, size, "in the range of blocks of no bytes, which nothing may read or write");
}

const struct hak_kind hak__kind_zero_size = {
    .has = zero_size_has,
    .free = zero_size_free,
    .usable = zero_size_usable,
    .check_size = zero_size_check_size,
    .describe = zero_size_describe,
};
