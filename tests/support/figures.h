/* The counts of the arena, the pool and huge blocks at one moment, for tests that compare two. */
#ifndef HAK_TESTS_SUPPORT_FIGURES_H
#define HAK_TESTS_SUPPORT_FIGURES_H

#include "arena/window.h"
#include "huge/huge.h"
#include "span/pool.h"

struct arena_figures {
#define X(name) size_t name;
    HAK_ARENA_COUNTS(X)
#undef X
    size_t top, meta;
};

static inline void arena_figures(struct arena_figures *out)
{
#define X(name) out->name = hak_counted(&hak__arena_published.name);
    HAK_ARENA_COUNTS(X)
#undef X
    out->top = hak__arena_top();
    out->meta = hak__meta_bytes();
}

struct pool_figures {
    uint64_t opened, closed;
};

static inline void pool_figures(struct pool_figures *out)
{
    out->opened = hak_load(&hak__pool_counts.opened, HAK_RELAXED);
    out->closed = hak_load(&hak__pool_counts.closed, HAK_RELAXED);
}

struct huge_figures {
    uint64_t live, live_bytes, allocated, freed, grown_in_place, moved;
};

static inline struct huge_figures huge_figures(void)
{
    struct huge_figures out = { .live_bytes = hak_load(&hak__huge_counts.live_bytes, HAK_RELAXED),
                                .allocated = hak_load(&hak__huge_counts.allocated, HAK_RELAXED),
                                .freed = hak_load(&hak__huge_counts.freed, HAK_RELAXED),
                                .grown_in_place = hak_load(&hak__huge_counts.grown_in_place, HAK_RELAXED),
                                .moved = hak_load(&hak__huge_counts.moved, HAK_RELAXED) };
    for (uint32_t id = 1; id <= hak__heap_last_id(); id++) {
        const struct hak_heap_counts *counts = &hak__heap_by_id(id)->counts;
        out.live_bytes += hak_counted(&counts->huge_bytes);
        out.freed += hak_counted(&counts->huge_freed);
        out.allocated += hak_counted(&counts->huge_allocated);
    }
    out.live = out.allocated - out.freed;
    return out;
}

#endif
