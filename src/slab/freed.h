/* Two questions that free, realloc and malloc_usable_size ask before they use an address: does a block that has been handed out begin
 * there, and does it look freed already? A build with HAKMEM_PROTECT=OFF asks neither.
 *
 * Where blocks begin. The fraction of a block's place in its span (size/size.h) is index * excess; of an address inside
 * of a block it is larger than any of those. Fractions add up, so the map has for each slab the fraction of its start,
 * and one multiplication with the offset inside the slab and one addition give that of any address. It is below
 * `start_bound` = excess * frontier just for the starts of blocks below the frontier: those handed out at some time.
 *
 * Which blocks look freed. A freed block bears a key in its first word, a random number of this process, that malloc takes away; one that
 * another thread has freed, from the moment when its owner collects it (docs/decisions/0069).
 * A program may store the same number in a block of its own, or overwrite it: a thread that meets the key looks into the heap
 * (hak__cache_has_freed) before it reports anything, and what the key misses is found when the block is drained or collected. The
 * idea is glibc's (tcache, since 2.29). Where free blocks have lost their keys because their pages were returned to the system,
 * start_bound is 0 until all of them have been taken: then every free in the span is verified, and a block that begins with the zero
 * of a returned page is looked up as well. */
#pragma once

#include "arena/owner.h"
#include "size/size.h"

typedef uint64_t hak_key __attribute__((may_alias));

extern uint64_t hak__freed_key;

#if HAK_PROTECT

#define HAK_START_BOUND_AT offsetof(struct hak_slab, start_bound)   /* for readers outside (stats/live.c) */

hak_inline void hak__map_start_bound(struct hak_slab *slab, uint32_t start_bound) { hak_owner_store(&slab->start_bound, start_bound); }
hak_inline void hak__map_phase(struct hak_slab *slab, uint64_t phase) { hak_owner_store(&slab->phase, phase); }

/* Upkeep may set start_bound to 0, and the owner set it again, at any time; so a caller with two questions reads it once. */
hak_inline uint32_t hak__start_bound(const struct hak_slab *slab) { return hak_peek(&slab->start_bound); }

/* Whether the slab's start_bound says nothing. */
hak_inline bool hak__start_bound_is_lost(uint32_t start_bound) { return start_bound == 0; }

/* Whether a block of the class, which the slab's word has named, begins at p and has been handed out at some time. */
hak_inline bool hak__begins_below(uint32_t start_bound, const struct hak_slab *slab, const struct hak_class *class, const void *p)
{
    return (uint16_t)(uintptr_t)p * class->reciprocal + hak_read_mostly(&slab->phase) < start_bound;
}
hak_inline bool hak__begins_block(const struct hak_slab *slab, const struct hak_class *class, const void *p)
{
    return hak__begins_below(hak_read_mostly(&slab->start_bound), slab, class, p);
}

hak_inline bool hak__looks_freed(const void *p) { return *(const hak_key *)p == hak__freed_key; }
hak_inline bool hak__looks_purged(const void *p) { return *(const hak_key *)p == 0; }
hak_inline void hak__mark_freed(void *p) { *(hak_key *)p = hak__freed_key; }
hak_inline void hak__mark_live(void *p) { *(hak_key *)p = 0; }
hak_inline void hak__prefetch_mark(const void *p) { hak_prefetch_to_write(p); }   /* before a look and a mark */

#else

#define HAK_START_BOUND_AT 0   /* there is none */

hak_inline void hak__map_start_bound(struct hak_slab *slab, uint32_t start_bound) { (void)slab, (void)start_bound; }
hak_inline void hak__map_phase(struct hak_slab *slab, uint64_t phase) { (void)slab, (void)phase; }
hak_inline bool hak__begins_block(const struct hak_slab *slab, const struct hak_class *class, const void *p)
{
    (void)slab, (void)class, (void)p;
    return true;
}
hak_inline uint32_t hak__start_bound(const struct hak_slab *slab) { return (void)slab, 1; }
hak_inline bool hak__start_bound_is_lost(uint32_t start_bound) { return (void)start_bound, false; }
hak_inline bool hak__begins_below(uint32_t start_bound, const struct hak_slab *slab, const struct hak_class *class, const void *p)
{
    (void)start_bound, (void)slab, (void)class, (void)p;
    return true;
}
hak_inline bool hak__looks_freed(const void *p)
{
    (void)p;
    return false;
}
hak_inline bool hak__looks_purged(const void *p) { return (void)p, false; }
hak_inline void hak__mark_freed(void *p) { (void)p; }
hak_inline void hak__mark_live(void *p) { (void)p; }
hak_inline void hak__prefetch_mark(const void *p) { (void)p; }

#endif

_Static_assert(HAK_SLAB_SIZE == 1u << 16, "an address's low 16 bits are its offset in its slab");
