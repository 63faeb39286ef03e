/* Addresses for malloc(0). See harden.h. */
#include "harden/harden.h"

#include "arena/window.h"
#include "base/bits.h"
#include "diag/report.h"

enum { NOTHING_WORDS = HAK_ZERO_SIZE_MOST / 64 };

struct hak_zero_size hak__zero_size;
static _Atomic uint64_t turn;

void hak__zero_size_begin(void)
{
    if (hak__zero_size.range != 0)
        return;
    hak__zero_size.in_use = hak__meta_alloc(2 * NOTHING_WORDS * sizeof *hak__zero_size.in_use);
    hak__zero_size.ever_used = hak__zero_size.in_use == NULL ? NULL : hak__zero_size.in_use + NOTHING_WORDS;
    if (hak__zero_size.in_use != NULL)
        hak__zero_size.range = hak__zero_size_start();
}

static void *take_address(size_t word)
{
    uint64_t used = hak_load(&hak__zero_size.in_use[word], HAK_RELAXED);
    while (~used != 0) {
        unsigned bit = hak_ctz64(~used);
        /* acquire: pairs with the release of the thread that freed it. */
        if (!hak_cas_weak(&hak__zero_size.in_use[word], &used, used | 1ull << bit, HAK_ACQUIRE, HAK_RELAXED))
            continue;
        hak_fetch_or(&hak__zero_size.ever_used[word], 1ull << bit, HAK_RELAXED);
        return (void *)(hak__zero_size.range + (word * 64 + bit) * HAK_ALIGN);
    }
    return NULL;
}

/* Each call starts at the next word, so a freed address is reused only after all words have had their turn. */
void *hak__zero_size_malloc(void)
{
    if (hak__zero_size.range == 0)
        return NULL;
    for (size_t tries = 0; tries < NOTHING_WORDS; tries++) {
        void *p = take_address(hak_fetch_add(&turn, 1, HAK_RELAXED) % NOTHING_WORDS);
        if (p != NULL)
            return p;
    }
    return NULL;
}

/* 0: no block ever began there, which has been reported. */
static uint64_t bit_of(const void *p, size_t *word, const char *function)
{
    size_t offset = (uintptr_t)p - hak__zero_size.range, at = offset / HAK_ALIGN;
    *word = at / 64;
    bool start = offset % HAK_ALIGN == 0;
    if (start && (hak_load(&hak__zero_size.ever_used[*word], HAK_RELAXED) >> at % 64 & 1) != 0)
        return 1ull << at % 64;
    hak__misuse_invalid(function, p, start ? "this block was never allocated" : "not the start of a block");
    return 0;
}

bool hak__zero_size_free(void *p, const char *function)
{
    size_t word;
    uint64_t bit = bit_of(p, &word, function);
    bool freed = (hak_fetch_and(&hak__zero_size.in_use[word], ~bit, HAK_RELEASE) & bit) != 0;
    if (!freed && bit != 0)
        hak__misuse_double_free(function, p, 0);
    return freed;
}

bool hak__zero_size_check(const void *p, const char *function)
{
    size_t word;
    uint64_t bit = bit_of(p, &word, function);
    bool used = (hak_load(&hak__zero_size.in_use[word], HAK_RELAXED) & bit) != 0;
    if (!used && bit != 0)
        hak__misuse_invalid(function, p, "this block is free");
    return used;
}
