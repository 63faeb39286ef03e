/* span/pool.h: a claim gets the lowest run that is long enough, used-before slabs first, and says truthfully
 * whether they are fresh; levels name the run lengths that there are; only an empty SuperSlab closes; threads that
 * claim at once never get the same slab; and finding a run takes the same few instructions wherever it lies. */
#include "span/pool.h"

#include "support/check.h"
#include "support/steps.h"

static struct hak_super super;

static void set(uint32_t unused, uint32_t dirty) { atomic_store(&super.slabs, (uint64_t)dirty << 32 | unused); }
static uint32_t unused_now(void) { return hak__slabs_unused(atomic_load(&super.slabs)); }
static uint32_t dirty_now(void) { return hak__slabs_dirty(atomic_load(&super.slabs)); }

static uint32_t claim(unsigned count, bool *fresh)
{
    uint64_t left = 0;
    uint32_t at = hak__slabs_claim(&super, count, fresh, &left);
    expect_eq(left, atomic_load(&super.slabs));
    return at;
}

static void opened(void **state)
{
    (void)state;
    for (unsigned count = 0; count <= 16; count++) {
        hak__slabs_open(&super, count, true);
        expect_eq(unused_now(), ~hak_ones32(count));
        expect_eq(dirty_now(), hak_ones32(count));
        hak__slabs_open(&super, count, false);
        expect_eq(unused_now(), ~hak_ones32(count));
        expect_eq(dirty_now(), ~0u);
    }
}

static void used_before_is_preferred(void **state)
{
    bool fresh;
    (void)state;
    set(0xff, 0xf0);
    expect_eq(claim(1, &fresh), 4);
    expect(!fresh);
    expect_eq(claim(2, &fresh), 5);
    expect(!fresh);
    expect_eq(claim(2, &fresh), 0);   /* one dirty slab is left: too short */
    expect(fresh);
    expect_eq(claim(3, &fresh), HAK_NO_SLAB);
    expect_eq(unused_now(), 0x8c);
    expect_eq(dirty_now(), 0xf3);
}

static void fresh_is_honest(void **state)
{
    bool fresh;
    (void)state;
    set(0xf0, 0x0f);
    expect_eq(claim(4, &fresh), 4);
    expect(fresh);
    set(0x3c, 0x0c);
    expect_eq(claim(3, &fresh), 2);   /* a mixed run is not fresh */
    expect(!fresh);
}

/* Purging: runs of unused slabs with old data are claimed whole, and come back as holding nothing. */
static void dirty_runs(void **state)
{
    unsigned first = 99, count = 99;
    uint64_t left;
    (void)state;
    set(0x0ff0, 0xc3c3);
    expect(hak__slabs_claim_dirty(&super, &first, &count, &left));
    expect_eq(first, 6);
    expect_eq(count, 4);
    expect_eq(unused_now(), 0x0c30);
    hak__slabs_release_clean(&super, first, count);
    expect_eq(unused_now(), 0x0ff0);
    expect_eq(dirty_now(), 0xc003);
    expect(!hak__slabs_claim_dirty(&super, &first, &count, &left));   /* what is dirty is used */
    set(~0u, ~0u);
    expect(hak__slabs_claim_dirty(&super, &first, &count, &left));
    expect_eq(first, 0);
    expect_eq(count, 32);
}

/* Against the plainest search, over random words. */
static uint32_t lowest_run(uint32_t mask, unsigned count)
{
    for (unsigned at = 0; at + count <= 32; at++)
        if ((mask >> at & hak_ones32(count)) == hak_ones32(count))
            return at;
    return HAK_NO_SLAB;
}

static void claims_of_random_words(void **state)
{
    struct rng rng = { 4 };
    (void)state;
    for (unsigned round = 0; round < 20000; round++) {
        uint32_t unused = (uint32_t)(rng_next(&rng) | rng_next(&rng)), dirty = (uint32_t)rng_next(&rng);
        unsigned count = 1 + (unsigned)rng_below(&rng, 16);
        bool fresh;
        uint32_t wanted = lowest_run(unused & dirty, count);
        if (wanted == HAK_NO_SLAB)
            wanted = lowest_run(unused, count);
        set(unused, dirty);
        expect_eq(claim(count, &fresh), wanted);
        uint32_t run = wanted == HAK_NO_SLAB ? 0 : hak_ones32(count) << wanted;
        expect_eq(unused_now(), unused & ~run);
        expect_eq(dirty_now(), dirty | run);
        expect(run == 0 || fresh == ((dirty & run) == 0));
    }
}

static void claim_at(void **state)
{
    uint64_t left;
    (void)state;
    set(0xf0, 0);
    expect(!hak__slabs_claim_at(&super, 3, 2, &left));
    expect(!hak__slabs_claim_at(&super, 7, 2, &left));
    expect_eq(unused_now(), 0xf0);
    expect(hak__slabs_claim_at(&super, 5, 2, &left));
    expect_eq(left, atomic_load(&super.slabs));
    expect_eq(unused_now(), 0x90);
    expect_eq(dirty_now(), 0x60);
    set(~0u, 0);
    expect(!hak__slabs_claim_at(&super, 31, 2, &left));   /* over the end */
    expect(hak__slabs_claim_at(&super, 31, 1, &left));
}

static void levels(void **state)
{
    struct rng rng = { 5 };
    (void)state;
    for (unsigned run = 1; run <= 16; run++)
        expect_eq(1u << hak__level_of(run) >= run && (run == 1 || 1u << (hak__level_of(run) - 1) < run), 1);
    expect_eq(hak__slabs_levels(0), 0);
    expect_eq(hak__slabs_levels(~0u), HAK_LEVELS);
    for (unsigned round = 0; round < 5000; round++) {
        uint32_t unused = (uint32_t)(rng_next(&rng) | (round % 3 ? rng_next(&rng) : 0));
        unsigned n = 0;
        while (n < HAK_LEVELS && lowest_run(unused, 1u << n) != HAK_NO_SLAB)
            n++;
        expect_eq(hak__slabs_levels(unused), n);
    }
}

static void released_and_closed(void **state)
{
    bool fresh;
    (void)state;
    hak__slabs_open(&super, 3, true);
    expect(!hak__slabs_close(&super));
    expect_eq(hak__slabs_unused(hak__slabs_release(&super, 1, 2)), ~1u);
    expect(!hak__slabs_close(&super));
    expect_eq(hak__slabs_unused(hak__slabs_release(&super, 0, 1)), ~0u);
    expect_eq(dirty_now(), 7);
    expect(hak__slabs_close(&super));
    expect_eq(unused_now(), 0);
    expect(!hak__slabs_close(&super));
    expect_eq(claim(1, &fresh), HAK_NO_SLAB);   /* whoever comes too late gets nothing */
}

static void release_twice(void *argument)
{
    (void)argument;
    hak__slabs_open(&super, 2, true);
    hak__slabs_release(&super, 0, 1);
    hak__slabs_release(&super, 0, 1);
}

static void released_twice(void **state)
{
    char said[SAID_SIZE];
    (void)state;
    int status = run_child(release_twice, NULL, said);
    expect(WIFSIGNALED(status) && strstr(said, "a slab is released twice") != NULL);
}

/* --- threads ------------------------------------------------------------------------------------------------------- */

enum { THREADS = 3, ROUNDS = 4000 };

static _Atomic uint32_t users[HAK_SUPER_SLABS];

static void use(uint32_t at, unsigned count, uint32_t before, uint32_t after)
{
    for (uint32_t i = at; i < at + count; i++)
        expect_eq(atomic_exchange(&users[i], after), before);
}

static void *claim_and_release(void *argument)
{
    struct rng rng = { *(uint32_t *)argument };
    uint32_t me = *(uint32_t *)argument;
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned count = 1 + (unsigned)rng_below(&rng, 6);
        uint64_t left;
        bool fresh;
        uint32_t at = hak__slabs_claim(&super, count, &fresh, &left);
        if (at == HAK_NO_SLAB)
            continue;
        use(at, count, 0, me);
        if (round % 16 == 0)
            sched_yield();
        use(at, count, me, 0);
        hak__slabs_release(&super, at, count);
    }
    return NULL;
}

static void claims_never_overlap(void **state)
{
    uint32_t names[THREADS] = { 1, 2, 3 };
    (void)state;
    set(0xffff, 0);   /* 16 slabs for three threads that want up to 6 */
    run_threads(THREADS, claim_and_release, names, sizeof *names);
    expect_eq(unused_now(), 0xffff);
    expect_eq(dirty_now() & ~0xffffu, 0);
}

/* --- never a scan ---------------------------------------------------------------------------------------------------- */

static void claim_the_only_one(void *argument)
{
    uint64_t left;
    bool fresh;
    set(*(uint32_t *)argument, ~0u);
    hak__slabs_claim(&super, 1, &fresh, &left);
}

static void same_steps_wherever_it_lies(void **state)
{
    uint32_t first = 1, last = 1u << 31;
    (void)state;
    size_t steps = count_steps(claim_the_only_one, &first);
    if (steps == 0)
        skip();
    expect_eq(count_steps(claim_the_only_one, &last), steps);
    expect_op(steps, <, 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opened),
        cmocka_unit_test(used_before_is_preferred),
        cmocka_unit_test(fresh_is_honest), cmocka_unit_test(dirty_runs),
        cmocka_unit_test(claims_of_random_words),
        cmocka_unit_test(claim_at),
        cmocka_unit_test(levels),
        cmocka_unit_test(released_and_closed),
        cmocka_unit_test(released_twice),
        cmocka_unit_test(claims_never_overlap),
        cmocka_unit_test(same_steps_wherever_it_lies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
