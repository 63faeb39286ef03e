/* profile/sampler.c and switch.c beside tracers: sampling begins when the semaphore of the probes is counted up and ends when it is 0
 * again; for tracers alone no stack is taken and no dump is written, and a profile of the library's own neither ends nor begins with
 * them; a sample's weight is n / (1 - exp(-n / mean)); a process limited to few addresses keeps most of them; samples count against
 * HAKMEM_LIMIT; the probes' notes are in the file. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "hakmem.h"
#include "hakmem_stats.h"
#include "os/groups.h"
#include "profile/sites.h"
#include "support/heaps.h"

#if HAK_HAS_PROBES
static void attach(int change)
{
    hak__profile_tracers = (uint16_t)(hak__profile_tracers + change);
    hak__profile_poll(NULL, 0);
}

static struct hak_profile_site *site_of(void *block)
{
    expect(hak__sample_has(block));
    return hak__sample_record_of(block)->site;
}

static uint32_t counts(void) { return hak_load(&hak__profile.counts, HAK_RELAXED); }

static unsigned sites(void)
{
    struct hak_profile_site *site = NULL;
    unsigned found = 0;
    for (uint32_t bucket = 0; hak__profile_site_next(&bucket, &site);)
        found++;
    return found;
}

FRESH_TEST(tracers_alone)
{
    (void)argument;
    hak_free(hak_malloc(1));
    hak__options_read_from("profile_interval:1", NULL);
    attach(2);
    expect_eq(counts(), HAK_PROFILE_TRACED);
    hak_label_set("tenant", "unseen");
    void *block = hak_malloc(100), *large = hak_malloc(100000);
    struct hak_profile_site *site = site_of(block);
    expect(site->frame_count == 0 && site->labels == NULL && hak__in_place_find(large, false)->site == site);
    expect_eq(sites(), 0);
    expect_eq(hak_profile_dump("never.json"), EINVAL);
    attach(-1);
    expect_eq(counts(), HAK_PROFILE_TRACED);
    attach(-1);
    expect_eq(counts(), 0);
    expect(!hak__sample_has(hak_malloc(100)));
    hak_free(block);
    hak_free(large);
    expect(hak_check_heap());
}

FRESH_TEST(beside_a_profile)
{
    (void)argument;
    expect_eq(hak_profile_start(1), 0);
    attach(1);
    expect_eq(counts(), HAK_PROFILE_ASKED | HAK_PROFILE_TRACED);
    expect(site_of(hak_malloc(100))->frame_count != 0);
    hak_profile_stop();
    expect_eq(counts(), HAK_PROFILE_TRACED);
    unsigned before = sites();
    expect(site_of(hak_malloc(100))->frame_count == 0 && sites() == before);
    expect_eq(hak_profile_start(1), 0);
    attach(-1);
    expect_eq(counts(), HAK_PROFILE_ASKED);
    expect(site_of(hak_malloc(100))->frame_count != 0);
    hak_profile_stop();
    expect_eq(counts(), 0);
}
#endif

/* 1 - exp(-x), by halves and the series. */
static long double chance(long double x)
{
    long double sum = 0, term = 1;
    if (x > 0.5L) {
        long double half = chance(x / 2); /* 1 - h * h, of h = 1 - half */
        return half * (2 - half);
    }
    for (unsigned i = 1; i < 30; i++)
        sum -= term *= -x / i;
    return sum;
}

static void weights(void **state)
{
    (void)state;
    for (uint64_t mean = 2; mean < 1ull << 40; mean = mean * 3 + 1)
        for (uint64_t n = 1; n < 1ull << 44; n = n * 5 / 4 + 1) {
            struct hak_profile_site site = { .interval = mean };
            long double right = (long double)n / chance((long double)n / (long double)mean);
            long double off = (long double)hak__profile_weight(&site, n) - right;
            expect((off < 0 ? -off : off) <= 0.5L + right * 1e-5L);
        }
    struct hak_profile_site all = { .interval = 1 };
    expect(hak__profile_weight(&all, 0) == 0 && hak__profile_weight(&all, 7) == 7);
}

/* Of few addresses a profile leaves most to the program. (An emulator takes a limit of addresses and does not set it.) */
FRESH_TEST_UNLESS(few_addresses, is_emulated())
{
    enum { LEFT = 32 << 20 };
    struct hak_os_process before, after;
    (void)argument;
    hak_free(hak_malloc(1));
    hak__os_process_look(&before);
    if (HAK_ASAN || HAK_TSAN) /* whose own addresses are beyond any limit */
        return;
    expect_eq(setrlimit(RLIMIT_AS, &(struct rlimit){ before.addresses + LEFT, before.addresses + LEFT }), 0);
    expect_eq(hak_profile_start(1), 0);
    hak__os_process_look(&after);
    expect_op(after.addresses - before.addresses, <=, LEFT / 4);
    void *block = hak_malloc(100);
    expect(hak__sample_has(block));
    hak_free(block);
}

/* Samples count against the limit and as mapped; at the limit blocks are served unsampled; what is freed serves other requests. */
FRESH_TEST(limited)
{
    enum { LIMIT = 64 << 20, N = 1000, ROUNDS = 3 };
    static void *blocks[2 * LIMIT / N];
    (void)argument;
    hak_free(hak_malloc(1));
    hak__options_read_from("limit:64M", NULL);
    expect_eq(hak_profile_start(1), 0);
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct hak_stats stats;
        size_t count = 0, sampled = 0;
        while (count < sizeof blocks / sizeof *blocks && (blocks[count] = hak_malloc(N)) != NULL)
            sampled += hak__sample_has(blocks[count++]);
        expect(count * N <= LIMIT && count * N >= LIMIT / 10 * 8 && sampled < count && sampled != 0);
        expect_eq(hak_stats_snapshot(&stats, sizeof stats), 0);
        expect(stats.bytes_live <= stats.bytes_mapped && stats.bytes_mapped <= LIMIT && stats.total_peak_bytes <= LIMIT);
        expect(hak__arena_is_valid());
        while (count != 0)
            hak_free(blocks[--count]);
        expect_eq(hak__arena_state.samples, 0);
        void *huge = hak_malloc(LIMIT / 10 * 8);
        expect(huge != NULL);
        hak_free(huge);
    }
    expect(hak_check_heap());
}

#if !HAK_ASAN && !HAK_TSAN
#if defined(__x86_64__)
#define PLACES "8@%rdi 8@%rsi 8@%rdx"
#elif defined(__aarch64__)
#define PLACES "8@x0 8@x1 8@x2"
#else
#define PLACES "8@a0 8@a1 8@a2"
#endif

/* Tracers find a probe by its note in the file: on every processor. */
static void notes_in_the_file(void **state)
{
    (void)state;
    static char file[16 << 20], note[64]; /* put together here, so that the file has it once */
    size_t size = 1 + (size_t)snprintf(note, sizeof note, "%s%c%s%c%s", "otel_memory", 0, "alloc", 0, PLACES);
    FILE *self = fopen("/proc/self/exe", "rb");
    expect(self != NULL);
    size_t length = fread(file, 1, sizeof file, self);
    fclose(self);
    expect(length != sizeof file);
    expect(memmem(file, length, note, size) != NULL);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
#if HAK_HAS_PROBES
        cmocka_unit_test(tracers_alone),
        cmocka_unit_test(beside_a_profile),
#endif
#if !HAK_ASAN && !HAK_TSAN
        cmocka_unit_test(notes_in_the_file),
#endif
        cmocka_unit_test(few_addresses),
        cmocka_unit_test(limited),
        cmocka_unit_test(weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
