/* jemalloc's functions for blocks, beside malloc's. A program that is linked with libjemalloc.so may call both, and free what it got from
 * one by the other, so all have to come from here. What it asks of jemalloc itself, mallctl and kin, stays there: it tells of an
 * allocator that serves nothing. */
#if HAK_OVERRIDE
#include <string.h>

#include "base/bits.h"
#include "hakmem.h"

/* The arena and the cache in the higher bits of jemalloc's flags have no meaning here. */
enum { ALIGNMENT = 63 /* its base-2 logarithm */, ZERO = 64 };

hak_export void *mallocx(size_t n, int how);
hak_export void *rallocx(void *p, size_t n, int how);
hak_export size_t xallocx(void *p, size_t n, size_t extra, int how);
hak_export size_t sallocx(const void *p, int how);
hak_export void dallocx(void *p, int how);
hak_export void sdallocx(void *p, size_t n, int how);
hak_export size_t nallocx(size_t n, int how);

static size_t alignment(int how) { return (size_t)1 << (how & ALIGNMENT); }

/* Clears all usable bytes, because rallocx takes them for cleared. */
static void *zeroed(size_t align, size_t n)
{
    char *p = hak_aligned_calloc(align, 1, n);
    size_t have = hak_usable_size(p);
    if (have > n)
        memset(p + n, 0, have - n);
    return p;
}

hak_export void *mallocx(size_t n, int how)
{
    return how & ZERO ? zeroed(alignment(how), n) : hak_aligned_alloc(alignment(how), n);
}

/* With ZERO, clears what lies behind the old block's usable bytes. */
hak_export void *rallocx(void *p, size_t n, int how)
{
    size_t before = how & ZERO ? hak_usable_size(p) : 0;
    char *q = hak_aligned_realloc(p, alignment(how), hak_max(n, (size_t)1));
    size_t now = q != NULL && how & ZERO ? hak_usable_size(q) : 0;
    if (now > before)
        memset(q + before, 0, now - before);
    return q;
}

/* Resizes nothing, which its contract allows: the caller compares the size that it is given with the one it wanted. */
hak_export size_t xallocx(void *p, size_t n, size_t extra, int how)
{
    (void)n, (void)extra, (void)how;
    return hak_usable_size(p);
}

hak_export size_t sallocx(const void *p, int how)
{
    (void)how;
    return hak_usable_size(p);
}

hak_export void dallocx(void *p, int how)
{
    (void)how;
    hak_free(p);
}

hak_export void sdallocx(void *p, size_t n, int how) { hak_free_aligned_sized(p, alignment(how), n); }

hak_export size_t nallocx(size_t n, int how)
{
    (void)how; /* an alignment gives as much, or more */
    return hak_good_size(n);
}
#endif
