/* Bit arithmetic on machine words: counts, runs, rounding. Everything here is pure and inline. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/assert.h"

hak_inline unsigned hak_ctz32(uint32_t x) { return hak_assert(x != 0, "0 has no lowest bit"), (unsigned)__builtin_ctz(x); }
hak_inline unsigned hak_ctz64(uint64_t x) { return hak_assert(x != 0, "0 has no lowest bit"), (unsigned)__builtin_ctzll(x); }
hak_inline unsigned hak_msb64(uint64_t x) { return hak_assert(x != 0, "0 has no highest bit"), 63u - (unsigned)__builtin_clzll(x); }
hak_inline unsigned hak_popcount64(uint64_t x) { return (unsigned)__builtin_popcountll(x); }
hak_inline unsigned hak_popcount32(uint32_t x) { return (unsigned)__builtin_popcount(x); }

hak_inline bool hak_is_power_of_two(size_t n) { return n != 0 && (n & (n - 1)) == 0; }
hak_inline size_t hak_align_down(size_t n, size_t power_of_two)
{
    hak_assert(hak_is_power_of_two(power_of_two), "alignments are powers of two");
    return n & ~(power_of_two - 1);
}
hak_inline size_t hak_align_up(size_t n, size_t power_of_two) { return hak_align_down(n + power_of_two - 1, power_of_two); }
hak_inline size_t hak_div_up(size_t n, size_t d) { return (n + d - 1) / d; }
hak_inline size_t hak_min(size_t a, size_t b) { return a < b ? a : b; }
hak_inline size_t hak_max(size_t a, size_t b) { return a > b ? a : b; }

/* Another number, in which each bit depends on all of x's. */
hak_inline uint64_t hak_mix64(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

/* `count` ones from bit 0; count may be the whole width. */
hak_inline uint32_t hak_ones32(unsigned count) { return count >= 32 ? ~0u : (1u << count) - 1; }
hak_inline uint64_t hak_ones64(unsigned count) { return count >= 64 ? ~0ull : (1ull << count) - 1; }

/* The positions where a run of `length` ones begins, found in log2(length) doubling steps; 0: there is none. */
hak_inline uint32_t hak_run_starts(uint32_t mask, unsigned length)
{
    hak_assert(length != 0 && length <= 32, "a run has bits, and fits the mask");
    unsigned have = 1;
    while (have < length) {
        unsigned step = length - have < have ? length - have : have;
        mask &= mask >> step;
        have += step;
    }
    return mask;
}

/* --- text ------------------------------------------------------------------------------------------------------------- */

/* Text functions in place of the C library's: each symbol imported from there costs every process a little at start
 * (docs/decisions/0038). */
static inline bool hak_begins(const char *text, const char *start)
{
    while (*start != 0 && *text == *start)
        text++, start++;
    return *start == 0;
}

/* The text's length, or if that is more than `most`, how much of it to keep so that no character of UTF-8 is cut. */
static inline size_t hak_text_within(const char *text, size_t most)
{
    size_t length = 0;
    while (length < most && text[length] != 0)
        length++;
    while (length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80)
        length--;
    return length;
}
