/* Blocks of bump heaps (userheap/bump.h): free checks the pointer and does nothing; the last one of a chunk grows in place. In a hardened
 * process, and while requests are sampled, such a heap is like any other. */
#include <string.h>

#include "base/assert.h"
#include "cache/cache.h"
#include "diag/report.h"
#include "kinds/kind.h"
#include "process/request.h"
#include "userheap/bump.h"

/* --- requests ------------------------------------------------------------------------------------------------------------------ */

/* The chunk that a reset has left, or another one. NULL: the limit or the system refuses it. */
static char *chunk_obtain(struct hak_heap *share)
{
    void *chunk = NULL;
    if (!hak__bump_is_kept(share))
        return hak__heap_take(share, HAK_BUMP_CLASS, &chunk, 1) == 0 ? NULL : memset(chunk, 0, HAK_BUMP_BITS / 8);
    struct hak_span *span = hak__span_at(hak__slab_of(share->share.bump));
    if (!hak__span_admit(share, HAK_BUMP_CLASS, span->slabs))
        return NULL;
    hak_count(&share->classes[HAK_BUMP_CLASS].refilled, 1);
    hak__heap_large_moved(share, HAK_BUMP_CLASS, 1);
    return hak__span_take_single(span);
}

/* A new chunk for the share; what is left of the former one stays unused. False: the limit or the system refuses it, or the heap ends. */
static bool chunk_take(struct hak_heap *share, const struct hak_uheap *own)
{
    if (!hak__heap_lock(share))
        return false;
    char *chunk = hak_peek(&share->own) == own ? chunk_obtain(share) : NULL;
    hak__heap_unlock(share);
    if (chunk == NULL)
        return false;
    hak_assert((uintptr_t)chunk % HAK_SLAB_SIZE == 0, "a chunk is a slab");
    share->share.bump = chunk + HAK_BUMP_BITS / 8;
    share->share.bump_end = chunk + HAK_SLAB_SIZE - HAK_ALIGN; /* behind it is the place for the last bit */
    hak__bump_flip(share->share.bump);
    hak__map_start_bound(&hak__window.map[hak__slab_of(chunk)], 0); /* so each free there asks this kind, that of its start too */
    share->sources.home = hak__slab_of(chunk) + 1; /* the next one is taken near it, without a search */
    return true;
}

void *hak__bump_malloc(struct hak_uheap *own, size_t n, const char *function)
{
    if (n > HAK_BUMP_MOST || !hak__bump_may() || hak__uheap_magic(own) != HAK_OWN_ALIVE || !hak__bump_has(own))
        return NULL;
    struct hak_heap *mine = hak__request_heap(), *share = mine == NULL ? NULL : hak__uheap_attach(mine, own, function);
    if (share == NULL)
        return NULL;
    void *block = hak__bump_cut(share, n);
    if (block != NULL || !chunk_take(share, own))
        return block;
    hak__request_end(mine);
    return hak__bump_cut(share, n);
}

/* --- the kind ------------------------------------------------------------------------------------------------------------------ */

/* The end of the block that begins at p, or NULL. */
static const char *bump_end(const void *p)
{
    bool begins = (uintptr_t)p % HAK_ALIGN == 0 && (uintptr_t)p % HAK_SLAB_SIZE >= HAK_BUMP_BITS / 8 && hak__bump_begins(p);
    return begins ? hak__bump_end(p) : NULL;
}

static bool bump_live(const void *p) { return bump_end(p) != NULL; }

static size_t bump_usable(const void *p, const char *function)
{
    const char *end = bump_end(p);
    if (end != NULL)
        return (size_t)(end - (const char *)p);
    hak__misuse_invalid(function, p, "not the start of a block");
    return HAK_NO_BLOCK;
}

/* A block that realloc has shortened keeps its length. */
static void bump_check_size(const void *p, size_t align, size_t n, const char *function)
{
    size_t have = bump_usable(p, function);
    (void)align;
    if (n > have)
        hak__misuse_size(function, p, n, have);
}

static void bump_free(void *p, uint32_t word, const char *function)
{
    (void)word;
    bump_usable(p, function);
}

static void *bump_resize(void *p, size_t have, size_t n, enum hak_resize how)
{
    (void)how;
    struct hak_heap *mine = hak__heap_mine(), *share = hak__heap_by_id(hak__owner_id(hak__owner_of(p)));
    bool last =
        n > have && n < HAK_SLAB_SIZE && hak_load(&share->user, HAK_RELAXED) == mine && share->share.bump == (char *)p + have;
    if (last && hak__bump_cut(share, n - have) != NULL)
        hak__bump_flip((char *)p + have);
    return n <= bump_usable(p, "realloc") ? p : NULL;
}

const struct hak_kind hak__kind_bump = {
    .free = bump_free,
    .usable = bump_usable,
    .check_size = bump_check_size,
    .resize = bump_resize,
    .lift = hak__block_lift,
    .heap = hak__uheap_of,
    .live = bump_live,
    .describe = hak__block_describe, /* of the chunk */
};
