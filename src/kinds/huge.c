/* Huge blocks, malloc's and user heaps', while the process is not hardened. They are resized by mapping the memory behind them
 * or moving their pages. */
#include "huge/huge.h"

#include <errno.h>

#include "base/assert.h"
#include "base/lock.h"
#include "diag/report.h"
#include "kinds/kind.h"
#include "process/request.h"
#include "profile/profile.h"
#include "stats/stats.h"
#include "userheap/userheap.h"

/* --- free ------------------------------------------------------------------------------------------------------------------ */

hak_noinline void hak__huge_free_slow(void *p, const char *function)
{
    int saved = errno;
    uint64_t started = hak__latency_begin();
    hak__fork_check();
    if (hak_unlikely(hak__profile_ever()))
        hak__profile_forget(p);
    struct hak_uheap *own = hak__uheap_of_huge(hak__slab_of(p));
    size_t bytes = hak__huge_usable(p);
    if (hak_unlikely(own != NULL))
        hak__uheap_huge_free(own, p, function);
    else
        hak__huge_free(p, function);
    hak__poll_huge(bytes, 0);
    hak__latency_end(HAK_LATENCY_FREE, started);
    errno = saved;
}

/* Leaves a huge block's run waiting for the thread's next request, unless more is to be done. */
static void huge_free(void *p, uint32_t word, const char *function)
{
    struct hak_heap *heap = hak__heap_current();
    (void)word;
    hak_assert(!hak__hardened.on, "a hardened process has sealed ones");
    if (hak_unlikely(hak__profile_ever()) || hak_unlikely(hak__uheap_of_huge(hak__slab_of(p)) != NULL)
        || hak_unlikely((heap->mode & HAK_MODE_SHARE) != 0) || !hak__huge_free_quickly(heap, p))
        hak__huge_free_slow(p, function);
}

/* --- sizes ----------------------------------------------------------------------------------------------------------------- */

static size_t huge_usable(const void *p, const char *function)
{
    size_t usable = hak__huge_usable(p);
    return usable != 0 ? usable : hak__kind_none.usable(p, function);
}

static void huge_check_size(const void *p, size_t align, size_t n, const char *function)
{
    size_t have = hak__huge_usable(p);
    (void)align;
    if (have != 0 && n > have)
        hak__misuse_size(function, p, n, have);
}

void *hak__huge_change(void *p, size_t have, size_t n)
{
    hak_assert(n <= PTRDIFF_MAX && have <= hak__huge_usable(p), "sizes that a block can have");
    struct hak_uheap *own = hak__uheap_of_huge(hak__slab_of(p));
    void *q = hak_likely(own == NULL) ? hak__huge_resize(p, n) : hak__uheap_huge_resize(own, p, n);
    if (n < have && q != NULL)
        hak__poll_huge(have - n, 0);
    return q;
}

static void *huge_resize(void *p, size_t have, size_t n, enum hak_resize how)
{
    bool stays_huge = n > HAK_LARGE_MAX || how == HAK_RESIZE_WASTEFUL;
    return stays_huge && n <= PTRDIFF_MAX ? hak__huge_change(p, have, n) : NULL;
}

const struct hak_kind hak__kind_huge = {
    .free = huge_free,
    .usable = huge_usable,
    .check_size = huge_check_size,
    .resize = huge_resize,
    .resize_align = HAK_SUPER_SIZE,
    .lift = hak__block_lift,
    .heap = hak__uheap_of,
    .live = hak__huge_live,
    .describe = hak__huge_describe,
    .around = hak__huge_around,
};
