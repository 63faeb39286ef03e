/* malloc's fast path: the class of a request, one pop. Everything else is in malloc_slow.c. */
#include "hakmem.h"
#include "malloc_slow.h"
#include "thread.h"

hak_export hak_fast_path void *hak_malloc(size_t n)
{
    uint32_t code;
    if (hak_likely(n <= HAK_TINY_MAX))
        code = hak__tiny_code[(n + HAK_ALIGN - 1) / HAK_ALIGN];
    else if (hak_likely(n <= HAK_LARGE_MAX))
        code = hak__code_above_tiny(n);
    else
        return hak__malloc_slow(n);
    void *block = hak__cache_pop(hak__record_at(hak__heap_current(), code));
    if (hak_unlikely(block == NULL))
        return hak__malloc_slow(n);
    hak__mark_live(block);
    return block;
}
