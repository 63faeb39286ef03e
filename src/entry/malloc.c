/* malloc's fast path: the class of a request, one pop (pop.h). Everything else is in malloc_slow.c. */
#include "entry/pop.h"
#include "hakmem.h"

hak_export hak_fast_path void *hak_malloc(size_t n)
{
    void *block = hak__pop(n);
    return hak_likely(block != NULL) ? block : hak__malloc_slow(n);
}
