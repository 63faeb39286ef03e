/* The counts of the arena and the pool at one moment, for tests that compare two. */
#ifndef HAK_TESTS_SUPPORT_FIGURES_H
#define HAK_TESTS_SUPPORT_FIGURES_H

#include "arena/window.h"
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

#endif
