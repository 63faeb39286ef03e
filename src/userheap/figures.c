/* A user heap's contents: sums over its shares, and a walk over its blocks. */
#include "cache/cache.h"
#include "harden/harden.h"
#include "harden/quarantine.h"
#include "huge/huge.h"
#include "userheap/bump.h"

static void add_share(struct hak_heap_figures *out, struct hak_heap *share)
{
    uint32_t waiting[HAK_CLASSES] = { 0 };
    hak__quarantine_count(share, waiting);
    for (uint32_t class = 0; class < HAK_CLASSES; class++) {
        const struct hak_heap_class *of = &share->classes[class];
        uint64_t size = hak__classes[class].size, cached = hak__cache_count(share, class) + waiting[class];
        uint64_t out_of_spans = hak_counted(&of->refilled) - hak_counted(&of->drained) - hak_counted(&of->collected);
        uint64_t live = out_of_spans > cached ? out_of_spans - cached : 0;
        out->live_blocks += live;
        out->live_bytes += live * size;
        out->cached_bytes += cached * size;
    }
    out->slab_bytes += hak_counted(&share->counts.slabs) * HAK_SLAB_SIZE;
    out->threads += hak_load(&share->user, HAK_RELAXED) != NULL;
    out->shares++;
}

/* Holds the heap's lock, so that no share comes or goes; threads that use their shares meanwhile make the figures those of
 * different moments. */
static void add_contents(struct hak_heap_figures *out, struct hak_uheap *own, bool wait)
{
    bool held = !wait ? hak__lock_try(&own->lock) : (hak__lock_acquire(&own->lock), true);
    for (struct hak_heap *share = held ? own->shares : NULL; share != NULL; share = share->share.next)
        add_share(out, share);
    if (held)
        hak__lock_release(&own->lock);
    uint64_t blocks = hak_load(&own->huge_count, HAK_RELAXED), bytes = hak_load(&own->huge_bytes, HAK_RELAXED);
    out->huge_blocks += blocks;
    out->huge_bytes += bytes;
    out->live_blocks += blocks + hak_load(&own->samples.count, HAK_RELAXED);
    out->live_bytes += bytes + hak_load(&own->samples.bytes, HAK_RELAXED);
}

void hak__uheap_figures(struct hak_uheap *own, struct hak_heap_figures *out, bool whole)
{
    *out = (struct hak_heap_figures){
        .name = own->name,
        .serial = own->serial,
        .limit = hak_load(&own->account.limit, HAK_RELAXED),
    };
    add_contents(out, own, whole);
    if (whole && hak_peek(&own->first_child) != NULL) {
        hak__lock_acquire(&hak__owns_lock);
        for (struct hak_uheap *at = own; (at = hak__tree_next(own, at)) != NULL;)
            add_contents(out, at, true);
        hak__lock_release(&hak__owns_lock);
    }
    out->limit = out->limit == SIZE_MAX ? 0 : out->limit;
    out->used_bytes = hak_load(&own->account.used, HAK_RELAXED);
    out->peak_bytes = hak_load(&own->account.peak, HAK_RELAXED);
    out->refused = hak_load(&own->account.refused, HAK_RELAXED);
}

bool hak__bump_is(uint32_t word)
{
    const struct hak_heap *share = hak__heap_by_id(hak__owner_id(word));
    return HAK_PROTECT && !hak__hardened.on && hak__bump_has(hak_peek(&share->own));
}

static bool is_chunk(const struct hak_span *span)
{
    return span->class == HAK_BUMP_CLASS && hak__bump_is(hak__owner_at(hak__span_slab(span)));
}

static size_t visit_usable(const struct hak_span *span, const void *block)
{
    size_t size = hak__classes[span->class].size;
    if (is_chunk(span))
        return (size_t)(hak__bump_end(block) - (const char *)block);
    return hak__hardened_at(hak__slab_of(block)) ? hak__harden_asked(block, span->class, hak__hardened.room[span->class]) : size;
}

/* A visit's position in a share: the slab of the current span, plus one, and the next block there. The program's function runs
 * without locks, and may allocate; its block is in use, so span and share stay. */
struct visit_place {
    uint32_t slab, index;
};

/* The next block of a bump heap's chunk, or NULL; *from: where it begins, 0: at the first place for one. */
static char *next_cut(const struct hak_span *span, uint32_t *from)
{
    char *chunk = hak__span_start(span), *block = chunk + (*from == 0 ? HAK_BUMP_BITS / 8 : *from * (size_t)HAK_ALIGN);
    const char *end = hak__bump_end(block);
    *from = end == NULL ? 0 : (uint32_t)((size_t)(end - chunk) / HAK_ALIGN);
    return end == NULL ? NULL : block;
}

/* The share's next block that is neither free nor about to be. */
static char *next_live(const struct hak_heap *share, struct visit_place *at)
{
    uint32_t slab = at->slab != 0 ? at->slab : share->share.first_span;
    for (; slab != 0; slab = hak__spans[slab - 1].next_owned, at->index = 0) {
        const struct hak_span *span = &hak__spans[slab - 1];
        char *cut = is_chunk(span) ? next_cut(span, &at->index) : NULL;
        at->slab = slab;
        if (cut != NULL)
            return cut;
        for (uint32_t i = at->index; i < span->frontier && !is_chunk(span); i++)
            if (span->single || (span->free[i / 64] >> i % 64 & 1) == 0) {
                *at = (struct visit_place){ slab, i + 1 };
                return hak__span_start(span) + i * hak__classes[span->class].size;
            }
    }
    return NULL;
}

/* Cached blocks first go back to their spans, so that all remaining ones are the program's. A share that a fork left half
 * changed yields no blocks: its contents are unknown. */
static char *next_block(struct hak_heap *share, struct visit_place *at, size_t *size)
{
    if (!hak__heap_lock(share))
        return NULL;
    if (at->slab == 0)
        hak__cache_flush(share);
    char *block = next_live(share, at);
    if (block != NULL)
        *size = visit_usable(&hak__spans[at->slab - 1], block);
    hak__heap_unlock(share);
    return block;
}

static void span_describe(const struct hak_span *span, struct hak_heap_span *out)
{
    char *start = hak__span_start(span);
    *out = (struct hak_heap_span){ .begin = start,
                                   .end = start + ((size_t)span->slabs << HAK_SLAB_SHIFT),
                                   .reached = hak__span_charge(span) };
    if (!is_chunk(span)) {
        out->size = hak__classes[span->class].size;
        out->blocks = hak__span_allocated(span);
        out->bytes = out->blocks * out->size;
        return;
    }
    uint32_t from = 0;
    for (const char *block; (block = next_cut(span, &from)) != NULL; out->blocks++)
        out->bytes += (size_t)(hak__bump_end(block) - block);
}

/* The share's next span with a block of the program, which keeps it from ending; *slab: the current one's, plus one. */
static bool next_span(struct hak_heap *share, uint32_t *slab, struct hak_heap_span *out)
{
    if (!hak__heap_lock(share))
        return false;
    if (*slab == 0)
        hak__cache_flush(share);
    *slab = *slab == 0 ? share->share.first_span : hak__spans[*slab - 1].next_owned;
    for (; *slab != 0; *slab = hak__spans[*slab - 1].next_owned) {
        span_describe(&hak__spans[*slab - 1], out);
        if (out->blocks != 0)
            break;
    }
    hak__heap_unlock(share);
    return *slab != 0;
}

static int visit_share(struct hak_heap *share, const struct hak_visit *visit)
{
    struct visit_place at = { 0, 0 };
    struct hak_heap_span span;
    size_t size = 0;
    int stop = 0;
    if (visit->span != NULL)
        while (stop == 0 && next_span(share, &at.slab, &span))
            stop = visit->span(&span, visit->argument);
    else
        for (char *block; stop == 0 && (block = next_block(share, &at, &size)) != NULL;)
            stop = visit->block(block, size, visit->argument);
    return stop;
}

static struct hak_heap *first_share(struct hak_uheap *own)
{
    hak__lock_acquire(&own->lock);
    struct hak_heap *share = own->shares;
    hak__lock_release(&own->lock);
    return share;
}

/* The slab of the next huge block, plus one; the first with 0. */
static uint32_t next_huge(struct hak_uheap *own, uint32_t slab)
{
    hak__lock_acquire(&own->lock);
    slab = slab == 0 ? own->first_huge : hak__spans[slab - 1].next_owned;
    hak__lock_release(&own->lock);
    return slab;
}

static int visit_sample(void *block, size_t size, void *visit) { return hak__visit_single(visit, block, size); }

int hak__uheap_visit(struct hak_uheap *own, const struct hak_visit *visit)
{
    int stop = hak__samples_visit(&own->samples, visit_sample, (void *)(uintptr_t)visit);
    for (struct hak_heap *share = first_share(own); share != NULL && stop == 0; share = share->share.next)
        stop = visit_share(share, visit);
    for (uint32_t slab = 0; stop == 0 && (slab = next_huge(own, slab)) != 0;) {
        void *block = hak__slab_start(slab - 1);
        bool asked = hak__hardened.on;
        stop =
            hak__visit_single(visit, block, asked ? hak__harden_huge_size(block, visit->function, false) : hak__huge_usable(block));
    }
    return stop;
}
