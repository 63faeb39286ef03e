/* Kinds of block. Every address is of one kind, and a kind is one file with one table of functions: what free, realloc,
 * malloc_usable_size, sized frees, hak_heap_of and the crash report do with such an address. They ask hak__kind_of and call.
 *
 *   the owner map's word                     kind         file
 *   a thread's heap and a class              plain        plain.c      up to the mid pool
 *                                            large        plain.c      above it
 *   a share and a class                      user_heap    user_heap.c  of a heap that the program has made
 *   ... a chunk of a bump heap               bump         bump.c
 *   either, of a hardened span               hardened     harden/kinds.c
 *   a huge block                             huge         huge.c
 *   ... of a hardened process                sealed       harden/kinds.c
 *   anything else                            none         kind.c       no block begins there
 *   0: the first of HAK_KINDS_BESIDE, libhakmem-region's and HAK_KINDS_LAST that has the address
 *
 * To add a kind, write its file and its row: in hak__kind_of if the word identifies it, else in HAK_KINDS_BESIDE
 * (tests/unit/test_kind.c adds one). Nothing else asks what an address is. */
#pragma once

#include "harden/mode.h"
#include "userheap/bump.h"

struct hak_heap;
struct hak_uheap;
enum hak_resize {
    HAK_RESIZE_FITTING, /* unless too much would be wasted */
    HAK_RESIZE_WASTEFUL, /* no memory is left for another block */
    HAK_RESIZE_ROOMY, /* the block was just made longer than n bytes, and keeps that room */
};

/* `free` and `usable` are required, and `has` beside the owner map; the others may be NULL. sampled.c is a whole example.
 * Functions that take any address of the kind report a misuse (diag/report.h) and do nothing unless a block in use begins there,
 * except `heap` and `describe`. Then `usable` returns HAK_NO_BLOCK, for which realloc gives NULL with EINVAL. */
struct hak_kind {
    bool (*has)(const void *p); /* of the kinds beside the owner map */

    /* `word` is what the owner map had; a block that has changed hands since is freed as what it is now. */
    void (*free)(void *p, uint32_t word, const char *function);
    size_t (*usable)(const void *p, const char *function);

    /* Checks that n bytes at a multiple of `align` may have been requested. Does nothing if NULL or p is no block: the following
     * free judges. */
    void (*check_size)(const void *p, size_t align, size_t n, const char *function);

    void *(*realloc)(void *p, size_t n); /* the whole of realloc; NULL: by the rest of the table */
    bool (*stays)(const void *p, size_t have, size_t n); /* whether its size already fits; NULL: if at most half is wasted */

    /* Resizes in place, or a huge block without copying. NULL, also as a result: copy. */
    void *(*resize)(void *p, size_t have, size_t n, enum hak_resize how);
    size_t resize_align; /* the alignment that a resize keeps wherever it moves the block; 0: none is promised */
    void (*lift)(const void *p, const char *function); /* before a read: the program may have revoked access to the block's pages */

    /* The user heap of the block in use at p, or NULL. `live`: whether a block in use begins at p; reports nothing. `sparse`: whether one in
     * use is worth moving (hak_is_sparse); NULL: none of the kind is. */
    struct hak_uheap *(*heap)(const void *p);
    bool (*live)(const void *p);
    bool (*sparse)(const void *p, uint32_t percent);

    /* Take any address of the kind, even inside a block or outside all, in a signal handler: they take no lock and write only
     * `text`. around: the start of the block that holds the address. NULL: unknown. */
    void (*describe)(uintptr_t address, char *text, size_t size);
    const void *(*around)(uintptr_t address);
};

#define HAK_KINDS_OF_WORDS(X) X(plain) X(large) X(user_heap) X(bump) X(hardened) X(huge) X(sealed)
#if !defined(HAK_KINDS_MORE)
#define HAK_KINDS_MORE(X)   /* a test's */
#endif
#define HAK_KINDS_BESIDE(X) HAK_KINDS_MORE(X) X(sampled) X(zero_size)
#define HAK_KINDS_LAST(X) X(foreign) X(none)

#define X(name) extern const struct hak_kind hak__kind_##name;
HAK_KINDS_OF_WORDS(X)
HAK_KINDS_BESIDE(X)
HAK_KINDS_LAST(X)
#undef X

/* Whether the owner map's word names a span. */
hak_inline bool hak__names_span(uint32_t word) { return hak__owner_id(word) != 0 && hak__owner_has_class(word); }

/* For an address whose slab's word names neither a span nor a huge block. */
hak_cold const struct hak_kind *hak__kind_beside(const void *p, uint32_t word);

/* The kind of an address whose slab has this word. */
hak_inline const struct hak_kind *hak__kind_of(const void *p, uint32_t word)
{
    if (word == hak__owner_huge())
        return hak_unlikely(hak__hardened.on) ? &hak__kind_sealed : &hak__kind_huge;
    if (hak_unlikely(!hak__names_span(word)))
        return hak__kind_beside(p, word);
    if (hak_unlikely(hak__hardened_at(hak__slab_of(p))))
        return &hak__kind_hardened;
    if (hak__owner_is_own(word))
        return hak__owner_class(word) == HAK_BUMP_CLASS && hak__bump_is(word) ? &hak__kind_bump : &hak__kind_user_heap;
    return hak__owner_class(word) >= HAK_CLASS_FIRST_LARGE ? &hak__kind_large : &hak__kind_plain;
}
hak_inline const struct hak_kind *hak__kind_at(const void *p) { return hak__kind_of(p, hak__owner_of(p)); }

/* --- questions about any address ----------------------------------------------------------------------------------------- */

hak_inline size_t hak__usable(const void *p, const char *function) { return hak__kind_at(p)->usable(p, function); }

/* The user heap of the program's block; NULL: it is malloc's. */
hak_inline struct hak_uheap *hak__heap_of_block(const void *p)
{
    const struct hak_kind *kind = hak__kind_at(p);
    return kind->heap == NULL ? NULL : kind->heap(p);
}

hak_inline void hak__lift(const void *p, const char *function)
{
    const struct hak_kind *kind = hak__kind_at(p);
    if (kind->lift != NULL)
        kind->lift(p, function);
}

/* For any address, even NULL or foreign: its description in the crash report, and the start of the block around it; NULL:
 * unknown. */
hak_cold void hak__describe(uintptr_t address, char *text, size_t size);
hak_cold const void *hak__block_around(uintptr_t address);

hak_at_start void hak__crash_init(void); /* installs the crash report's handlers (kind.c) */
hak_at_start void hak__canary_begin(void); /* lets misuse be survived, if the option says so (canary.c) */
extern uintptr_t hak__canary_break; /* the end of the program's data then; the C library's malloc begins there */

/* --- free (plain.c) -------------------------------------------------------------------------------------------------------- */

/* The slow half of free.c's decision table. `owner_diff` is the slab's owner word ^ heap->tag; `class_offset` is one that is a
 * class offset. */
void hak__free_full(void *p, size_t class_offset, struct hak_heap *heap);
void hak__free_verify(void *p, size_t class_offset, struct hak_heap *heap);
void hak__free_foreign(void *p, size_t owner_diff, struct hak_heap *heap, const struct hak_slab *slab);
void hak__free_outside(void *p);

/* Frees a block of a thread's span that the fast path did not take for one in use. */
hak_noinline void hak__free_block(void *p, uint32_t word, const char *function);

/* Frees by threads without a heap (block.c): unattached, of another heap's block; late, of any span's block by the shared exit
 * heap, where the caller has checked a hardened block. */
void hak__free_unattached(void *p, uint32_t word, const char *function);
hak_cold void hak__free_late(void *p, uint32_t word, const char *function);

/* --- blocks of spans (block.c) ------------------------------------------------------------------------------------------- */

/* Reports p, an address in a span, and returns false unless a block in use begins there. The program itself may have stored the key
 * of freed blocks there, so the heap's own state decides. `why_freed`: the message for a free block; NULL: a double free. */
hak_cold bool hak__check_block(const void *p, uint32_t word, const char *function, const char *why_freed);

/* Shared by the kinds plain, large and user_heap; the last two are hardened's too. hak__block_sparse: not large; `receiver` is the heap
 * from which the calling thread would have a copy. */
hak_cold size_t hak__block_usable(const void *p, const char *function);
hak_cold void hak__block_check_size(const void *p, size_t align, size_t n, const char *function);
hak_cold bool hak__block_live(const void *p);
hak_cold bool hak__block_sparse(struct hak_heap *receiver, const void *p, uint32_t percent);
void hak__block_lift(const void *p, const char *function);
hak_cold void hak__block_describe(uintptr_t address, char *text, size_t size);
hak_cold const void *hak__block_start(uintptr_t address);

/* Whether a sized free may name n bytes for a block of the class; the second reports it if not. */
hak_cold bool hak__class_has_size(uint32_t class, size_t align, size_t n);
hak_cold void hak__check_class_size(const void *p, uint32_t class, size_t align, size_t n, const char *function);

/* --- several kinds --------------------------------------------------------------------------------------------------------- */

/* Frees a block in a slab that has, or just had, a user heap's word (user_heap.c). False: the word has changed, and nothing was
 * done. */
hak_noinline bool hak__uheap_free(void *p, uint32_t word, const char *function);

/* The same for a block of the calling thread's share that is marked as freed and did not fit the bin. */
hak_noinline bool hak__uheap_free_full(void *p, uint32_t word);

/* A block of a bump heap (bump.c). NULL: the request is too long, `own` is no such heap, or has to serve it as any other would. */
void *hak__bump_malloc(struct hak_uheap *own, size_t n, const char *function);

/* Huge blocks, of any heap (huge.c). */
void *hak__huge_change(void *p, size_t have, size_t n);
hak_noinline void hak__huge_free_slow(void *p, const char *function);

/* The first SuperSlab of the huge block that reaches into `super` or ends before it; HAK_NO_SUPER: none (block.c). */
hak_cold size_t hak__huge_first(size_t super);
hak_cold bool hak__huge_live(const void *p);
hak_cold void hak__huge_describe(uintptr_t address, char *text, size_t size);
hak_cold const void *hak__huge_around(uintptr_t address);

/* Requests of a hardened process (harden/kinds.c): a block for n bytes; one at a multiple of `align`, where *zero: its bytes are
 * known to be 0. They set errno on failure. */
hak_aside void *hak__malloc_hardened(size_t n);
hak_aside void *hak__memalign_hardened(size_t align, size_t n, bool *zero);

/* Why no block begins at p, for a report; `word` is the owner map's. */
const char *hak__why_invalid(const void *p, uint32_t word);

/* Whether the program's malloc is this library, directly or behind a wrapper (foreign.c). */
hak_cold bool hak__is_programs_malloc(void);

/* The size class of the block that begins at p; NULL if none does, or it looks freed. */
hak_inline const struct hak_class *hak__class_at(const void *p)
{
    size_t distance = (uintptr_t)p - hak__window.base, slab = distance / HAK_SLAB_SIZE;
    if (hak_unlikely(slab >= hak_read_mostly(&hak__window.slabs)))
        return NULL;
    uint32_t word = hak__owner_at(slab);
    if (hak_unlikely(word == 0 || !hak__owner_has_class(word))) /* only spans' words and 0 have a class */
        return NULL;
    const struct hak_class *class = hak__owner_sizes(word);
    if (HAK_PROTECT)
        return hak_likely(hak__begins_block(&hak__window.map[slab], p) && !hak__looks_freed(p)) ? class : NULL;
    size_t before = (size_t)hak_load(&hak__spans[slab].back, HAK_RELAXED) * HAK_SLAB_SIZE;
    struct hak_place place = hak__place_of(class->reciprocal, before + distance % HAK_SLAB_SIZE);
    return hak_likely(hak__place_is_block(place, class->reciprocal, class->blocks)) ? class : NULL;
}

/* --- sized frees -------------------------------------------------------------------------------------------------------- */

/* Whether a block of `have` bytes is kept for n bytes: have / 2 <= n <= have, for even `have`. */
hak_inline bool hak__size_stays(size_t have, size_t n) { return n - have / 2 <= have / 2; }

/* Whether n bytes may have been requested for a block of `have`: the class's sizes, or down to half of it, since realloc keeps a
 * block that shrinks no further, and gives a growing one some room. */
hak_inline bool hak__size_fits(size_t have, size_t n) { return n - have / 2 <= have / 2 || (have == HAK_ALIGN && n < have); }

/* There is no memory for a smaller block: a shrinking one stays where it is and returns the pages that it can (entry/realloc.c). */
hak_cold void *hak__stay_longer(void *p, size_t have, size_t n);

/* From now on a block may be longer than the size that a sized free names, because it could not be shortened. */
hak_cold void hak__allow_longer(void);

/* The slow half of hak__check_size: other kinds, aligned blocks, reports. */
hak_cold void hak__check_size_slow(const void *p, size_t align, size_t n, const char *function);

#if HAK_PROTECT
/* Reports the block at p if it cannot result from a request of n bytes with the alignment. Leaves a pointer to no block to the
 * following free, which frees a block of whatever size. Class 0, which the map's word of no block seems to name, is the smallest;
 * huge blocks' words name none. */
hak_inline void hak__check_size(const void *p, size_t align, size_t n, const char *function)
{
    size_t slab = hak__slab_of(p);
    struct hak_class_offset offset = { HAK_CLASS_OFFSET_LIMIT };
    if (hak_likely(slab < hak_read_mostly(&hak__window.sized_slabs)))
        offset = hak__owner_offset(hak__owner_at(slab));
    if (hak_unlikely(offset.bytes >= HAK_CLASSES * HAK_BIN_SIZE || !hak__size_fits(hak__class_at_offset(offset)->size, n)))
        hak__check_size_slow(p, align, n, function);
}
#else
hak_inline void hak__check_size(const void *p, size_t align, size_t n, const char *function)
{
    (void)p, (void)align, (void)n, (void)function;
}
#endif

/* C++'s sized delete (free.c), with its argument order. */
void hak__delete_sized(void *p, size_t n, size_t align);
