/*
 * The caches of cache.h by hand: each row of a case is one access and the message that must follow from it.
 * Exit status 1 with a line for each wrong one.
 */
#include "cache.h"

#include <stdio.h>
#include <stdlib.h>

static struct cache cache;
static int wrong;

static void *zeroed(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (memory == NULL)
        abort();
    return memory;
}

struct step {
    unsigned core;
    unsigned offset;
    unsigned size;
    enum cache_access access;
    enum cache_cause cause;
};

#define R CACHE_READ
#define W CACHE_WRITE
#define M CACHE_MODIFY
#define C CACHE_CLAIM
#define TRUE_ CACHE_TRUE
#define FALSE_ CACHE_FALSE
#define MOVED CACHE_MIGRATION
#define UP CACHE_UPGRADE
#define NONE CACHE_NONE

static void play(const char *name, uintptr_t address, const struct step *step, size_t count)
{
    struct cache_page *page = cache_page_of(&cache, address, 1);
    struct cache_line *line = &page->line[address % CACHE_PAGE / CACHE_LINE];
    for (size_t i = 0; i < count; i++) {
        enum cache_cause cause = cache_touch(&cache, line, step[i].core, step[i].offset, step[i].size, step[i].access);
        if (cause != step[i].cause) {
            printf("%s: step %zu caused %d, not %d\n", name, i, (int)cause, (int)step[i].cause);
            wrong = 1;
        }
    }
}

#define PLAY(name, address, ...)                                            \
    do {                                                                    \
        static const struct step steps[] = {__VA_ARGS__};                   \
        play(name, address, steps, sizeof steps / sizeof steps[0]);         \
    } while (0)

static void check(const char *name, int holds)
{
    if (!holds) {
        printf("%s\n", name);
        wrong = 1;
    }
}

int main(void)
{
    cache_init(&cache, zeroed);
    PLAY("one core alone", 0x10000, {0, 0, 8, R, NONE}, {0, 0, 8, W, NONE}, {0, 8, 8, W, NONE}, {0, 0, 8, M, NONE});
    PLAY("a word that two cores add to", 0x20000, {0, 0, 8, M, NONE}, {1, 0, 8, M, TRUE_}, {0, 0, 8, M, TRUE_},
         {0, 0, 8, M, NONE});
    PLAY("two words of one line", 0x30000, {0, 0, 4, W, NONE}, {1, 4, 4, W, FALSE_}, {0, 0, 4, W, FALSE_},
         {1, 4, 4, R, FALSE_}, {1, 4, 4, W, UP}, {0, 4, 4, R, TRUE_});
    PLAY("overwritten, never read", 0x40000, {0, 0, 8, W, NONE}, {1, 0, 8, W, MOVED}, {0, 0, 4, W, MOVED},
         {1, 4, 4, W, FALSE_});
    PLAY("read by all, then written", 0x50000, {0, 0, 8, W, NONE}, {1, 0, 8, R, TRUE_}, {2, 0, 8, R, TRUE_},
         {63, 0, 8, R, TRUE_}, {1, 0, 8, R, NONE}, {0, 0, 8, W, UP}, {63, 0, 8, R, TRUE_}, {2, 32, 8, R, FALSE_});
    PLAY("a swap that fails takes the line and writes nothing", 0x60000, {0, 0, 8, M, NONE}, {1, 0, 8, C, TRUE_},
         {0, 0, 8, W, FALSE_}, {1, 0, 8, C, TRUE_}, {1, 0, 8, M, NONE});
    PLAY("seen before it was lost", 0x70000, {0, 0, 4, W, NONE}, {1, 0, 4, R, TRUE_}, {0, 4, 4, W, UP}, {1, 0, 4, R, FALSE_});
    PLAY("an access over several words", 0x80000, {0, 60, 4, W, NONE}, {1, 0, 32, R, FALSE_}, {2, 48, 16, R, TRUE_});
    cache_forget(&cache, 0x20000, CACHE_PAGE);
    PLAY("new memory at an old address", 0x20000, {1, 0, 8, R, NONE}, {1, 0, 8, W, NONE}, {0, 0, 8, R, TRUE_});
    cache_forget(&cache, 0x30040, CACHE_LINE);
    PLAY("half of a page is forgotten", 0x30000, {1, 4, 4, R, NONE});
    cache_forget(&cache, 0, (size_t)1 << 46);
    PLAY("all is forgotten", 0x50000, {5, 0, 8, W, NONE}, {6, 0, 8, W, MOVED});
    check("a page that nobody touched is there", cache_page_of(&cache, 0x7f0000000000, 0) == NULL);
    check("users are forgotten", __builtin_popcountll(cache_page_of(&cache, 0x50000, 0)->line[0].users) == 6);
    return wrong;
}
