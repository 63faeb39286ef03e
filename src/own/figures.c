/* The contents of a heap of one's own: sums over its shares, and a walk over its blocks. */
#include "cache/cache.h"
#include "cache/quarantine.h"
#include "harden/harden.h"
#include "huge/huge.h"
#include "own/own.h"

static void add_share(struct hak_heap_figures *out, struct hak_heap *share)
{
    uint32_t waiting[HAK_CLASSES] = { 0 };
    hak__quarantine_count(share, waiting);
    for (uint32_t class = 0; class < HAK_CLASSES; class++) {
        const struct hak_heap_class *of = &share->classes[class];
        uint64_t size = hak__classes[class].size, cached = hak__cache_blocks(share, class) + waiting[class];
        uint64_t out_of_spans = hak_counted(&of->refilled) - hak_counted(&of->drained) - hak_counted(&of->collected);
        uint64_t live = out_of_spans > cached ? out_of_spans - cached : 0;
        out->live_blocks += live;
        out->live_bytes += live * size;
        out->cached_bytes += cached * size;
    }
    out->slab_bytes += hak_counted(&share->counts.slabs) * HAK_SLAB_SIZE;
    out->threads += hak_load(&share->share.user, HAK_RELAXED) != NULL;
    out->shares++;
}

/* Under the heap's lock, so that no share comes or goes; threads that use theirs meanwhile make the figures those of no single
 * moment. */
void hak__own_figures(struct hak_own *own, struct hak_heap_figures *out, bool wait)
{
    *out = (struct hak_heap_figures){
        .name = own->name, .serial = own->serial, .limit = hak_load(&own->account.limit, HAK_RELAXED),
    };
    bool held = !wait ? hak__lock_try(&own->lock) : (hak__lock_acquire(&own->lock), true);
    for (struct hak_heap *share = held ? own->shares : NULL; share != NULL; share = share->share.next)
        add_share(out, share);
    if (held)
        hak__lock_release(&own->lock);
    out->limit = out->limit == SIZE_MAX ? 0 : out->limit;
    out->used_bytes = hak_load(&own->account.used, HAK_RELAXED);
    out->peak_bytes = hak_load(&own->account.peak, HAK_RELAXED);
    out->refused = hak_load(&own->account.refused, HAK_RELAXED);
    out->huge_blocks = hak_load(&own->huge_count, HAK_RELAXED);
    out->huge_bytes = hak_load(&own->huge_bytes, HAK_RELAXED);
    out->live_blocks += out->huge_blocks + hak_load(&own->samples.count, HAK_RELAXED);
    out->live_bytes += out->huge_bytes + hak_load(&own->samples.bytes, HAK_RELAXED);
}

static size_t visit_usable(const struct hak_span *span, const void *block)
{
    size_t size = hak__classes[span->class].size;
    return hak__hardened_at(hak__slab_of(block)) ? hak__harden_asked(block, span->class, hak__hardened.room[span->class]) : size;
}

/* The blocks of a span that are neither free nor about to be. */
static int visit_span(const struct hak_span *span, hak_heap_visitor *visit, void *argument)
{
    size_t size = hak__classes[span->class].size;
    for (uint32_t i = 0; i < span->frontier; i++) {
        bool single = span->blocks == 1;
        if (!single && (span->free[i / 64] >> i % 64 & 1) != 0)
            continue;
        char *block = hak__span_start(span) + i * size;
        int stop = visit(block, visit_usable(span, block), argument);
        if (stop != 0)
            return stop;
    }
    return 0;
}

/* Cached blocks go back to the spans first, so that all others are in the program's hands. */
static int visit_share(struct hak_heap *share, hak_heap_visitor *visit, void *argument)
{
    int stop = 0;
    if (!hak__heap_lock(share))   /* half changed, in a child: what it has is not known */
        return 0;
    hak__cache_flush(share);
    for (uint32_t slab = share->share.first_span; slab != 0 && stop == 0; slab = hak__spans[slab - 1].next_owned)
        stop = visit_span(&hak__spans[slab - 1], visit, argument);
    hak__heap_unlock(share);
    return stop;
}

int hak__own_visit(struct hak_own *own, hak_heap_visitor *visit, void *argument)
{
    hak__lock_acquire(&own->lock);
    int stop = hak__samples_visit(&own->samples, visit, argument);
    for (struct hak_heap *share = own->shares; share != NULL && stop == 0; share = share->share.next)
        stop = visit_share(share, visit, argument);
    for (uint32_t slab = own->first_huge; slab != 0 && stop == 0; slab = hak__spans[slab - 1].next_owned) {
        void *block = hak__slab_start(slab - 1);
        stop = visit(block, hak__hardened.on ? hak__harden_huge_size(block, "hak_heap_visit") : hak__huge_usable(block), argument);
    }
    hak__lock_release(&own->lock);
    return stop;
}
