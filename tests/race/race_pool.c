/* The shared pool of slabs (span/pool.c, span/pool.c), every schedule within the bounds: runs are claimed and
 * given back at the same time. No slab is in two hands; when all is quiet every free run has its hints; a SuperSlab
 * goes back to the arena only while nobody has a slab of it, and may be opened again at once. */
// test: cost=90
#include "span/pool.h"
#include "world.h"

enum { ALL = 32 };

static _Atomic uint32_t in_hands[WORLD_SUPERS];   /* slabs that the case's threads hold */

static unsigned content[WORLD_SUPERS * ALL];      /* what the users of the slabs write there, plainly */

/* The bookkeeping of the case is not a point of the schedule: it belongs to the step before it, and orders nothing. */
static void note_taken(size_t slab, unsigned count)
{
    uint32_t run = hak_ones32(count) << slab % HAK_SUPER_SLABS;
    uint32_t before = atomic_fetch_or_explicit(&in_hands[slab / HAK_SUPER_SLABS], run, HAK_RELAXED);
    EXPLORE_EXPECT((before & run) == 0, "a slab is in two hands");
    for (unsigned i = 0; i < count; i++)
        content[slab + i]++;
}

/* Whoever purges has the slabs to himself meanwhile. */
void world_purged(size_t slab, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t mine = atomic_load_explicit(&in_hands[(slab + i) / ALL], HAK_RELAXED);
        EXPLORE_EXPECT((mine >> (slab + i) % ALL & 1) == 0, "pages of a slab in somebody's hands are purged");
        content[slab + i] = 0;
    }
}

static size_t take(unsigned count)
{
    bool fresh;
    size_t slab = hak__pool_take(count, &fresh);
    if (slab == HAK_NO_RUN)
        return slab;
    for (unsigned i = 0; i < count; i++)
        EXPLORE_EXPECT(!fresh || content[slab + i] == 0, "a slab is called fresh and holds old data");
    note_taken(slab, count);
    return slab;
}

static void give(size_t slab, unsigned count)
{
    if (slab == HAK_NO_RUN)
        return;
    for (unsigned i = 0; i < count; i++)
        content[slab + i]++;
    atomic_fetch_and_explicit(&in_hands[slab / HAK_SUPER_SLABS], ~(hak_ones32(count) << slab % HAK_SUPER_SLABS),
                              HAK_RELAXED);
    hak__pool_give(slab, count);
}

/* SuperSlab 0 is in slabs, all of them in hands but those of `unused`; the others belong to the arena if `spare`. */
static void begin(uint32_t unused, bool spare)
{
    world_reset();
    world_take_super(0);
    if (!spare)
        world_take_super(1);
    atomic_store(&in_hands[1], 0);
    atomic_store(&in_hands[0], ~0u);
    for (unsigned i = 0; i < WORLD_SUPERS * ALL; i++)
        content[i] = 1;
    hak__slabs_open(&hak__supers[0], ALL, false);
    atomic_store(&hak__supers[0].kind, HAK_SUPER_IN_SLABS);
    for (unsigned i = 0; i < ALL; i++)
        if (unused >> i & 1)
            give(i, 1);
}

static void expect_hints(size_t super)
{
    uint32_t unused = hak__slabs_unused(atomic_load(&hak__supers[super].slabs));
    for (unsigned level = 0; level < hak__slabs_levels(unused); level++)
        EXPLORE_EXPECT(atomic_load(&hak__super_words->partial[level]) >> super & 1, "a free run has no hint");
}

static void check(void)
{
    for (size_t super = 0; super < WORLD_SUPERS; super++) {
        uint32_t unused = hak__slabs_unused(atomic_load(&hak__supers[super].slabs));
        uint32_t mine = atomic_load(&in_hands[super]);
        if (world_super_is_free(super)) {
            EXPLORE_EXPECT(mine == 0, "a SuperSlab is free while slabs of it are in hands");
            EXPLORE_EXPECT(unused == 0, "a SuperSlab that is not in slabs offers some");
        } else if (super == 0 || mine != 0 || unused != 0) {
            EXPLORE_EXPECT((mine & unused) == 0, "a slab in somebody's hands is unused");
            EXPLORE_EXPECT((mine | unused) == ~0u, "a slab is lost");
            expect_hints(super);
        }
    }
}

/* --- claims and releases ---------------------------------------------------------------------------------------------------- */

static void one_unused(void) { begin(1u << 3, false); }
static void four_unused(void) { begin(0xfu << 8, false); }
static void give_5(void) { give(5, 1); }
static void give_12_and_13(void) { give(12, 2); }
static void take_1(void) { take(1); }
static void take_2(void) { take(2); }
static void take_4(void) { take(4); }
static void take_1_give_1(void) { give(take(1), 1); }

static void extend_20(void)
{
    if (hak__pool_extend(20, 1, 2))
        note_taken(21, 1);
}
static void unused_21(void) { begin(1u << 21, false); }

/* --- the last slab: close and reopen ------------------------------------------------------------------------------------------ */

static void all_but_one(void) { begin(~1u, false); }
static void all_but_two(void) { begin(~3u, false); }
static void give_0(void) { give(0, 1); }
static void give_1(void) { give(1, 1); }

/* --- pages of unused slabs go back ----------------------------------------------------------------------------------------------- */

static void purge(void) { hak__pool_purge(0, SIZE_MAX); }
static void trim(void) { hak__pool_trim(); }
static void purge_twice(void)
{
    hak__pool_purge(0, SIZE_MAX);
    hak__pool_purge(0, SIZE_MAX);
}
static void take_1_three_times(void)
{
    give(take(1), 1);
    give(take(1), 1);
    give(take(1), 1);
}
static void take_1_give_1_give_5(void)
{
    give(take(1), 1);
    give(5, 1);
}

/* --- a SuperSlab begins to drain while it fills --------------------------------------------------------------------------- */

/* 8 slabs of SuperSlab 0 are used; SuperSlab 1 has room, so that there is who takes over, but for one slab only. */
static void nearly_empty(void)
{
    begin(0xffffff00u, false);
    atomic_store(&in_hands[1], ~0u);
    hak__slabs_open(&hak__supers[1], ALL, false);
    atomic_store(&hak__supers[1].kind, HAK_SUPER_IN_SLABS);
    give(HAK_SUPER_SLABS + 20, 1);
}
static void take_4_near(void)
{
    bool fresh;
    size_t slab = hak__pool_take_near(0, 4, &fresh);
    if (slab != HAK_NO_RUN)
        note_taken(slab, 4);
}
static void step(void) { hak__tiers_step(); }

static void check_tiers(void)
{
    check();
    for (size_t super = 0; super < WORLD_SUPERS; super++) {
        unsigned used = hak__slabs_used(atomic_load(&hak__supers[super].slabs));
        bool draining = atomic_load(&hak__super_words->draining) >> super & 1;
        EXPLORE_EXPECT(!draining || used < HAK_TIER_HIGH, "a well-used SuperSlab drains");
    }
}

/* --- a SuperSlab is held and let go ------------------------------------------------------------------------------------------ */

enum { HOLDER = 1 };

static void hold(void) { hak__pool_assign(0, HOLDER); }
static void let_go(void) { hak__pool_unassign(0, HOLDER); }
static void hold_and_let_go(void)
{
    hold();
    let_go();
}
static void none_unused_held(void)
{
    begin(0, false);
    hold();
}
static void all_but_one_held(void)
{
    all_but_one();
    hold();
}
static void give_0_held(void)
{
    atomic_fetch_and_explicit(&in_hands[0], ~1u, HAK_RELAXED);
    hak__pool_give_assigned(0, 1, HOLDER);
    let_go();
}

static const struct explore_case cases[] = {
    { "a claim empties, a release fills", EXPLORE_ALL, 2, one_unused, { take_1, give_5 }, check },
    { "two claims, one release", 3, 3, one_unused, { take_1, take_1, give_5 }, check },
    { "claims and releases of runs", 3, 3, four_unused, { take_2, give_12_and_13, take_4 }, check },
    { "a run grows into a slab that is claimed", 5, 2, unused_21, { extend_20, take_1 }, check },
    { "the last slab comes back, one is claimed", 4, 2, all_but_one, { give_0, take_1 }, check },
    { "the last two come back, one is claimed", 3, 3, all_but_two, { give_0, give_1, take_1 }, check },
    { "purging while slabs are claimed and released", 3, 3, four_unused, { purge, take_2, give_5 }, check },
    { "two purge at once, and the last slab comes back", 3, 3, all_but_one, { purge, purge, give_0 }, check },
    { "purging, claiming and trimming", 3, 3, four_unused, { purge, take_4, trim }, check },
    { "purging twice while slabs come and go", 4, 2, four_unused, { purge_twice, take_1_give_1_give_5 }, check },
    { "purging while one slab is used again and again", 4, 2, one_unused, { purge, take_1_three_times }, check },
    { "close, reopen, close", 2, 3, all_but_one, { give_0, take_1_give_1, take_1_give_1 }, check,
      .stale = 1 },
    { "a slab comes back while its SuperSlab is let go", EXPLORE_ALL, 2, none_unused_held, { let_go, give_5 }, check },
    { "a slab comes back and is claimed, held and let go meanwhile", 3, 3, none_unused_held,
      { let_go, give_5, take_1 }, check },
    { "one claims, one gives, one holds for a moment", 3, 3, one_unused, { hold_and_let_go, give_5, take_1 }, check },
    { "two hold, a slab comes back", 3, 3, one_unused, { hold_and_let_go, hold_and_let_go, give_5 }, check },
    { "the holder gives the last slab and lets go, another claims", 3, 2, all_but_one_held, { give_0_held, take_1 }, check,
      .stale = 1 },
    { "it fills while it begins to drain", 3, 2, nearly_empty, { step, take_4 }, check_tiers },
    { "it fills from near while it begins to drain", 3, 2, nearly_empty, { step, take_4_near }, check_tiers },
    { "it fills and empties while it begins to drain", 2, 3, nearly_empty, { step, take_4, give_0 }, check_tiers },
};

int main(int argc, char **argv) { return explore_main(cases, sizeof cases / sizeof cases[0], argc, argv); }
