/* Regions of the window: which parts of it are in use, and where the next SuperSlabs come from. A region is 64 SuperSlabs,
 * one word of bits. It is opened when a run in it is first taken: its span descriptors are mapped then, and walks come to it.
 * A region that a wide alignment skips, or that somebody else has mapped, stays closed: it costs a bit for each 128 MiB, and
 * walks pass over 64 of them at once.
 * Opened by opening.c under the arena's lock; the walks of other layers read the bits without it: a region never
 * closes again.
 *
 *   open                 its SuperSlabs' state is valid, as far as they lie below the frontier
 *   closed               free, and as new; the tables that a free reads are there all the same
 *   closed and foreign   somebody else's mapping */
#include "arena/regions.h"

#include "arena/state.h"

enum { REGIONS = HAK_WINDOW_SUPERS / HAK_REGION_SUPERS, REGION_WORDS = (REGIONS + 63) / 64 };

_Static_assert(HAK_REGION_SUPERS == 64, "a region is a word of bits");

static _Atomic uint64_t open_regions[REGION_WORDS];
static hak_rare_data _Atomic uint64_t foreign_regions[REGION_WORDS];

bool hak__region_is_open(size_t region)
{
    /* acquire: pairs with the release in hak__region_mark_open. */
    return hak_load(&open_regions[region / 64], HAK_ACQUIRE) >> region % 64 & 1;
}

void hak__region_mark_open(size_t region)
{
    /* release: a thread that reads the bit may read the descriptors. */
    hak_fetch_or(&open_regions[region / 64], 1ull << region % 64, HAK_RELEASE);
}

void hak__region_mark_foreign(size_t region)
{
    hak_fetch_or(&foreign_regions[region / 64], 1ull << region % 64, HAK_RELAXED);
}

static bool is_foreign(size_t region) { return hak_load(&foreign_regions[region / 64], HAK_RELAXED) >> region % 64 & 1; }

bool hak__super_is_hole(size_t super)
{
    size_t region = super / HAK_REGION_SUPERS;
    return hak__region_is_open(region) ? hak_load(&hak__supers[super].kind, HAK_RELAXED) == HAK_SUPER_HOLE : is_foreign(region);
}

size_t hak__region_next(size_t region)
{
    size_t end = hak_div_up(hak__arena_top(), HAK_REGION_SUPERS);
    while (region < end) {
        uint64_t bits = hak_load(&open_regions[region / 64], HAK_ACQUIRE) >> region % 64;   /* acquire: as above */
        if (bits != 0)
            return region + hak_ctz64(bits);
        region = (region / 64 + 1) * 64;
    }
    return region;
}

size_t hak__super_before(size_t super)
{
    while (super > 0) {
        size_t region = (super - 1) / HAK_REGION_SUPERS;
        if (hak__region_is_open(region))
            return super - 1;
        bool none = hak_load(&open_regions[region / 64], HAK_RELAXED) == 0;
        super = (none ? hak_align_down(region, 64) : region) * HAK_REGION_SUPERS;
    }
    return HAK_NO_SUPER;
}

size_t hak__regions_alike(size_t region)
{
    uint64_t open = hak_load(&open_regions[region / 64], HAK_RELAXED), others = hak_load(&foreign_regions[region / 64], HAK_RELAXED);
    uint64_t unlike = open | (is_foreign(region) ? ~others : others);
    unlike >>= region % 64;
    return hak__region_is_open(region) ? 1 : unlike == 0 ? 64 - region % 64 : hak_ctz64(unlike);
}

uint64_t hak__region_free(size_t region)
{
    return hak__region_is_open(region) ? ~hak__super_words[region].taken : is_foreign(region) ? 0 : ~0ull;
}

size_t hak__regions_foreign(void)
{
    size_t count = 0;
    for (size_t word = 0; word * 64 * HAK_REGION_SUPERS < hak__arena_top(); word++)
        count += hak_popcount64(hak_load(&foreign_regions[word], HAK_RELAXED));
    return count;
}
