/* sample/sample.h: with N = 1 every request is a sample while there are slots and the rate allows it; blocks are zero, aligned as asked, of just
 * the size asked for; what is freed is inaccessible, slots are bounded and used again; the share of refilled blocks that
 * are samples is 1/N; in a full heap realloc shortens them where they are; a system that refuses memory costs samples and nothing else; faults elsewhere reach the program's own
 * handler; and no other memory is lost by it all. */
#include "sample/sample.h"

#include "arena/window.h"
#include "base/bits.h"
#include "hakmem.h"
#include "harden/mode.h"
#include "process/process.h"
#include "profile/sites.h"
#include "support/fake_os.h"
#include "support/heaps.h"
#include "trace/trace.h"

enum { SLOTS = 64, MANY = 200000, BURST = 64, A_SAMPLE_MS = 1000 / SLOTS + 1 };

/* The clock goes on by so much with each look at it: by default far enough for the rate of SLOTS slots to refuse nothing. */
static uint64_t clock_ms = 1000000, clock_step_ms = A_SAMPLE_MS;

static uint64_t stepping_clock(void) { return clock_ms += clock_step_ms; }

static void begin(const char *options)
{
    static struct hak_os system;
    signal(SIGSEGV, SIG_DFL);   /* the test library's own handler would take what ours passes on */
    system = *hak__os;
    system.now_ms = stepping_clock;
    hak__os = &system;
    expect(hak_malloc(1) != NULL);
    hak__options_read_from(options, NULL);
    hak__guarded_begin();
    hak__trace_begin(false);
}

static uint64_t allocated(void) { return hak_load(&hak__sample.allocated, HAK_RELAXED); }

FRESH_TEST(exact_sizes_and_alignments)
{
    (void)argument;
    begin("sample_guards:1,sample_slots:4096");
    for (size_t n = 17; n <= HAK_MID_MAX; n += 1 + n / 5) {   /* begin has left blocks of 16 bytes */
        char *p = hak_malloc(n), *q = hak_calloc(1, n), *r = hak_malloc(n);
        expect(hak__sample_has(p) && hak__sample_has(q) && (uintptr_t)p % HAK_ALIGN == 0);
        expect_eq(hak_usable_size(p), n);
        expect(is_zero(p, n) && is_zero(q, n));
        memset(p, 0x5a, n);
        expect(hak__sample_record_of(p) != hak__sample_record_of(r));
        r = hak_realloc(r, n + 7);
        expect_op(hak_usable_size(r), >=, n + 7);   /* what grows gets room */
        hak_free(p);
        expect(!is_mapped(p));
        hak_free(q);
        hak_free_sized(r, hak_usable_size(r));
    }
    for (size_t align = 16; align <= 32 << 10; align *= 2)
        for (unsigned i = 0; i < 8; i++) {
            void *p = hak_aligned_alloc(align, 100), *q = hak_aligned_alloc(align, 5 * align / 4);
            expect((uintptr_t)p % align == 0 && (uintptr_t)q % align == 0);
            expect(hak__sample_has(p) && hak_usable_size(p) == 100);
            expect(!hak__sample_has(q) || hak_usable_size(q) == 5 * align / 4);
            hak_free(p);
            hak_free(q);
        }
    expect_eq(hak__arena_state.samples, 0);
    expect_eq(hak_load(&hak__sample.freed, HAK_RELAXED), allocated());
}

/* By handle and by default they are the heap's, up to their end or their merging. */
FRESH_TEST(samples_of_user_heaps)
{
    enum { BLOCKS = 30 };
    char *blocks[2 * BLOCKS];
    struct hak_heap_figures figures;
    (void)argument;
    begin("sample_guards:1,sample_slots:4096");
    for (unsigned how = 0; how < 3; how++) {
        hak_heap_t *heap = hak_heap_new(NULL);
        unsigned sampled = 0;
        for (unsigned i = 0; i < 2 * BLOCKS; i++) {
            size_t n = 100 + 90 * i;
            hak_heap_set_default(i < BLOCKS ? NULL : heap);
            blocks[i] = i < BLOCKS ? hak_heap_malloc(heap, n) : hak_malloc(n);
            hak_heap_set_default(NULL);
            memset(blocks[i], 1, n);
            expect(hak_heap_of(blocks[i]) == heap);
            sampled += hak__sample_has(blocks[i]);
        }
        expect_op(sampled, >, BLOCKS);
        expect_eq(hak_heap_stats(heap, &figures, sizeof figures), 0);
        expect_eq(figures.live_blocks, 2 * BLOCKS);
        if (how == 0)
            hak_heap_reset(heap);
        else if (how == 1)
            expect_eq(hak_heap_merge_into_default(heap), 0);
        else
            hak_heap_free(heap, blocks[2 * BLOCKS - 1]);
        for (unsigned i = 0; i < 2 * BLOCKS; i++) {
            expect(how != 0 || !hak__sample_has(blocks[i]) || !is_mapped(blocks[i]));
            expect(how != 1 || (hak_heap_of(blocks[i]) == NULL && blocks[i][0] == 1));
            if (how == 1)
                hak_free(blocks[i]);
        }
        hak_heap_destroy(heap);
        expect_eq(hak__arena_state.samples, 0);
    }
    expect_eq(hak_load(&hak__sample.freed, HAK_RELAXED), allocated());
    expect(hak_check_heap());
}

FRESH_TEST(slots_are_bounded)
{
    static void *blocks[3 * SLOTS];
    (void)argument;
    begin("sample_guards:1,sample_slots:64");
    for (unsigned round = 0; round < 50; round++) {
        unsigned sampled = 0;
        for (unsigned i = 0; i < 3 * SLOTS; i++) {
            expect((blocks[i] = hak_malloc(3000)) != NULL);
            memset(blocks[i], 1, 3000);
            sampled += hak__sample_has(blocks[i]);
        }
        expect_op(sampled, <=, SLOTS);
        expect(round > 0 || sampled == SLOTS);
        expect_op(sampled, >, SLOTS / 2);
        for (unsigned i = 0; i < 3 * SLOTS; i++)
            hak_free(blocks[i]);
        expect(hak_check_heap());
    }
}

/* A slot that was freed lately is not the next one to serve. */
FRESH_TEST(freed_slots_rest)
{
    uintptr_t last[SLOTS] = { 0 };
    unsigned soon = 0;
    (void)argument;
    begin("sample_guards:1,sample_slots:64");
    for (unsigned i = 0; i < 50 * SLOTS; i++) {
        void *p = hak_malloc(64);
        uintptr_t slot = (uintptr_t)hak__sample_record_of(p);
        expect(hak__sample_has(p));
        for (unsigned k = 0; k < 8; k++)
            soon += last[(i + SLOTS - 1 - k) % SLOTS] == slot;
        last[i % SLOTS] = slot;
        hak_free(p);
    }
    expect_op(soon, <, 50 * SLOTS / 50);   /* evenly at random it would be an eighth */
}

/* Blocks that are only taken come from refills, where the rate is exact. */
FRESH_TEST(one_in_n)
{
    (void)argument;
    begin("sample_guards:100,sample_slots:4096");
    for (unsigned i = 0; i < MANY; i++)
        expect(hak_malloc(16 + i % 500) != NULL);
    expect_op(allocated(), >, MANY / 100 * 85 / 100);
    expect_op(allocated(), <, MANY / 100 * 115 / 100);
    expect(hak_check_heap());
}

/* How many of 1000 requests become samples after the clock has gone on by so much. */
static uint64_t sampled_after(uint64_t ms)
{
    uint64_t before = allocated(), refused = hak_load(&hak__sample.refused, HAK_RELAXED);
    clock_ms += ms;
    for (unsigned i = 0; i < 1000; i++) {
        void *p = hak_malloc(100);
        if (hak__sample_has(p))   /* an ordinary block would serve the next request, which then is none to sample */
            hak_free(p);
    }
    expect_op(hak_load(&hak__sample.refused, HAK_RELAXED), >, refused);
    return allocated() - before;
}

/* As many per second as there are slots, after the first 64. */
static void expect_rate(const char *options, unsigned slots)
{
    clock_step_ms = 0;
    begin(options);
    expect_eq(sampled_after(0), BURST);
    expect_eq(sampled_after(0), 0);
    expect_eq(sampled_after(20), slots / 50);
    expect_eq(sampled_after(100), slots / 10);
    expect_eq(sampled_after(1000 * 1000), BURST);
}

FRESH_TEST(rate_is_limited) { (void)argument, expect_rate("sample_guards:1,sample_slots:500", 500); }
FRESH_TEST(rate_follows_the_slots) { (void)argument, expect_rate("sample_guards:1,sample_slots:100", 100); }

/* No memory for samples, or foreign memory in their range: ordinary blocks serve. */
FRESH_TEST(refusals_cost_samples)
{
    (void)argument;
    fake_install();
    expect(hak_malloc(1) != NULL);
    begin("sample_guards:1,sample_slots:64");
    fake.map_refused_from = hak__guarded_start();
    fake.map_refused_to = fake.map_refused_from + HAK_GUARDED_SIZE / 2;
    for (unsigned i = 0; i < 2 * SLOTS; i++)
        expect(!hak__sample_has(hak_malloc(50)));
    expect_eq(allocated(), 0);
    expect(hak_check_heap());
}

FRESH_TEST(frees_that_cannot_unmap)
{
    (void)argument;
    fake_install();
    begin("sample_guards:1,sample_slots:64");
    void *p = hak_malloc(50);
    fake.refuse_unmap = true;
    hak_free(p);
    for (unsigned i = 0; i < 3 * SLOTS; i++)
        expect(hak_malloc(60) != NULL);
    fake.refuse_unmap = false;
    size_t before = allocated();
    for (unsigned i = 0; i < 3 * SLOTS; i++)
        expect(hak_malloc(60) != NULL);
    expect_op(allocated(), >, before);
}

/* Bins that refills leave short for samples grow, drain, are flushed and looked at: no block is lost or served twice. */
FRESH_TEST(short_refills_keep_the_books)
{
    static void *blocks[4096];
    struct rng rng = { 5 };
    (void)argument;
    begin("sample_guards:7,sample_slots:256");
    for (unsigned i = 0; i < MANY; i++) {
        unsigned at = (unsigned)rng_below(&rng, 4096);
        hak_free(blocks[at]);
        blocks[at] = hak_malloc(rng_below(&rng, 2000));
        expect(blocks[at] != NULL);
        if (i % 20000 == 0) {
            expect(hak_check_heap());
            hak_collect();
        }
    }
    for (unsigned i = 0; i < 4096; i++)
        hak_free(blocks[i]);
    hak_collect();
    expect(hak_check_heap());
    struct hak_heap *heap = hak__heap_current();
    for (uint32_t class = 1; class < HAK_CLASSES; class++)   /* begin's block stays */
        expect_eq(heap_live(heap, class), 0);
}

/* --- reports ---------------------------------------------------------------------------------------------------------- */

static char *volatile victim;
static volatile char sink;

static void use_after_free(void *argument) { (void)argument, hak_free(victim), sink = victim[3]; }
static void free_twice(void *argument) { (void)argument, hak_free(victim), hak_free(victim); }
static void free_inside(void *argument) { (void)argument, hak_free(victim + 8); }
static void resize_freed(void *argument) { (void)argument, hak_free(victim), hak_realloc(victim, 5); }
static void run_over(void *argument) { (void)argument; for (int i = 0; i < 1 << 20; i++) victim[40 + i] = 1; }
static void run_under(void *argument) { (void)argument; for (int i = 1; i < 1 << 20; i++) victim[-i] = 1; }
static void write_behind(void *argument) { (void)argument, victim[40] = 0, hak_free(victim); }
static void write_before(void *argument) { (void)argument, victim[-1] = 0, hak_free(victim); }

static const struct report {
    void (*act)(void *argument);
    int signal;
    const char *line, *event;
} reports[] = {
    { use_after_free, SIGSEGV, "hakmem: use after free: ", "inside a freed sampled block of 40 bytes, offset 3" },
    { free_twice, SIGABRT, "hakmem: free(): double free of ", "(40-byte block)\n" },
    { free_inside, SIGABRT, "hakmem: free(): invalid pointer ", "not the start of a block\n" },
    { resize_freed, SIGABRT, "hakmem: realloc(): invalid pointer ", "this block is free\n" },
    { run_over, SIGSEGV, "hakmem: overflow: ", "beyond the end of a live sampled block of 40 bytes" },
    { run_under, SIGSEGV, "hakmem: underflow: ", "before a live sampled block of 40 bytes" },
};

FRESH_TEST(reports_say_what_it_was)
{
    char said[SAID_SIZE];
    (void)argument;
    begin("sample_guards:1");
    for (size_t i = 0; i < sizeof reports / sizeof reports[0]; i++) {
        victim = hak_malloc(40);
        int status = run_child(reports[i].act, NULL, said);
        expect(WIFSIGNALED(status) && WTERMSIG(status) == reports[i].signal);
        expect(strncmp(said, reports[i].line, strlen(reports[i].line)) == 0);
        expect(strstr(said, reports[i].event) != NULL);
        expect(strstr(said, "  allocated by thread ") != NULL && strstr(said, "test_sample+0x") != NULL);
    }
}

/* Which side has slack depends on the side at which the block lies, which is random; both turn up. */
FRESH_TEST(slack_is_checked)
{
    unsigned over = 0, under = 0;
    char said[SAID_SIZE];
    (void)argument;
    begin("sample_guards:1");
    for (unsigned i = 0; i < 12; i++) {
        victim = hak_malloc(40);
        int status = run_child(write_behind, NULL, said);   /* 40 is no multiple of 16: there is slack on either side */
        expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
        over += strstr(said, "free(): overflow of ") != NULL;
        status = run_child(write_before, NULL, said);
        expect(WIFSIGNALED(status));
        under += strstr(said, "free(): underflow of ") != NULL || strstr(said, "underflow: ") != NULL;
    }
    expect_eq(over, 12);
    expect_eq(under, 12);
}

/* --- the program's own handler ------------------------------------------------------------------------------------- */

static sigjmp_buf back;
static volatile unsigned handled;

static void own_handler(int number)
{
    (void)number;
    handled++;
    siglongjmp(back, 1);
}

FRESH_TEST(other_faults_are_passed_on)
{
    (void)argument;
    expect(hak_malloc(1) != NULL);
    signal(SIGSEGV, own_handler);
    hak__options_read_from("sample_guards:1", NULL);
    hak__guarded_begin();
    for (unsigned i = 0; i < 5; i++)
        if (sigsetjmp(back, 1) == 0)
            sink = *(volatile char *)(uintptr_t)64;
    expect_eq(handled, 5);
}

/* In hardened mode a user heap's request has its own size there, not one that is a multiple of its alignment: so no wide one is sampled. */
FRESH_TEST(hardened_heaps_align)
{
    unsigned sampled = 0;
    (void)argument;
    begin("harden:1,sample_guards:1,sample_slots:4096");
    hak__hardened_begin();
    hak_heap_t *heap = hak_heap_new(NULL);
    for (size_t align = 16; align <= 4096; align *= 2)
        for (size_t n = 24; n <= 5000; n += 112) {
            void *p = hak_heap_aligned_alloc(heap, align, n);
            expect_eq((uintptr_t)p % align, 0);
            expect_eq(hak_usable_size(p), n);
            sampled += hak__sample_has(p);
        }
    expect_op(sampled, >, 20);
    hak_heap_destroy(heap);
}

/* A request that both ask for gets guard pages and counts; one for which there are none still counts. */
FRESH_TEST(one_block_serves_both)
{
    static void *blocks[2 * SLOTS];
    unsigned with = 0, without = 0;
    (void)argument;
    begin("sample_guards:1,sample_slots:64");
    hak__profile_begin();
    expect_eq(hak_profile_start(1), 0);
    uint64_t before = hak_load(&hak__profile.samples, HAK_RELAXED), guards = allocated();
    for (unsigned i = 0; i < 2 * SLOTS; i++) {
        blocks[i] = i % 2 == 0 ? hak_malloc(300) : hak_aligned_alloc(4096, 300);
        const struct hak_record *record = hak__sample_record_of(blocks[i]);
        expect(record->site != NULL && record->bytes == 300 && hak_load(&record->state, HAK_RELAXED) == HAK_SAMPLE_LIVE);
        expect_eq((uintptr_t)blocks[i] % (i % 2 == 0 ? HAK_ALIGN : 4096), 0);
        with += hak__guarded_has(blocks[i]);
        without += hak__slots_have(blocks[i]);
    }
    expect_eq(hak_load(&hak__profile.samples, HAK_RELAXED) - before, 2 * SLOTS);
    expect_eq(allocated() - guards, with);
    expect(with != 0 && without != 0);
    struct hak_profile_site *site = hak__sample_record_of(blocks[0])->site;
    uint64_t freed = hak_load(&site->freed, HAK_RELAXED);
    hak_free(blocks[0]);
    expect_eq(hak_load(&site->freed, HAK_RELAXED), freed + 1);
    hak_profile_stop();
    hak_free(blocks[1]);   /* counted while the profile ran */
    expect(hak_check_heap());
}

/* --- full heaps ------------------------------------------------------------------------------------------------------------ */

static uint64_t profiled_bytes(void)
{
    struct hak_profile_site *site = NULL;
    uint64_t bytes = 0;
    for (uint32_t bucket = 0; hak__profile_site_next(&bucket, &site);)
        bytes += hak_load(&site->allocated_bytes, HAK_RELAXED) - hak_load(&site->freed_bytes, HAK_RELAXED);
    return bytes;
}

static void fill_up(hak_heap_t *heap)
{
    while (hak_heap_malloc(heap, 16) != NULL)
        ;
}

/* A guarded block, and one in a slot of its class in a hardened process: it has just the new size, to the heap, its limit and the profile. */
static void shrink_in_a_full_heap(const char *options, bool hardened)
{
    enum { BLOCKS = 500, LENGTH = 5000, LIMIT = 2 << 20 };
    static char *blocks[BLOCKS];
    struct hak_heap_figures before, after;
    unsigned count = 0, guarded = 0, in_slots = 0;
    begin(options);
    if (hardened)
        hak__hardened_begin();
    expect_eq(hak_profile_start(1), 0);
    hak_heap_t *heap = hak_heap_new(&(struct hak_heap_options){ .size = sizeof(struct hak_heap_options), .limit = LIMIT });
    while (count < BLOCKS && (blocks[count] = hak_heap_malloc(heap, LENGTH)) != NULL)
        memset(blocks[count++], 5, LENGTH);
    for (unsigned i = 0; i < count; i++) {
        size_t n = 1 + i * 177 % (LENGTH - 1);
        if (!hak__sample_has(blocks[i]) || (!hardened && !hak__guarded_has(blocks[i])))
            continue;
        fill_up(heap);
        expect_eq(hak_heap_stats(heap, &before, sizeof before), 0);
        uint64_t profiled = profiled_bytes();
        errno = 77;
        char *shorter = hak_realloc(blocks[i], n);
        expect_eq(errno, 77);
        if (shorter != blocks[i]) /* a span had a block of this size */
            continue;
        expect_eq(hak_usable_size(shorter), n);
        expect_eq(profiled - profiled_bytes(), LENGTH - n);
        expect_eq(hak_heap_stats(heap, &after, sizeof after), 0);
        expect_eq(before.live_bytes - after.live_bytes, LENGTH - n);
        expect_eq(before.live_blocks, after.live_blocks);
        expect_op(before.used_bytes - after.used_bytes, >=, LENGTH - n);
        expect(blocks[i][0] == 5 && blocks[i][n - 1] == 5);
        if (hak__guarded_has(blocks[i])) {
            char *end = (char *)hak_align_up((uintptr_t)blocks[i] + n, hak__page_size());
            expect(!is_mapped(end));
            for (char *at = blocks[i] + n; at < end && at < blocks[i] + n + HAK_SAMPLE_SLACK_MOST; at++)
                expect_eq((unsigned char)*at, HAK_SAMPLE_SLACK_BYTE);
        }
        *(hak__guarded_has(blocks[i]) ? &guarded : &in_slots) += 1;
        if (i % 2 == 0)
            hak_free_sized(blocks[i], n);
    }
    expect_op(guarded, >, 5);
    expect(!hardened || in_slots > 5);
    expect(hak_check_heap());
    hak_heap_destroy(heap);
    expect_eq(profiled_bytes(), 0);
    expect_eq(hak_load(&hak__sampled.bytes, HAK_RELAXED), 0);
}

FRESH_TEST(guarded_blocks_shrink_in_a_full_heap)
{
    (void)argument;
    shrink_in_a_full_heap("sample_guards:1,sample_slots:64", false);
}

FRESH_TEST(hardened_samples_shrink_in_a_full_heap)
{
    (void)argument;
    shrink_in_a_full_heap("harden:1,sample_guards:1,sample_slots:64", true);
}

/* Its class is a large one, whatever it is asked for by now. */
FRESH_TEST(a_hardened_large_block_is_counted_on)
{
    static const size_t lengths[] = { 40000, 45000, 36000, 60000 };
    (void)argument;
    begin("harden:1");
    hak__hardened_begin();
    expect_eq(hak_profile_start(1), 0);
    char *p = hak_malloc(60000);
    for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        expect_ptr(hak_realloc(p, lengths[i]), p);
        expect_eq(profiled_bytes(), lengths[i]);
    }
    hak_free(p);
    expect_eq(profiled_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_sizes_and_alignments),
        cmocka_unit_test(samples_of_user_heaps),
        cmocka_unit_test(slots_are_bounded),
        cmocka_unit_test(freed_slots_rest),
        cmocka_unit_test(one_in_n),
        cmocka_unit_test(rate_is_limited),
        cmocka_unit_test(rate_follows_the_slots),
        cmocka_unit_test(refusals_cost_samples),
        cmocka_unit_test(frees_that_cannot_unmap),
        cmocka_unit_test(short_refills_keep_the_books),
        cmocka_unit_test(reports_say_what_it_was),
        cmocka_unit_test(slack_is_checked),
        cmocka_unit_test(other_faults_are_passed_on),
        cmocka_unit_test(hardened_heaps_align),
        cmocka_unit_test(one_block_serves_both),
        cmocka_unit_test(guarded_blocks_shrink_in_a_full_heap),
        cmocka_unit_test(hardened_samples_shrink_in_a_full_heap),
        cmocka_unit_test(a_hardened_large_block_is_counted_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
