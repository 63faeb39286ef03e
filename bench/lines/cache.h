/*
 * Private caches of 64 cores that are kept coherent by MESI, without a limit of capacity: what moves is what
 * cores communicate, never what no longer fits.  Fed one access after another; knows nothing of its caller.
 *
 * Invariants: 1. a line with one holder may be written silently (E or M), with more only after an invalidation
 * (S).  2. `written` is the union of the words that anyone has stored since the line began.  3. `history` exists
 * once a second core has touched the line; before, all words are those of the only holder.
 * Not thread-safe: the caller serialises.
 */
#ifndef LINES_CACHE_H
#define LINES_CACHE_H

#include <stddef.h>
#include <stdint.h>

enum { CACHE_CORES = 64, CACHE_LINE = 64, CACHE_WORD = 4, CACHE_WORDS = CACHE_LINE / CACHE_WORD };
enum { CACHE_PAGE = 4096, CACHE_PAGE_LINES = CACHE_PAGE / CACHE_LINE };

/*
 * Why a core had to talk to another one.  The first three are transfers: the line's data came from another cache.
 * CACHE_TRUE: a word was read that another core has written since this core last held the line.
 * CACHE_MIGRATION: such a word was overwritten without having been read; memory changed hands, no information.
 * CACHE_FALSE: no word that was touched has been written by another core meanwhile.
 * CACHE_UPGRADE: the line was here, but others had it too and had to drop it before the write; no data moved.
 */
enum cache_cause { CACHE_TRUE, CACHE_FALSE, CACHE_MIGRATION, CACHE_UPGRADE, CACHE_CAUSES, CACHE_NONE = CACHE_CAUSES };

/* A modify reads and writes as one; a claim is a compare-and-swap that failed: it takes the line and stores nothing. */
enum cache_access { CACHE_READ, CACHE_WRITE, CACHE_MODIFY, CACHE_CLAIM };

/* Which word was written when, and when each core lost the line; times are this line's own. */
struct cache_history {
    uint32_t now;
    uint32_t lost[CACHE_CORES]; /* 0: never held */
    uint32_t stamp[CACHE_WORDS];
    uint8_t writer[CACHE_WORDS];
};

struct cache_line {
    uint64_t holders;
    uint64_t users; /* cores that ever touched it, whatever has been unmapped since */
    struct cache_history *history;
    uint32_t count[CACHE_CAUSES];
    uint16_t written;
    uint8_t flags; /* the caller's */
};

struct cache_page {
    uintptr_t number; /* address / CACHE_PAGE */
    struct cache_page *next;
    uint8_t resident; /* the caller's; cleared when the whole page is forgotten */
    struct cache_line line[CACHE_PAGE_LINES];
};

/* `zeroed` gives memory that is never returned, but through `cache_forget`'s reuse. */
struct cache {
    void *(*zeroed)(size_t bytes);
    struct cache_page **bucket;
    size_t buckets; /* a power of two */
    struct cache_page *last;
    struct cache_history *spare; /* linked through their first bytes */
};

void cache_init(struct cache *cache, void *(*zeroed)(size_t bytes));

/* The page of an address; made when `make`, else NULL if nobody has touched it. */
struct cache_page *cache_page_of(struct cache *cache, uintptr_t address, int make);

/* One access within one line.  Returns the cause of the message to other cores, or CACHE_NONE; counts nothing. */
enum cache_cause cache_touch(struct cache *cache, struct cache_line *line, unsigned core, unsigned offset, unsigned size,
                             enum cache_access access);

/* The memory is gone, or new: no core holds any of it.  Counts and users stay. */
void cache_forget(struct cache *cache, uintptr_t address, size_t bytes);

#endif
