/* hak_profile_start, _stop and _dump: a dump needs a start; with an interval of 1 every block is in it, of whatever size and by
 * whichever function, until it is freed, by any thread; blocks keep their contents, alignment and usable sizes; threads allocate
 * while a profile is switched on and off and dumps are written. */
#include "hakmem.h"
#include "hakmem_stats.h"
#include "support/check.h"
#include "support/memory.h"

enum { KINDS = 7, THREADS = 4, ROUNDS = 3000 };

static const size_t sizes[] = { 1, 16, 100, 1024, 5000, 57344, 57345, 70000, 300000, 1 << 20, (1 << 20) + 1, 5 << 20 };

static void *make(unsigned kind, size_t n)
{
    void *p = NULL;
    switch (kind) {
    case 0: return hak_malloc(n);
    case 1: return hak_calloc(1, n);
    case 2: return hak_aligned_alloc(64, n);
    case 3: return hak_aligned_alloc(4096, n);
    case 4: return hak_realloc(hak_malloc(n / 2 + 1), n);
    case 5: return hak_posix_memalign(&p, 256, n) == 0 ? p : NULL;
    default: return hak_realloc(hak_malloc(n + n / 4), n);
    }
}

/* The figure behind the name, of all sites of a dump in JSON: the second number of each pair, or the first. */
static unsigned long long sum_of(const char *path, const char *name, bool bytes)
{
    char pattern[32], *text = malloc(64 << 20);
    FILE *file = fopen(path, "r");
    unsigned long long sum = 0, count, total;
    expect(file != NULL && text != NULL);
    text[fread(text, 1, (64 << 20) - 1, file)] = 0;
    fclose(file);
    expect(strstr(text, "\"maps\":\"") != NULL);
    snprintf(pattern, sizeof pattern, "\"%s\":[", name);
    for (char *at = text; (at = strstr(at, pattern)) != NULL;) {
        at += strlen(pattern);
        expect_eq(sscanf(at, "%llu,%llu", &count, &total), 2);
        sum += bytes ? total : count;
    }
    free(text);
    return sum;
}

static void sums_now(bool bytes, unsigned long long *allocated, unsigned long long *freed)
{
    char path[] = "profile-XXXXXX.json";
    int fd = mkstemps(path, 5);
    expect(fd >= 0);
    close(fd);
    expect_eq(hak_profile_dump(path), 0);
    *allocated = sum_of(path, "allocated", bytes);
    *freed = sum_of(path, "freed", bytes);
    unlink(path);
}

static unsigned long long live(bool bytes)
{
    unsigned long long allocated, freed;
    sums_now(bytes, &allocated, &freed);
    return allocated - freed;
}

static void a_dump_needs_a_start(void **state)
{
    (void)state;
    expect_eq(hak_profile_dump("never.json"), EINVAL);
    expect(access("never.json", F_OK) != 0);
    hak_profile_stop();
}

static void every_block_at_interval_1(void **state)
{
    enum { SIZES = sizeof sizes / sizeof *sizes };
    unsigned char *blocks[KINDS][SIZES];
    unsigned long long bytes = 0;
    (void)state;
    expect_eq(hak_profile_start(1), 0);
    unsigned long long before = live(false), bytes_before = live(true);
    for (unsigned kind = 0; kind < KINDS; kind++)
        for (unsigned i = 0; i < SIZES; i++) {
            size_t align = kind == 2 ? 64 : kind == 3 ? 4096 : kind == 5 ? 256 : 16;
            unsigned char *p = blocks[kind][i] = make(kind, sizes[i]);
            expect(p != NULL && (uintptr_t)p % align == 0);
            expect_op(hak_usable_size(p), >=, sizes[i]);
            expect(kind != 1 || (p[0] == 0 && p[sizes[i] - 1] == 0));
            memory_fill(p, sizes[i], i);
            bytes += kind < 4 ? sizes[i] : 0;
        }
    expect_eq(live(false) - before, KINDS * SIZES);
    expect_op(live(true) - bytes_before, >=, bytes);
    for (unsigned kind = 0; kind < KINDS; kind++)
        for (unsigned i = 0; i < SIZES; i++) {
            expect(memory_holds(blocks[kind][i], sizes[i], sizes[i], i));
            hak_free(blocks[kind][i]);
        }
    expect_eq(live(false), before);
    hak_profile_stop();
    expect(hak_check_heap());
}

/* What has been sampled at another interval says nothing about the bytes of this one's samples, and is not told. */
static void intervals_are_kept_apart(void **state)
{
    void *blocks[200];
    (void)state;
    expect_eq(hak_profile_start(1), 0);
    unsigned long long before = live(false);
    for (unsigned i = 0; i < 200; i++)
        blocks[i] = hak_malloc(50);
    expect_eq(live(false) - before, 200);
    expect_eq(hak_profile_start(1ull << 40), 0);
    expect_eq(live(false), 0);
    hak_free(blocks[0]);
    expect_eq(hak_profile_start(1), 0);
    expect_eq(live(false) - before, 199);
    for (unsigned i = 1; i < 200; i++)
        hak_free(blocks[i]);
    expect_eq(live(false), before);
    hak_profile_stop();
}

/* A thread whose requests all hit takes part in a profile that begins with a smaller interval. */
static void a_new_interval_reaches_threads_that_hit(void **state)
{
    unsigned long long before, after, freed;
    (void)state;
    expect_eq(hak_profile_start(1ull << 40), 0);
    for (unsigned i = 0; i < 1000; i++)
        hak_free(hak_malloc(64));
    hak_profile_stop();
    expect_eq(hak_profile_start(4096), 0);
    sums_now(false, &before, &freed);
    for (unsigned i = 0; i < 100000; i++)
        hak_free(hak_malloc(64));
    sums_now(false, &after, &freed);
    expect_op(after - before, >, 100000 * 64 / 4096 / 2);
    hak_profile_stop();
}

static size_t resident_of(char *const *blocks, unsigned count, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), sum = 0;
    for (unsigned i = 0; i < count; i++)
        for (uintptr_t at = ((uintptr_t)blocks[i] + page - 1) & ~(page - 1); at + page <= (uintptr_t)blocks[i] + size; at += page) {
            unsigned char resident;
            expect_eq(mincore((void *)at, page, &resident), 0);
            sum += resident & 1 ? page : 0;
        }
    return sum;
}

/* A sampled block that is freed and allocated again is not faulted in each time; what many have left is discarded. */
static void large_samples_leave_little(void **state)
{
    enum { BLOCKS = 200, SIZE = 48 << 10, KEPT = 1 << 20 };
    char *blocks[BLOCKS];
    struct rusage before, after;
    (void)state;
    if (sysconf(_SC_PAGESIZE) > SIZE / 2)
        skip();   /* blocks with hardly a whole page */
    expect_eq(hak_profile_start(1), 0);
    for (unsigned round = 0; round < 120; round++) {
        if (round == 20)
            getrusage(RUSAGE_SELF, &before);
        blocks[0] = memset(hak_malloc(SIZE), 1, SIZE);
        hak_free(blocks[0]);
    }
    getrusage(RUSAGE_SELF, &after);
    expect_op(after.ru_minflt - before.ru_minflt, <, 400);   /* a fault for each page would be 1,200; sanitizers have some */
    for (unsigned i = 0; i < BLOCKS; i++)
        blocks[i] = memset(hak_malloc(SIZE), 1, SIZE);
    expect_op(resident_of(blocks, BLOCKS, SIZE), >, 2 * KEPT);
    for (unsigned i = 0; i < BLOCKS; i++)
        hak_free(blocks[i]);
    expect_op(resident_of(blocks, BLOCKS, SIZE), <=, KEPT);
    hak_profile_stop();
}

static void *one_huge(void *kind) { return make((unsigned)(uintptr_t)kind, 5 << 20); }

static void a_thread_of_one_huge_block(void **state)
{
    (void)state;
    expect_eq(hak_profile_start(1), 0);
    for (uintptr_t kind = 0; kind < KINDS; kind++) {
        unsigned long long before = live(true);
        pthread_t thread;
        void *block = NULL;
        expect_eq(pthread_create(&thread, NULL, one_huge, (void *)kind), 0);
        expect_eq(pthread_join(thread, &block), 0);
        expect(block != NULL);
        expect_op(live(true) - before, >=, 5 << 20);
        hak_free(block);
        expect_op(live(true) - before, <, 5 << 20);
    }
    hak_profile_stop();
}

static void *use(void *argument)
{
    struct { unsigned char *p; size_t n; } held[32] = { { NULL, 0 } };
    unsigned seed = (unsigned)(uintptr_t)argument;
    for (unsigned i = 0; i < ROUNDS; i++) {
        unsigned slot = (seed = seed * 1103515245 + 12345) >> 16 & 31;
        if (held[slot].p != NULL) {
            expect(held[slot].p[0] == (unsigned char)slot && held[slot].p[held[slot].n - 1] == (unsigned char)slot);
            hak_free(held[slot].p);
        }
        held[slot].n = (seed >> 8) % (i % 50 == 0 ? 200000 : 3000) + 1;
        held[slot].p = make(i % KINDS, held[slot].n);
        expect(held[slot].p != NULL);
        held[slot].p[0] = held[slot].p[held[slot].n - 1] = (unsigned char)slot;
    }
    for (unsigned slot = 0; slot < 32; slot++)
        hak_free(held[slot].p);
    return NULL;
}

static void switched_beside_threads(void **state)
{
    pthread_t threads[THREADS];
    (void)state;
    for (uintptr_t i = 0; i < THREADS; i++)
        expect_eq(pthread_create(&threads[i], NULL, use, (void *)(i + 1)), 0);
    for (unsigned i = 0; i < 30; i++) {
        expect_eq(hak_profile_start(1000), 0);
        live(false);
        if (i % 2 == 0)
            hak_profile_stop();
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    hak_profile_stop();
    expect(hak_check_heap());
}

static struct hak_stats stats_now(void)
{
    struct hak_stats out;
    expect_eq(hak_stats_snapshot(&out, sizeof out), 0);
    return out;
}

/* Live bytes are the same, up to rounding, whether blocks are sampled or not. */
static void samples_are_live(void **state)
{
    enum { MANY = 1000, EACH = 1024 };
    static void *blocks[MANY];
    (void)state;
    expect_eq(hak_profile_start(1), 0);
    struct hak_stats before = stats_now();
    for (unsigned i = 0; i < MANY; i++)
        blocks[i] = make(i % 3, EACH);
    struct hak_stats full = stats_now();
    expect_op(full.bytes_live - before.bytes_live, >=, MANY * EACH);
    expect_op(full.bytes_live - before.bytes_live, <=, MANY * EACH + 65536);
    expect_op(full.total_live - before.total_live, >=, MANY);
    for (unsigned i = 0; i < MANY; i++)
        hak_free(blocks[i]);
    struct hak_stats after = stats_now();
    expect_op(after.bytes_live, <=, before.bytes_live + 65536);
    expect_eq(after.total_live, before.total_live);
    hak_profile_stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dump_needs_a_start),
        cmocka_unit_test(every_block_at_interval_1),
        cmocka_unit_test(intervals_are_kept_apart),
        cmocka_unit_test(samples_are_live),
        cmocka_unit_test(a_new_interval_reaches_threads_that_hit),
        cmocka_unit_test(large_samples_leave_little),
        cmocka_unit_test(a_thread_of_one_huge_block),
        cmocka_unit_test(switched_beside_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
