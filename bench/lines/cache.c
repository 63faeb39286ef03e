/* The caches of cache.h: a table of pages, MESI as a set of holders per line, and the cause of each message. */
#include "cache.h"

enum { CACHE_BUCKETS = 1 << 16 };

void cache_init(struct cache *cache, void *(*zeroed)(size_t bytes))
{
    *cache = (struct cache){.zeroed = zeroed, .buckets = CACHE_BUCKETS};
    cache->bucket = zeroed(CACHE_BUCKETS * sizeof *cache->bucket);
}

static struct cache_page **bucket_of(struct cache *cache, uintptr_t number)
{
    uint64_t mixed = (uint64_t)number * UINT64_C(0x9e3779b97f4a7c15);
    return &cache->bucket[(mixed >> 32) & (cache->buckets - 1)];
}

struct cache_page *cache_page_of(struct cache *cache, uintptr_t address, int make)
{
    uintptr_t number = address / CACHE_PAGE;
    if (cache->last != NULL && cache->last->number == number)
        return cache->last;
    struct cache_page **bucket = bucket_of(cache, number), *page = *bucket;
    while (page != NULL && page->number != number)
        page = page->next;
    if (page == NULL && make) {
        page = cache->zeroed(sizeof *page);
        page->number = number;
        page->next = *bucket;
        *bucket = page;
    }
    if (page != NULL)
        cache->last = page;
    return page;
}

static uint16_t words_of(unsigned offset, unsigned size)
{
    unsigned first = offset / CACHE_WORD, last = (offset + size - 1) / CACHE_WORD;
    return (uint16_t)(((1u << (last - first + 1)) - 1) << first);
}

/* The line meets its second core: what has been written so far was written by the first. */
static struct cache_history *history_begin(struct cache *cache, const struct cache_line *line)
{
    struct cache_history *history = cache->spare;
    if (history != NULL) {
        cache->spare = *(struct cache_history **)history;
        *history = (struct cache_history){0};
    } else {
        history = cache->zeroed(sizeof *history);
    }
    history->now = 1;
    for (unsigned word = 0; word < CACHE_WORDS; word++) {
        if (line->written >> word & 1) {
            history->stamp[word] = 1;
            history->writer[word] = (uint8_t)__builtin_ctzll(line->holders);
        }
    }
    return history;
}

/* Whether another core has written one of the words since this one lost the line. */
static int others_wrote(const struct cache_history *history, unsigned core, uint16_t words)
{
    for (unsigned word = 0; word < CACHE_WORDS; word++)
        if ((words >> word & 1) && history->writer[word] != core && history->stamp[word] > history->lost[core])
            return 1;
    return 0;
}

static void lose(struct cache_line *line, uint64_t holders)
{
    for (; holders != 0; holders &= holders - 1)
        line->history->lost[__builtin_ctzll(holders)] = line->history->now;
}

static void note_written(struct cache_line *line, unsigned core, uint16_t words)
{
    line->written |= words;
    if (line->history == NULL)
        return;
    line->history->now++;
    for (unsigned word = 0; word < CACHE_WORDS; word++) {
        if (words >> word & 1) {
            line->history->stamp[word] = line->history->now;
            line->history->writer[word] = (uint8_t)core;
        }
    }
}

static enum cache_cause cause_of(const struct cache_line *line, unsigned core, uint16_t words, enum cache_access access)
{
    uint64_t me = UINT64_C(1) << core;
    if (line->holders & me)
        return access != CACHE_READ && line->holders != me ? CACHE_UPGRADE : CACHE_NONE;
    if (line->holders == 0)
        return CACHE_NONE;
    if (!others_wrote(line->history, core, words))
        return CACHE_FALSE;
    return access == CACHE_WRITE ? CACHE_MIGRATION : CACHE_TRUE;
}

enum cache_cause cache_touch(struct cache *cache, struct cache_line *line, unsigned core, unsigned offset, unsigned size,
                             enum cache_access access)
{
    const uint64_t me = UINT64_C(1) << core;
    const uint16_t words = words_of(offset, size);
    if (line->holders != me) {
        if (line->history == NULL && line->holders != 0)
            line->history = history_begin(cache, line);
    }
    enum cache_cause cause = cause_of(line, core, words, access);
    if (access == CACHE_READ) {
        line->holders |= me;
    } else {
        if (line->history != NULL)
            lose(line, line->holders & ~me);
        line->holders = me;
    }
    line->users |= me;
    if (access == CACHE_WRITE || access == CACHE_MODIFY)
        note_written(line, core, words);
    return cause;
}

static void forget_line(struct cache *cache, struct cache_line *line)
{
    if (line->history != NULL) {
        *(struct cache_history **)line->history = cache->spare;
        cache->spare = line->history;
    }
    line->history = NULL;
    line->holders = 0;
    line->written = 0;
}

static void forget_part(struct cache *cache, struct cache_page *page, uintptr_t from, uintptr_t to)
{
    uintptr_t base = page->number * CACHE_PAGE;
    if (from <= base && to >= base + CACHE_PAGE)
        page->resident = 0;
    for (unsigned i = 0; i < CACHE_PAGE_LINES; i++) {
        uintptr_t at = base + i * CACHE_LINE;
        if (at >= from && at < to)
            forget_line(cache, &page->line[i]);
    }
}

void cache_forget(struct cache *cache, uintptr_t address, size_t bytes)
{
    const uintptr_t end = address + bytes;
    if (bytes / CACHE_PAGE < cache->buckets) {
        for (uintptr_t at = address & ~(uintptr_t)(CACHE_PAGE - 1); at < end; at += CACHE_PAGE) {
            struct cache_page *page = cache_page_of(cache, at, 0);
            if (page != NULL)
                forget_part(cache, page, address, end);
        }
        return;
    }
    for (size_t i = 0; i < cache->buckets; i++)
        for (struct cache_page *page = cache->bucket[i]; page != NULL; page = page->next)
            forget_part(cache, page, address, end);
}
