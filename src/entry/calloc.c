/* calloc does not clear memory known to be zero. It simply clears tiny blocks. A larger block that was used before is cleared
 * too, because that costs less than the first touch of fresh pages (docs/decisions/0002); of a huge one only the SuperSlabs that
 * were used before (huge/huge.c). */
#include <string.h>

#include "hakmem.h"
#include "kinds/kind.h"
#include "process/request.h"
#include "process/start.h"
#include "profile/profile.h"

static hak_noinline void *calloc_above_tiny(size_t n)
{
    bool zero = false;
    void *block = NULL;
    if (hak_unlikely(hak_load(&hak__hardened.open, HAK_RELAXED))) {
        if (n <= HAK_MID_MAX && (block = hak__request_sample(NULL, HAK_ALIGN, n)) != NULL)
            return memset(block, 0, n);
        if (hak__is_hardened()) {
            block = hak__memalign_hardened(HAK_ALIGN, n, &zero);
            if (n > HAK_MID_MAX)
                hak__request_note(block, n);
            return block == NULL || zero ? block : memset(block, 0, n);
        }
    }
    if (n <= HAK_LARGE_MAX)
        block = hak__alloc_class_zeroed(hak__class_above_tiny(n), &zero);
    else
        block = hak__alloc_huge(n, HAK_SUPER_SIZE, &zero);
    if (hak_unlikely(hak__profile_counts()) && n > HAK_MID_MAX)
        hak__request_note(block, n);
    return zero || block == NULL ? block : memset(block, 0, n);
}

hak_export void *hak_calloc(size_t count, size_t size)
{
    size_t n;
    if (hak_unlikely(__builtin_mul_overflow(count, size, &n)))
        return hak__no_memory();
    if (hak_unlikely(n > HAK_TINY_MAX))
        return calloc_above_tiny(n);
    void *block = hak_malloc(n);
    return hak_likely(block != NULL) ? memset(block, 0, n) : NULL;
}
