/* Bump heaps (HAK_HEAP_BUMP): a heap's small blocks are cut off chunks one behind the other, and end only with the heap or by a reset.
 * A chunk is a block of HAK_BUMP_CLASS of a share, which serves such a heap nothing else: a whole slab, so that an address tells its
 * chunk. The thread that has the share cuts; its other requests are served as in any heap.
 *
 *   chunk ──> bits | block | block | ...        bit i: a block begins at 16 * i, or (the last bit) the next one will
 *
 * Only the thread that cuts writes bits. That of the end of a block precedes the block's hand-over, so whoever has a block knows its
 * length. */
#pragma once

#include "base/bits.h"
#include "harden/mode.h"
#include "userheap/userheap.h"

enum { HAK_BUMP_CLASS = HAK_CLASS_65536, HAK_BUMP_MOST = 4096 };
_Static_assert(HAK_ALIGN == 16, "a chunk has a bit for each place of a block");

/* Whether blocks are cut: neither is the process hardened nor are requests sampled. */
hak_inline bool hak__bump_may(void) { return HAK_PROTECT && !hak_load(&hak__hardened.open, HAK_RELAXED); }

/* Whether slabs with this word, a share's and of the class of chunks, are chunks (figures.c). */
bool hak__bump_is(uint32_t word);

hak_inline bool hak__bump_has(const struct hak_uheap *own) { return own != NULL && (own->flags & HAK_HEAP_BUMP) != 0; }

hak_inline char *hak__bump_chunk(const void *p) { return (char *)hak_align_down((uintptr_t)p, HAK_SLAB_SIZE); }
hak_inline _Atomic uint64_t *hak__bump_word(const void *p)
{
    return (_Atomic uint64_t *)(void *)hak__bump_chunk(p) + (uintptr_t)p % HAK_SLAB_SIZE / HAK_ALIGN / 64;
}
hak_inline uint64_t hak__bump_bit(const void *p) { return 1ull << ((uintptr_t)p / HAK_ALIGN % 64); }
hak_inline bool hak__bump_begins(const void *p) { return (hak_load(hak__bump_word(p), HAK_RELAXED) & hak__bump_bit(p)) != 0; }
hak_inline void hak__bump_flip(const void *p)
{
    hak_store(hak__bump_word(p), hak_load(hak__bump_word(p), HAK_RELAXED) ^ hak__bump_bit(p), HAK_RELAXED);
}

/* The end of the block that begins at `at`: the next place with a bit. NULL: there is none, so the next block will begin there. */
hak_inline char *hak__bump_end(const char *at)
{
    const char *end = hak__bump_chunk(at) + HAK_SLAB_SIZE;
    for (uint64_t mask = 0 - (hak__bump_bit(at) << 1); at < end; mask = ~0ull) {
        uint64_t bits = hak_load(hak__bump_word(at), HAK_RELAXED) & mask;
        char *first = (char *)hak_align_down((uintptr_t)at, 64 * HAK_ALIGN);
        if (bits != 0)
            return first + hak_ctz64(bits) * HAK_ALIGN;
        at = first + 64 * HAK_ALIGN;
    }
    return NULL;
}

/* A block of n bytes, at most those of a slab, at the end of the share's chunk; NULL: it is too short, or there is none. Only for the
 * thread that has the share. */
hak_inline void *hak__bump_cut(struct hak_heap *share, size_t n)
{
    hak_assert(hak_peek(&share->own) != NULL, "a share of a user heap");
    char *at = share->share.bump;
    size_t size = hak_align_up(n + (n == 0), HAK_ALIGN);
    if (size > (size_t)(share->share.bump_end - at))
        return NULL;
    hak__bump_flip(at + size);
    share->share.bump = at + size;
    return at;
}
