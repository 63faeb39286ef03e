/* Resizes aligned blocks: in place where the block still fits, by realloc where that keeps alignments, otherwise by a new block
 * of the same heap. realloc itself promises no more than malloc's alignment. */
#include <errno.h>
#include <string.h>

#include "arena/owner.h"
#include "base/bits.h"
#include "hakmem.h"
#include "harden/mode.h"
#include "kinds/kind.h"
#include "process/request.h"
#include "size/size.h"

/* Moves to a block of the same heap. Growth by less than an eighth gets a quarter more, unless sized frees would refuse that. */
static hak_noinline void *aligned_move(void *p, size_t align, size_t have, size_t n)
{
    hak_heap_t *heap = hak_heap_of(p);
    bool steps = n > have && n - have < have / 8 && !hak__hardened.on;
    void *q = steps ? hak_heap_aligned_alloc(heap, align, have + have / 4) : NULL;
    if (q != NULL && hak_usable_size(q) / 2 > n) {
        hak_free(q);
        q = NULL;
    }
    if (q == NULL && (q = hak_heap_aligned_alloc(heap, align, n)) == NULL)
        return NULL;
    hak__lift(p, "aligned_realloc");
    memcpy(q, p, hak_min(have, n));
    hak_free(p);
    return q;
}

/* Whether the alignment gives a request of n bytes at least `have` bytes. */
static bool is_least(size_t align, size_t have, size_t n)
{
    uint32_t class = align <= PTRDIFF_MAX ? hak__aligned_class(align, n) : HAK_CLASSES;
    return class < HAK_CLASSES && hak__classes[class].size >= have;
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
    size_t have = hak_usable_size(p);
    bool stays = hak_unlikely(hak__hardened.on) ? n == have : n <= have && (n >= have / 2 + have % 2 || is_least(align, have, n));
    return stays && (uintptr_t)p % align == 0 ? p : aligned_move(p, align, have, n);
}
