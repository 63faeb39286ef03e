/* realloc and reallocarray. A block keeps its place while its class fits and less than half of it is wasted; large
 * blocks grow into free neighbours and shrink by letting slabs go; huge ones grow by mapping what follows or by moving
 * their pages. Only then is anything copied. */
#include <string.h>

#include "hakmem.h"
#include "huge/huge.h"
#include "large/large.h"
#include "route.h"

static bool is_large(size_t n) { return n > HAK_MID_MAX && n <= HAK_LARGE_MAX; }

/* A new size at the old address, or for a huge block at any address without copying. NULL: it must be copied. */
static void *resize_in_place(void *p, size_t have, size_t n)
{
    if (have > HAK_LARGE_MAX)
        return n > HAK_LARGE_MAX && n <= PTRDIFF_MAX ? hak__huge_resize(p, n) : NULL;
    struct hak_heap *heap = hak__heap_current();
    bool mine = (hak__owner_of(p) ^ heap->tag) < HAK_CODE_LIMIT;
    if (!mine || !is_large(have) || !is_large(n))
        return NULL;
    hak__enter(heap);
    bool done = hak__large_resize_owner(heap, p, hak__class_of(n));
    hak__leave(heap);
    return done ? p : NULL;
}

/* Whether a block of `have` bytes stays what it is for n bytes. */
hak_inline bool keeps(size_t have, size_t n) { return n <= have && n >= have / 2; }

static hak_noinline void *realloc_slow(void *p, size_t n)
{
    if (p == NULL)
        return hak_malloc(n);
    size_t have = hak__usable(p, "realloc");
    if (n == 0) {
        hak_free(p);
        return NULL;
    }
    void *q = keeps(have, n) ? p : resize_in_place(p, have, n);
    if (q != NULL)
        return q;
    q = hak_malloc(n);
    if (q == NULL)
        return NULL;
    memcpy(q, p, have < n ? have : n);
    hak_free(p);
    return q;
}

/* The frequent case: a block of a size class that is still right. NULL has no size, and n = 0 is never kept. */
hak_export void *hak_realloc(void *p, size_t n)
{
    size_t have = hak__usable_class(p);
    return hak_likely(have != 0 && keeps(have, n) && n != 0) ? p : realloc_slow(p, n);
}

hak_export void *hak_reallocarray(void *p, size_t count, size_t size)
{
    size_t n;
    if (hak_unlikely(__builtin_mul_overflow(count, size, &n)))
        return hak__no_memory();
    return hak_realloc(p, n);
}
