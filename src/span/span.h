/* Spans: 1 to 16 adjacent slabs of one size class, described out of line. Mechanics without policy: taking blocks by
 * their bits, giving them back, collecting what other threads have freed. Called by heap/.
 *
 * The descriptor of a span is that of its first slab; those of the other slabs only tell the distance to it, if blocks can begin
 * there. Descriptors are type-stable: their memory is never used for anything else.
 *
 *   block i is at  start + i * size,  0 <= i < blocks
 *   i >= frontier                 never handed out; its pages may never have been touched
 *   i <  frontier, free bit       in the span, ready to be taken
 *   i <  frontier, remote bit     freed by another thread, not yet collected
 *   i <  frontier, neither        allocated: in the program's hands, in a bin or in an outbox
 *
 * Invariants (hak__span_is_valid):
 *   1. free_count == bits in `free`;  summary bit w <=> free[w] != 0;  no bit at or above `frontier`
 *   2. allocated = frontier - free_count (remote bits count as allocated until they are collected)
 *   3. free & remote == 0
 * Orders: everything but `remote`, `queued`, `owner` belongs to the owner; any thread that owns a block may read `frontier` and
 * `free_count` as figures. A remote bit is set with release (the
 * freeing thread's last uses of the block come before it) and collected with acquire. */
#pragma once

#include "arena/arena.h"
#include "size/size.h"

/* --- two questions about an address ----------------------------------------------------------------------------------------
 *
 * Free, realloc and malloc_usable_size ask two questions before they use an address: does a block that has been handed out begin
 * there, and does it look freed already? A build with HAKMEM_PROTECT=OFF asks neither.
 *
 * Where blocks begin. An offset in a span times the class's multiplier, modulo 2^32, is index * step for the start of a block, and
 * for any other offset more than all of those (struct hak_class_place). Such products add up, so the map stores for each slab that of
 * its start, and one multiplication with the offset inside the slab and one addition give that of any address. It is below
 * `start_bound` = step * frontier only for the starts of blocks below the frontier: those handed out at some time.
 *
 * Which blocks look freed. A freed block bears a key in its first word, a random number of this process, which malloc removes; a
 * block freed by another thread gets it when its owner collects it (docs/decisions/0069). A program may store the same number in a
 * block of its own, or overwrite it. So a thread that meets the key looks into the heap (hak__cache_has_freed) before it reports
 * anything, and draining or collecting the block finds what the key misses. The idea is glibc's (tcache, since 2.29). If free
 * blocks have lost their keys because their pages were returned to the system, start_bound is 0 until all of them have been taken:
 * then every free in the span is verified, and a block that begins with the zero of a returned page is looked up as well. */

typedef uint64_t hak_key __attribute__((may_alias));

extern uint64_t hak__freed_key;

#if HAK_PROTECT

#define HAK_START_BOUND_AT offsetof(struct hak_slab, start_bound)   /* for readers outside (stats/live.c) */

hak_inline void hak__map_start_bound(struct hak_slab *slab, uint32_t start_bound)
{
    hak_owner_store(&slab->start_bound, start_bound);
}
hak_inline void hak__map_place(struct hak_slab *slab, uint32_t multiplier, uint32_t phase)
{
    hak_owner_store(&slab->multiplier, multiplier);
    hak_owner_store(&slab->phase, phase);
}

/* Upkeep may set start_bound to 0, and the owner set it again, at any time; so a caller with two questions reads it once. */
hak_inline uint32_t hak__start_bound(const struct hak_slab *slab) { return hak_peek(&slab->start_bound); }

/* Whether the slab's start_bound tells nothing. */
hak_inline bool hak__start_bound_is_lost(uint32_t start_bound) { return start_bound == 0; }

/* Whether a block begins at p, in a slab whose word names a class, and has been handed out at some time. */
hak_inline bool hak__begins_below(uint32_t start_bound, const struct hak_slab *slab, const void *p)
{
    uint32_t offset = (uint16_t)(uintptr_t)p;
    return offset * hak_read_mostly(&slab->multiplier) + hak_read_mostly(&slab->phase) < start_bound;
}
hak_inline bool hak__begins_block(const struct hak_slab *slab, const void *p)
{
    return hak__begins_below(hak_read_mostly(&slab->start_bound), slab, p);
}

hak_inline bool hak__looks_freed(const void *p) { return *(const hak_key *)p == hak__freed_key; }
hak_inline bool hak__looks_purged(const void *p) { return *(const hak_key *)p == 0; }
hak_inline void hak__mark_freed(void *p) { *(hak_key *)p = hak__freed_key; }
hak_inline bool hak__mark_claims(void *p) /* marks it; false: it looked freed already */
{
    return hak_exchange((_Atomic hak_key *)p, hak__freed_key, HAK_ACQ_REL) != hak__freed_key;
}
hak_inline void hak__mark_live(void *p) { *(hak_key *)p = 0; }
hak_inline void hak__prefetch_mark(const void *p) { hak_prefetch_to_write(p); } /* before a check and a mark */

#else

#define HAK_START_BOUND_AT 0   /* there is none */

hak_inline void hak__map_start_bound(struct hak_slab *slab, uint32_t start_bound) { (void)slab, (void)start_bound; }
hak_inline void hak__map_place(struct hak_slab *slab, uint32_t multiplier, uint32_t phase)
{
    (void)slab, (void)multiplier, (void)phase;
}
hak_inline bool hak__begins_block(const struct hak_slab *slab, const void *p) { return (void)slab, (void)p, true; }
hak_inline uint32_t hak__start_bound(const struct hak_slab *slab) { return (void)slab, 1; }
hak_inline bool hak__start_bound_is_lost(uint32_t start_bound) { return (void)start_bound, false; }
hak_inline bool hak__begins_below(uint32_t start_bound, const struct hak_slab *slab, const void *p)
{
    return (void)start_bound, (void)slab, (void)p, true;
}
hak_inline bool hak__looks_freed(const void *p)
{
    (void)p;
    return false;
}
hak_inline bool hak__looks_purged(const void *p) { return (void)p, false; }
hak_inline void hak__mark_freed(void *p) { (void)p; }
hak_inline bool hak__mark_claims(void *p) { return (void)p, true; }
hak_inline void hak__mark_live(void *p) { (void)p; }
hak_inline void hak__prefetch_mark(const void *p) { (void)p; }

#endif

_Static_assert(HAK_SLAB_SIZE == 1u << 16, "an address's low 16 bits are its offset in its slab");

/* --- the descriptor ------------------------------------------------------------------------------------------------------ */

enum hak_span_keys {
    HAK_SPAN_KEYS_WHOLE,
    HAK_SPAN_KEYS_LOST, /* some free blocks may have lost their keys (see above) */
    HAK_SPAN_HARDENED, /* made in hardened mode (harden/spans.h): the fast path serves none of its frees */
};

struct hak_span {
    /* the owner's line */
    uint64_t *free; /* bitmap of free blocks */
    uint64_t summary; /* which words of `free` are not 0 */
    struct hak_span *next, *prev; /* the heap's list of spans with blocks to give (heap/) */
    uint16_t class;
    uint16_t blocks;
    uint16_t frontier;
    uint16_t free_count;
    uint8_t slabs;
    uint8_t words; /* words of each bitmap */
    uint8_t fresh; /* blocks at and above the frontier are known to be zero */
    uint8_t listed; /* in the heap's list */
    uint8_t warm; /* its place in the heap's warm pool, counted from 1; 0: not there */
    uint8_t purged; /* 1 plus the pages in free blocks that went back, at most 255, unless the span changes; else 0 */
    uint8_t keys; /* enum hak_span_keys */
    uint8_t single; /* any thread that frees its only block ends it */
    uint16_t changes; /* batches of blocks taken or given, modulo 2^16 */
    uint16_t changes_seen; /* ... when upkeep last looked */
    uint32_t seen_ms; /* when upkeep first saw that number of changes, modulo 2^32 */
    uint64_t only_word; /* the bitmap of spans of at most 64 blocks */
    /* the line that other threads write */
    hak_line_aligned _Atomic uint64_t *remote; /* bitmap of blocks freed by other threads */
    struct hak_span *pending_next; /* while queued: the next on the owner's pending stack */
    _Atomic uint32_t queued; /* on some pending stack, or about to be */
    _Atomic uint32_t owner; /* heap id; 0: no span here, or one that is never queued (a single-block one, or a share's) */
    _Atomic uint64_t only_remote;
    _Atomic uint8_t shielded; /* HAK_SHIELD_*: rights of pages have changed (shield.h); any thread */
    _Atomic uint8_t back; /* of a slab with a class's word: slabs from here to the span's first */
    _Atomic uint8_t closed; /* hardened mode: a bit for each inaccessible freed block (harden/spans.h) */
    _Atomic uint8_t gate; /* ... held while a thread changes `closed`, or reads a block that may be closed */
    uint32_t reach; /* bytes mapped, in a bare SuperSlab (arena/runs.c), else HAK_REACH_ALL; the owner's */
    uint64_t random; /* hardened mode: the generator of its blocks' order; the owner's */
    uint32_t next_owned, prev_owned; /* in the list of all spans of a share (heap/state.h): slabs, plus one */
    void *account; /* of a share's span: not NULL if its frontier moves by more than a page,
                                                  * because slabs used before are resident; of a huge block: its
                                                  * user heap (userheap/userheap.c); of a slab without blocks:
                                                  * HAK_SPAN_DESTROYED if a user heap has been destroyed with it */
};

#define HAK_SPAN_DESTROYED ((void *)1)
#define HAK_SPAN_MERGED ((void *)2) /* of a hardened span: its user heap has been merged, so it ends when it is empty */

/* In any slab: rights of its own pages; in a span's first slab: of any page of the span. */
enum { HAK_SHIELD_SLAB = 1, HAK_SHIELD_SPAN = 2 };

_Static_assert(sizeof(struct hak_span) == 128, "two cache lines; HAK_SUPER_SPANS counts on it");

extern struct hak_span *hak__spans; /* indexed by slab */

hak_inline size_t hak__span_slab(const struct hak_span *span) { return (size_t)(span - hak__spans); }
hak_inline char *hak__span_start(const struct hak_span *span) { return hak__slab_start(hak__span_slab(span)); }

/* The span of a slab that has blocks of a class by the owner map. */
hak_inline struct hak_span *hak__span_at(size_t slab)
{
    struct hak_span *here = &hak__spans[slab];
    return here - hak_load(&here->back, HAK_RELAXED);
}

/* The same for any slab inside a span. When a single-block span begins, only the owner words of its inner slabs are written: these
 * lie close together, the descriptors a cache line and more apart. */
hak_cold struct hak_span *hak__span_around(size_t slab);

/* Whether a hardened span has given its memory back (harden/spans.h). */
hak_inline bool hak__span_sleeps(const struct hak_span *span) { return span->keys == HAK_SPAN_HARDENED && span->reach == 0; }

hak_inline uint32_t hak__span_allocated(const struct hak_span *span) { return span->frontier - span->free_count; }
hak_inline bool hak__span_has_blocks(const struct hak_span *span)
{
    return span->free_count != 0 || span->frontier != span->blocks;
}

/* Bytes of bitmap memory that a span of this class needs beside its descriptor; 0 if the descriptor has room. */
hak_inline size_t hak__span_bitmap_bytes(const struct hak_class *class)
{
    size_t half = hak_align_up(hak_div_up(class->blocks, 64) * 8, 64);
    return class->blocks <= 64 ? 0 : 2 * half;
}

/* Makes a span of `class` at `slab`, owned by `owner`: a heap's id, plus HAK_SPAN_OWN for a share. It has `slabs` slabs: the
 * class's number, or fewer with as many blocks as fit (for a large class then hak__class_single_slabs(), for a single block).
 * `bitmaps` has hak__span_bitmap_bytes() bytes, any content. */
#define HAK_REACH_ALL UINT32_MAX
#define HAK_SPAN_OWN (1u << (32 - HAK_CLASS_OFFSET_BITS))
struct hak_span *hak__span_create(size_t slab, uint32_t slabs, uint32_t class, uint32_t owner, void *bitmaps, bool fresh);

/* Ends a span without allocated blocks. Returns its bitmap memory (NULL if it had none). */
void *hak__span_destroy(struct hak_span *span);

/* Publishes in the map at which addresses the span's blocks begin; after its class or its slabs have changed. */
void hak__span_map_places(struct hak_span *span);

/* Free blocks may lack their keys, which were lost with their pages or never written (an inherited span): frees in this span are verified
 * until all those blocks have been taken. */
void hak__span_lose_keys(struct hak_span *span);

/* Maps at least the first `end` bytes of a span in a bare SuperSlab; false: the system refuses. */
hak_cold bool hak__span_reach(struct hak_span *span, size_t end);

/* Unmaps memory ahead of the span's frontier, in a bare SuperSlab. */
hak_cold void hak__span_retreat(struct hak_span *span);

/* A slab of the span has been noted (shield.h): all frees in the span are verified. From any thread. */
hak_cold void hak__span_shield(struct hak_span *span);

/* No slab of the span is noted any more. No thread may be noting one: the span is ending, or its only block is being freed. */
hak_cold void hak__span_unshield(struct hak_span *span);

/* Blocks of an inherited span (arena/owner.h) are freed without a key, which would copy their pages. When it next gives blocks, its
 * free blocks get keys, and it becomes a span of the present generation. */
hak_inline bool hak__span_is_inherited(const struct hak_span *span)
{
    return hak__owner_is_inherited(hak__owner_at(hak__span_slab(span)));
}

/* Gives the span to another heap; no thread may be working on it as the former owner. An inherited span stays so. */
void hak__span_change_owner(struct hak_span *span, uint32_t owner);

/* Takes up to `want` blocks: freed ones in address order, then fresh ones up to the end of the frontier's page. Stores them
 * downwards from out[want - 1], so that a bin filled this way pops ascending addresses. */
uint32_t hak__span_take(struct hak_span *span, void **out, uint32_t want);

/* One block at the frontier, or NULL: known to be zero if span->fresh. */
void *hak__span_take_fresh(struct hak_span *span);

/* The block of a new single-block span, which reaches to the span's end. */
void *hak__span_take_single(struct hak_span *span);

enum hak_span_fault { HAK_SPAN_OK, HAK_SPAN_DOUBLE_FREE, HAK_SPAN_NOT_A_BLOCK };

/* Gives the block of a single-block span back; the caller then destroys the span, since its bitmap is not updated. */
enum hak_span_fault hak__span_give_single(struct hak_span *span, const void *block);

/* The index of the block that begins at an address. HAK_SPAN_NOT_A_BLOCK if no block that can have been handed out begins there. */
enum hak_span_fault hak__span_index(const struct hak_span *span, const void *p, uint32_t *index);

/* Gives back the leading blocks of `blocks` that lie in this span. *given is their number; on a fault blocks[*given] is the
 * offender. */
enum hak_span_fault hak__span_give_owner(struct hak_span *span, void *const *blocks, uint32_t count, uint32_t *given);

/* From any thread: sets remote bits of one word. Returns those that were set before (double frees). */
uint64_t hak__span_set_remote(struct hak_span *span, uint32_t word, uint64_t bits);

/* Moves the remote bits to the free ones, marks their blocks as free unless the span is inherited, and returns their number.
 * Misuse: a bit that was free already or belongs to a block never handed out; or a block that bears the mark and is free already
 * according to `is_free`. *culprit is then the block's index. */
typedef bool hak_span_question(const struct hak_span *span, const void *block);
uint32_t hak__span_collect_owner(struct hak_span *span, hak_span_question *is_free, enum hak_span_fault *fault, uint32_t *culprit);

/* The first run of pages at or after *from, an offset in the span, that contain only blocks which are not allocated: their content
 * is not needed. Sets *from to its start and returns its bytes, 0 if there is none. */
hak_cold size_t hak__span_idle_pages(const struct hak_span *span, size_t page, size_t *from);

hak_cold bool hak__span_is_valid(const struct hak_span *span);
