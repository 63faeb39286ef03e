/* Aligned requests. Spans begin at slab boundaries, so a class whose size is a multiple of the alignment has aligned blocks; up
 * to a slab such a class is at most one doubling away. Wider alignments are huge. */
#include <errno.h>
#include <string.h>

#include "arena/owner.h"
#include "base/bits.h"
#include "cache/cache.h"
#include "diag/report.h"
#include "hakmem.h"
#include "harden/mode.h"
#include "kinds/kind.h"
#include "os/os.h"
#include "process/process.h"
#include "process/request.h"
#include "profile/profile.h"
#include "size/size.h"
#include "span/shield.h"

/* Where blocks are sampled: a sample is as long as the request, not as its class. */
static hak_cold void *aligned_counted(size_t align, size_t n, uint32_t class)
{
    bool in_place = class >= HAK_CLASS_FIRST_LARGE;
    void *block = in_place ? NULL : hak__request_sample(NULL, align, n);
    if (block != NULL)
        return block;
    block = in_place ? NULL : hak__cache_pop(&hak__heap_current()->bins[class]);
    if (block != NULL) {
        hak__mark_live(block);
        return block;
    }
    block = class < HAK_CLASSES ? hak__alloc_class(class, hak__classes[class].size) : hak__alloc_huge(n, align, NULL);
    if (in_place)
        hak__request_note(block, n);
    return hak__shield_note_aligned(block, align, n);
}

static hak_cold void *aligned_hardened(size_t align, size_t n)
{
    bool zero, in_place = hak__aligned_class(align, n) >= HAK_CLASS_FIRST_LARGE;
    void *block = in_place ? NULL : hak__request_sample(NULL, align, n);
    if (block == NULL)
        block = hak__memalign_hardened(align, n, &zero);
    if (in_place)
        hak__request_note(block, n);
    return hak__shield_note_aligned(block, align, n);
}

static hak_noinline void *aligned_slow(size_t align, size_t n)
{
    if (align <= HAK_ALIGN)
        return hak_malloc(n);
    if (hak_unlikely(n > PTRDIFF_MAX || align > PTRDIFF_MAX))
        return hak__no_memory();
    if (hak_unlikely(!hak__has_started()) && hak__os_aside() != NULL)
        return hak__os_aside()->memalign(align, n);
    if (hak_unlikely(hak__is_hardened()))
        return aligned_hardened(align, n);
    uint32_t class = hak__aligned_class(align, n);
    if (hak_unlikely(hak_load(&hak__hardened.open, HAK_RELAXED)))
        return aligned_counted(align, n, class);
    if (class >= HAK_CLASSES)
        return hak__shield_note_aligned(hak__alloc_huge(n, align, NULL), align, n);
    /* Of large blocks only this class: malloc may use the next classes too, but their blocks need not have this alignment, and
     * are larger than a sized free expects for it. */
    size_t size = hak__classes[class].size;
    return hak__is_large(class) ? hak__shield_note_aligned(hak__alloc_class(class, size), align, n) : hak_malloc(size);
}

hak_inline void *aligned_by(size_t align, size_t n)
{
    void *block = hak__aligned_pop(align, n);
    return hak_likely(block != NULL) ? block : aligned_slow(align, n);
}

hak_export void *hak_aligned_alloc(size_t align, size_t n)
{
    return hak_likely(hak_is_power_of_two(align)) ? aligned_by(align, n) : hak__fail(EINVAL);
}

/* Does not clear memory known to be zero, like calloc (malloc.c). */
hak_export void *hak_aligned_calloc(size_t align, size_t count, size_t size)
{
    size_t n;
    bool zero = false;
    if (hak_unlikely(!hak_is_power_of_two(align)))
        return hak__fail(EINVAL);
    if (hak_unlikely(__builtin_mul_overflow(count, size, &n)))
        return hak__no_memory();
    if (align <= HAK_ALIGN)
        return hak_calloc(1, n);
    if (n <= HAK_MID_MAX || n > PTRDIFF_MAX || align > PTRDIFF_MAX || hak__is_hardened() || hak__profile_counts()) {
        void *block = aligned_by(align, n);
        return block != NULL ? memset(block, 0, n) : NULL;
    }
    uint32_t class = hak__aligned_class(align, n);
    void *block = class < HAK_CLASSES ? hak__alloc_class_zeroed(class, &zero) : hak__alloc_huge(n, align, &zero);
    hak__shield_note_aligned(block, align, n);
    return zero || block == NULL ? block : memset(block, 0, n);
}

/* Rounds an alignment up to a power of two. */
static hak_noinline void *memalign_odd(size_t align, size_t n)
{
    if (hak_unlikely(align > (size_t)PTRDIFF_MAX + 1)) /* as the C library does: no power of two is that large */
        return hak__fail(EINVAL);
    size_t power = HAK_ALIGN;
    while (power < align)
        power *= 2;
    return aligned_slow(power, n);
}

hak_export void *hak_memalign(size_t align, size_t n)
{
    return hak_likely(hak_is_power_of_two(align)) ? aligned_by(align, n) : memalign_odd(align, n);
}

/* Sets errno to ENOMEM too, as the C library does, but not for a bad alignment. */
static hak_noinline int posix_memalign_slow(void **out, size_t align, size_t n)
{
    int saved = errno;
    void *block = aligned_slow(align, n);
    if (block == NULL)
        return ENOMEM;
    errno = saved;
    *out = block;
    return 0;
}

hak_export int hak_posix_memalign(void **out, size_t align, size_t n)
{
    if (hak_unlikely(!hak_is_power_of_two(align) || align % sizeof(void *) != 0))
        return EINVAL;
    void *block = hak__aligned_pop(align, n);
    if (hak_unlikely(block == NULL))
        return posix_memalign_slow(out, align, n);
    *out = block;
    return 0;
}

hak_export void *hak_valloc(size_t n) { return aligned_by(hak__page_size(), n); }

hak_export void *hak_pvalloc(size_t n)
{
    size_t page = hak__page_size();
    if (hak_unlikely(n > PTRDIFF_MAX - page))
        return hak__no_memory();
    return aligned_by(page, hak_align_up(n == 0 ? 1 : n, page));
}

/* --- resizing ---------------------------------------------------------------------------------------------------------------
 *
 * In place where the block still fits, by realloc where that keeps alignments, otherwise by a new block of the same heap. realloc
 * itself promises no more than malloc's alignment. */

/* Moves to a block of the same heap. Growth by less than an eighth gets a quarter more, unless sized frees would refuse that. */
static hak_noinline void *aligned_move(void *p, size_t align, size_t have, size_t n)
{
    int saved = errno;
    hak_heap_t *heap = hak_heap_of(p);
    bool steps = n > have && n - have < have / 8 && !hak__hardened.on;
    void *q = steps ? hak_heap_aligned_alloc(heap, align, have + have / 4) : NULL;
    if (q != NULL && hak_usable_size(q) / 2 > n) {
        hak_free(q);
        q = NULL;
    }
    hak__lift(p, "aligned_realloc");
    if (q == NULL && (q = hak_heap_aligned_alloc(heap, align, n)) == NULL) {
        if (n > have || (uintptr_t)p % align != 0)
            return NULL;
        errno = saved;
        return hak__stay_longer(p, have, n);
    }
    memcpy(q, p, hak_min(have, n));
    hak_free(p);
    return q;
}

/* Whether the alignment gives a request of n bytes just `have` bytes, as a sized free will expect. */
static bool gives_just(size_t align, size_t have, size_t n)
{
    uint32_t class = align <= PTRDIFF_MAX ? hak__aligned_class(align, n) : HAK_CLASSES;
    return class < HAK_CLASSES && hak__classes[class].size == have;
}

/* Whether realloc keeps the alignment of a block that keeps its kind. */
static bool realloc_aligns(const void *p, size_t align, size_t n)
{
    return n > HAK_LARGE_MAX && align <= hak__kind_at(p)->resize_align;
}

hak_export void *hak_aligned_realloc(void *p, size_t align, size_t n)
{
    if (hak_unlikely(!hak_is_power_of_two(align)))
        return hak__fail(EINVAL);
    if (p == NULL)
        return hak_aligned_alloc(align, n);
    if (align <= HAK_ALIGN || n == 0 || realloc_aligns(p, align, n))
        return hak_realloc(p, n);
    const struct hak_class *class = hak__class_at(p);
    size_t have = hak_likely(class != NULL) ? class->size : hak__usable(p, "aligned_realloc");
    if (hak_unlikely(have == HAK_NO_BLOCK))
        return hak__fail(EINVAL);
    bool stays = hak_unlikely(hak__hardened.on) ? n == have : n <= have && (n >= have / 2 + have % 2 || gives_just(align, have, n));
    return stays && (uintptr_t)p % align == 0 ? p : aligned_move(p, align, have, n);
}
