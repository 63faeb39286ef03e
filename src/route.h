/* The slow halves of malloc and free: everything that is not one pop or one push. */
#ifndef HAK_ROUTE_H
#define HAK_ROUTE_H

#include "init.h"
#include "slab/hardened.h"
#include "slab/shield.h"
#include "thread.h"

/* A block for n bytes when the fast path found none; sets errno on failure. */
hak_noinline void *hak__malloc_slow(size_t n);

/* One block of a class for the calling thread, whatever its state. NULL without errno when the system refuses. */
void *hak__alloc_class(uint32_t class);

/* A block of a class above the tiny pool, of which *zero says whether its bytes are known to be 0. */
void *hak__alloc_class_zeroed(uint32_t class, bool *zero);

/* At the end of requests: a huge block has come or gone. */
void hak__tick_huge(size_t given, size_t taken);

/* --- hardened mode (hardened.c) ------------------------------------------------------------------------------------ */

/* Whether the process is hardened, which is open until the options have been read. */
hak_inline bool hak__is_hardened(void)
{
    return hak_unlikely(hak_load(&hak__hardened.open, HAK_RELAXED)) && hak__start() && hak__hardened.on;
}

/* A block for n bytes; the same at multiples of `align`, where *zero says whether its bytes are known to be 0. They set errno
 * on failure. */
hak_aside void *hak__malloc_hardened(size_t n);
hak_aside void *hak__memalign_hardened(size_t align, size_t n, bool *zero);

/* Of a block in a hardened span, whosever it is, whose slab's word is `word`. */
hak_aside void hak__free_hardened(void *p, uint32_t word);

/* Notes who frees one that is elsewhere: a huge one, or one of no bytes. */
hak_cold void hak__freed_hardened(const void *p);

/* The three frees that are not one push: into a full or closed record of the thread's own heap; of a block that is not
 * the thread's, or of what is no block (x is its slab's owner word ^ the heap's tag, `slab` the map's entry, which a build
 * without checks does not pass on); outside of the window, or NULL. */
hak_noinline void hak__free_full(void *p, size_t code, struct hak_heap *heap);
hak_noinline void hak__free_foreign(void *p, size_t x, struct hak_heap *heap, const struct hak_slab *slab);
hak_noinline void hak__free_outside(void *p);

/* A free into the thread's own heap of what is no block, or looks freed. */
hak_cold void hak__free_doubtful(void *p, size_t code, struct hak_heap *heap);

/* The size class of the block that begins at p; NULL when p is the start of none, or of one that looks freed. */
hak_inline const struct hak_class *hak__class_at(const void *p)
{
    size_t distance = (uintptr_t)p - hak__window.base, slab = distance / HAK_SLAB_SIZE;
    if (hak_unlikely(slab >= hak_read_mostly(&hak__window.slabs)))
        return NULL;
    uint32_t word = hak__owner_at(slab);
    if (hak_unlikely(word == 0 || hak__owner_code(word) >= HAK_CODE_LIMIT))   /* only spans' words and 0 have a class's code */
        return NULL;
    const struct hak_class *class = hak__class_of_code(hak__owner_code(word));
    if (HAK_PROTECT)
        return hak_likely(hak__begins_block(&hak__window.map[slab], class, p) && !hak__looks_freed(p)) ? class : NULL;
    size_t before = (size_t)hak_load(&hak__spans[slab].back, HAK_RELAXED) * HAK_SLAB_SIZE;
    struct hak_place place = hak__place_of(class->reciprocal, before + distance % HAK_SLAB_SIZE);
    return hak_likely(hak__place_is_block(place, class->reciprocal, class->blocks)) ? class : NULL;
}

/* The smallest class for n bytes whose blocks all lie at multiples of `align`, a power of two; HAK_CLASSES if there is
 * none. */
uint32_t hak__aligned_class(size_t align, size_t n);

/* --- sized frees ------------------------------------------------------------------------------------------------- */

/* Whether n bytes may have been asked for where there is a block of `have`: just those of the class, or down to half
 * of it, since realloc leaves a block that shrinks no further where it is, and gives one that grows some room. */
hak_inline bool hak__size_fits(size_t have, size_t n)
{
    return n - have / 2 <= have / 2 || (have == HAK_ALIGN && n < have);
}

/* From now on a block may be longer than its class says, because it could not become shorter. */
hak_cold void hak__allow_longer(void);

/* The rest of hak__check_size: huge blocks, aligned ones, reports. */
hak_cold void hak__check_size_slow(const void *p, size_t align, size_t n, const char *function);

#if HAK_PROTECT
/* Ends the program if the block that begins at p cannot have been asked for with n bytes and the alignment. Says nothing
 * of what is no block: the free that follows does. Class 0, which the map's word of no block seems to name, is the
 * smallest; huge blocks' words name none. */
hak_inline void hak__check_size(const void *p, size_t align, size_t n, const char *function)
{
    size_t slab = hak__slab_of(p), code = HAK_CODE_LIMIT;
    if (hak_likely(slab < hak_read_mostly(&hak__window.sized_slabs)))
        code = hak__owner_code(hak__owner_at(slab));
    if (hak_unlikely(code >= HAK_CLASSES * HAK_RECORD_SIZE || !hak__size_fits(hak__class_of_code(code)->size, n)))
        hak__check_size_slow(p, align, n, function);
}
#else
hak_inline void hak__check_size(const void *p, size_t align, size_t n, const char *function)
{
    (void)p, (void)align, (void)n, (void)function;
}
#endif

/* C++'s sized delete (free.c). */
void hak__delete_sized(void *p, size_t align, size_t n);

/* The usable bytes of any block that begins at p; aborts with a report when none does. */
size_t hak__usable(const void *p, const char *function);

/* Sets errno to ENOMEM and gives NULL. */
void *hak__no_memory(void);

#endif
