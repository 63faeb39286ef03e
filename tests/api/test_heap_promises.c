/* What include/hakmem.h promises of heaps in the corners: whose a block is, whatever was there before; NULL as a heap; callbacks that
 * allocate; realloc and defaults; the walk over all heaps; what is left of heaps that have ended. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "hakmem_region.h"
#include "hakmem_stats.h"
#include "harden/mode.h"
#include "heap/heap.h"
#include "support/check.h"
#include "support/memory.h"

enum { LONG = 1500000 };

static hak_heap_t *new_heap(size_t limit, hak_heap_pressure *pressure, void *argument)
{
    hak_heap_t *heap = hak_heap_new(&(struct hak_heap_options){
        .size = sizeof(struct hak_heap_options), .limit = limit, .pressure = pressure, .argument = argument });
    expect(heap != NULL);
    return heap;
}

static hak_heap_t *new_region(void *region, size_t size, hak_heap_pressure *pressure, void *argument)
{
    hak_heap_t *heap = hak_heap_new(&(struct hak_heap_options){ .size = sizeof(struct hak_heap_options), .region = region,
                                        .region_size = size, .pressure = pressure, .argument = argument });
    expect(heap != NULL);
    return heap;
}

static struct hak_heap_figures figures_of(hak_heap_t *heap)
{
    struct hak_heap_figures figures;
    expect_eq(hak_heap_stats(heap, &figures, sizeof figures), 0);
    return figures;
}

/* --- whose a block is ----------------------------------------------------------------------------------------------------- */

enum { HUGE_BLOCKS = 40, SMALL_BLOCKS = 4000 };

/* Huge blocks of malloc lie where spans of a heap have ended in each of the ways that there are. */
static void huge_blocks_behind(hak_heap_t *heap, void (*end)(hak_heap_t *heap, char **small))
{
    static char *small[SMALL_BLOCKS], *huge[HUGE_BLOCKS];
    for (int i = 0; i < HUGE_BLOCKS; i++)
        memset(huge[i] = hak_malloc(LONG), 3, LONG);
    for (int i = 0; i < HUGE_BLOCKS; i++)   /* the heap's slabs are to lie in memory that was used before */
        hak_free(huge[i]);
    for (int i = 0; i < SMALL_BLOCKS; i++)
        memset(small[i] = hak_heap_malloc(heap, i % 8 == 0 ? 100000 : 5000), 1, 5000);
    end(heap, small);
    hak_collect();
    for (int i = 0; i < HUGE_BLOCKS; i++) {
        memset(huge[i] = hak_malloc(LONG), 2, LONG);
        expect(hak_heap_of(huge[i]) == NULL);
        if (i % 2 == 0)
            huge[i] = hak_realloc(huge[i], i % 4 == 0 ? 100 : 2 * LONG);
        expect_eq(huge[i][99], 2);
    }
    for (int i = 0; i < HUGE_BLOCKS; i++)
        hak_free(huge[i]);
}

static void free_all(hak_heap_t *heap, char **small)
{
    for (int i = 0; i < SMALL_BLOCKS; i++)
        hak_free(small[i]);
    hak_heap_reset(heap);
}
static void reset(hak_heap_t *heap, char **small) { (void)small, hak_heap_reset(heap); }
static void merge(hak_heap_t *heap, char **small)
{
    expect_eq(hak_heap_merge_into_default(heap), 0);
    for (int i = 0; i < SMALL_BLOCKS; i++)
        hak_free(small[i]);
}
static void destroy_inner(hak_heap_t *heap, char **small)
{
    free_all(heap, small);
    hak_heap_t *other = new_heap(0, NULL, NULL);
    for (int i = 0; i < SMALL_BLOCKS; i++)
        memset(hak_heap_malloc(other, 5000), 1, 5000);
    hak_heap_destroy(other);
}

static void no_heap_has_mallocs_huge_blocks(void **state)
{
    (void)state;
    void (*const ends[])(hak_heap_t *, char **) = { free_all, reset, merge, destroy_inner };
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        hak_heap_t *heap = new_heap(0, NULL, NULL);
        huge_blocks_behind(heap, ends[i]);
        expect_eq(figures_of(heap).live_blocks, 0);
        hak_heap_destroy(heap);
    }
    expect(hak_check_heap());
}

/* Only the start of a block in use is one: not its inside, not what was freed, in any pool, nor in a region. */
static void only_starts_of_blocks_are_a_heaps(void **state)
{
    static _Alignas(4096) char region[1 << 20];
    static const size_t sizes[] = { 16, 100, 3000, 40000, 200000, 900000, 3 << 20 };
    (void)state;
    hak_heap_t *heaps[] = { new_heap(0, NULL, NULL), new_region(region, sizeof region, NULL, NULL), NULL };
    for (int h = 0; h < 3; h++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            char *p = hak_heap_malloc(heaps[h], sizes[i]), *kept = hak_heap_malloc(heaps[h], sizes[i]);
            if (heaps[h] == (void *)region && p == NULL)
                continue;
            memset(p, 0, 16);
            expect_ptr(hak_heap_of(p), heaps[h]);
            for (size_t inside = 1; inside < sizes[i]; inside += sizes[i] / 7 + 1)
                expect(hak_heap_of(p + inside) == NULL);
            hak_free(p);
            expect(hak_heap_of(p) == NULL);
            hak_collect();
            expect(hak_heap_of(p) == NULL);
            expect(kept == NULL || hak_heap_of(kept) == heaps[h]);
            hak_free(kept);
        }
    expect(hak_heap_of(NULL) == NULL && hak_heap_of(region) == NULL && hak_heap_of(&heaps) == NULL && hak_heap_of(heaps[0]) == NULL);
    hak_heap_destroy(heaps[0]);
    hak_heap_destroy(heaps[1]);
}

/* --- NULL as a heap --------------------------------------------------------------------------------------------------------- */

static void free_in_malloc(void *p) { hak_heap_free(NULL, p); }
static void realloc_in_malloc(void *p) { hak_heap_realloc(NULL, p, 1000); }

static void expect_misuse(check_body *body, void *argument, const char *words)
{
    char said[SAID_SIZE];
    int status = run_child(body, argument, said);
    expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && strstr(said, words) != NULL);
}

static int no_block(void *block, size_t size, void *argument) { return (void)block, (void)size, (void)argument, 1; }

static void null_is_malloc(void **state)
{
    static char region[1 << 16];
    (void)state;
    hak_heap_t *heap = new_heap(0, NULL, NULL), *inner = new_region(region, sizeof region, NULL, NULL);
    uint64_t limit, before = figures_of(NULL).live_blocks, bytes = figures_of(NULL).live_bytes;
    char *p = hak_heap_malloc(NULL, 100), *q = hak_heap_calloc(NULL, 3, LONG), *r = hak_heap_aligned_alloc(NULL, 4096, 100);
    expect(hak_heap_of(p) == NULL && hak_heap_of(q) == NULL && hak_heap_of(r) == NULL && (uintptr_t)r % 4096 == 0);
    expect_eq(figures_of(NULL).live_blocks, before + 3);
    expect_op(figures_of(NULL).live_bytes, >=, bytes + 3 * LONG + 200);
    for (int i = 0; i < 100; i++)
        hak_heap_malloc(heap, LONG);
    expect_eq(figures_of(NULL).live_blocks, before + 3);   /* those of heaps are not malloc's */
    expect_op(figures_of(NULL).used_bytes, >=, figures_of(NULL).live_bytes);
    p = hak_heap_realloc(NULL, p, 5000);
    expect(p != NULL);
    hak_heap_free(NULL, p), hak_heap_free(NULL, q), hak_heap_free(NULL, r), hak_heap_free(NULL, NULL);
    hak_heap_destroy(NULL);
    hak_heap_reset(NULL);
    expect_eq(hak_heap_merge_into_default(NULL), 0);
    expect_eq(hak_heap_visit(NULL, no_block, NULL), ENOTSUP);
    expect_eq(hak_heap_stats(NULL, NULL, 0), EINVAL);
    hak_heap_set_limit(NULL, (size_t)1 << 40);
    expect(hak_option_get("limit", &limit) == 0 && limit == 1ull << 40 && figures_of(NULL).limit == limit);
    hak_heap_set_limit(NULL, 0);
    expect_misuse(free_in_malloc, hak_heap_malloc(heap, 100), "is not a block of malloc's");
    expect_misuse(realloc_in_malloc, hak_heap_malloc(heap, LONG), "is not a block of malloc's");
    expect_misuse(free_in_malloc, hak_heap_malloc(inner, 100), "is not a block of malloc's");
    hak_heap_destroy(heap);
    hak_heap_destroy(inner);
}

/* --- callbacks that allocate ------------------------------------------------------------------------------------------------- */

static struct inside {
    int depth, deepest, calls;
    hak_heap_t *other;
} inside;

static int allocates(hak_heap_t *heap, size_t used, size_t limit, size_t wanted, void *argument)
{
    (void)used, (void)limit, (void)argument;
    inside.calls++;
    if (++inside.depth > inside.deepest)
        inside.deepest = inside.depth;
    expect_op(inside.depth, <, 10);
    errno = 0;
    expect(hak_heap_malloc(heap, wanted) == NULL && errno == ENOMEM);
    errno = 0;
    void *p = inside.other != NULL ? hak_heap_malloc(inside.other, (size_t)64 << 20) : NULL;
    expect(p == NULL && (inside.other == NULL || errno == ENOMEM));
    p = hak_malloc(1000);   /* malloc has room */
    expect(p != NULL);
    hak_free(p);
    inside.depth--;
    return 0;
}

static void a_callback_may_allocate(void **state)
{
    static char region[1 << 18];
    (void)state;
    hak_heap_t *heaps[] = { new_heap(1 << 20, allocates, NULL), new_region(region, sizeof region, allocates, NULL) };
    for (int i = 0; i < 2; i++) {
        for (int with = 0; with < 2; with++) {
            inside = (struct inside){ .other = with ? heaps[1 - i] : NULL };
            while (hak_heap_malloc(heaps[i], 10000) != NULL)
                continue;
            expect_eq(errno, ENOMEM);
            expect(hak_heap_malloc(heaps[i], 3 << 20) == NULL && errno == ENOMEM);
            expect_eq(inside.deepest, 1);
            expect_eq(inside.calls, 2);
        }
    }
    hak_heap_destroy(heaps[0]);
    hak_heap_destroy(heaps[1]);
}

/* --- realloc and defaults ------------------------------------------------------------------------------------------------------- */

static void realloc_keeps_a_block_where_it_is(void **state)
{
    static const size_t sizes[] = { 100, 5000, 70000, 400000, LONG, 3 * LONG, 20000, 10 };
    (void)state;
    hak_heap_t *heap = new_heap(0, NULL, NULL);
    char *of_malloc = hak_malloc(10), *of_heap = hak_heap_malloc(heap, 10);
    memcpy(of_malloc, "of malloc", 10);
    for (int redirected = 0; redirected < 2; redirected++) {
        expect(hak_heap_set_default(redirected ? heap : NULL) == NULL);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            of_malloc = hak_realloc(of_malloc, sizes[i]);
            of_heap = hak_realloc(of_heap, sizes[i]);
            expect(hak_heap_of(of_malloc) == NULL && strcmp(of_malloc, "of malloc") == 0);
            expect_ptr(hak_heap_of(of_heap), heap);
            char *p = hak_malloc(sizes[i]), *q = hak_heap_malloc(NULL, sizes[i]), *r = hak_heap_calloc(NULL, 1, sizes[i]);
            expect_ptr(hak_heap_of(p), redirected ? heap : NULL);
            expect(hak_heap_of(q) == NULL && hak_heap_of(r) == NULL && r[sizes[i] - 1] == 0);
            q = hak_heap_realloc(NULL, q, 2 * sizes[i]);
            expect(hak_heap_of(q) == NULL);
            expect_ptr(hak_heap_get_default(), redirected ? heap : NULL);
            hak_free(p), hak_heap_free(NULL, q), hak_free(r);
        }
    }
    expect_ptr(hak_heap_set_default(NULL), heap);
    hak_heap_destroy(heap);
    expect(strcmp(of_malloc, "of malloc") == 0);
    hak_free(of_malloc);
}

/* --- the walk, and figures ------------------------------------------------------------------------------------------------------ */

static unsigned times_met(hak_heap_t *heap)
{
    unsigned met = 0;
    for (hak_heap_t *at = hak_heap_next(NULL); at != NULL; at = hak_heap_next(at))
        met += at == heap;
    return met;
}

static void the_walk_meets_every_heap(void **state)
{
    static char regions[3][1 << 16];
    (void)state;
    hak_heap_t *heaps[5];
    for (int i = 0; i < 3; i++)
        heaps[i] = new_region(regions[i], sizeof regions[i], NULL, NULL);
    expect_eq(times_met(heaps[1]), 1);   /* without another heap, too */
    for (int i = 3; i < 5; i++)
        heaps[i] = new_heap(0, NULL, NULL);
    for (int i = 0; i < 5; i++)
        expect_eq(times_met(heaps[i]), 1);
    hak_heap_destroy(heaps[1]);
    hak_heap_destroy(heaps[3]);
    for (int i = 0; i < 5; i++)
        expect_eq(times_met(heaps[i]), i != 1 && i != 3);
    for (int i = 0; i < 5; i += 2)
        hak_heap_destroy(heaps[i]);
    expect_eq(times_met(heaps[0]) + times_met(heaps[4]), 0);
}

static int sum_sizes(void *block, size_t size, void *argument)
{
    size_t *sums = argument;
    expect_eq(size, hak_usable_size(block));
    sums[0]++, sums[1] += size;
    return 0;
}

/* In hardened mode too: what is in quarantine, or in a bin, is not live. */
static void figures_are_those_of_the_blocks(void **state)
{
    (void)state;
    hak_heap_t *heap = new_heap(0, NULL, NULL);
    static void *blocks[1000];
    size_t sums[2] = { 0, 0 };
    for (unsigned i = 0; i < 1000; i++)
        expect((blocks[i] = hak_heap_malloc(heap, i % 100 == 9 ? LONG : i * 37 % 9000 + 1)) != NULL);
    for (unsigned i = 0; i < 1000; i += 3)
        hak_free(blocks[i]);
    uint64_t live = figures_of(heap).live_blocks, bytes = figures_of(heap).live_bytes;
    hak_heap_visit(heap, sum_sizes, sums);
    expect_eq(live, 666);
    expect_eq(sums[0], 666);
    if (hak__hardened.on)
        expect_op(bytes, >=, sums[1]);
    else
        expect_eq(bytes, sums[1]);
    for (unsigned i = 0; i < 1000; i++)
        if (i % 3 != 0)
            hak_free(blocks[i]);
    expect_eq(figures_of(heap).live_blocks, 0);
    expect_eq(figures_of(heap).live_bytes, 0);
    hak_heap_destroy(heap);
}

/* --- what is left of heaps that have ended -------------------------------------------------------------------------------------------- */

enum { HEAPS = 2000, THREADS = 100, LEFT_BYTES = 2048 };

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define MEMORY_IS_OURS 0
#endif
#endif
#if !defined(MEMORY_IS_OURS)
#define MEMORY_IS_OURS !is_emulated()
#endif

static void some_heaps(hak_heap_t **heaps)
{
    for (int i = 0; i < HEAPS; i++)
        expect((heaps[i] = hak_heap_new(NULL)) != NULL && hak_heap_malloc(heaps[i], 16) != NULL);
    for (int i = 0; i < HEAPS; i++)
        hak_heap_destroy(heaps[i]);
    hak_collect();
}

static pthread_barrier_t all_are_there;

static void *allocate_beside_others(void *argument)
{
    void *p = hak_malloc(100);
    pthread_barrier_wait(&all_are_there);
    hak_free(p);
    return p == NULL ? argument : NULL;
}

/* Their numbers and their memory serve others: heaps, and threads. */
static void ended_heaps_leave_nothing(void **state)
{
    static hak_heap_t *heaps[HEAPS];
    pthread_t threads[THREADS];
    (void)state;
    hak_free(hak_malloc(1));
    hak_collect();
    struct hak_heap_figures before = figures_of(NULL);
    size_t memory = resident_bytes();
    some_heaps(heaps);
    uint32_t ids = hak__heap_last_id();
    if (MEMORY_IS_OURS)
        expect_op(resident_bytes(), <, memory + (size_t)HEAPS * LEFT_BYTES);
    for (int round = 0; round < 3; round++)
        some_heaps(heaps);
    expect_eq(figures_of(NULL).live_blocks, before.live_blocks);   /* the counters of shares that are gone go on elsewhere */
    expect_eq(figures_of(NULL).slab_bytes, before.slab_bytes);
    pthread_barrier_init(&all_are_there, NULL, THREADS);
    for (size_t i = 0; i < THREADS; i++)
        expect_eq(pthread_create(&threads[i], NULL, allocate_beside_others, heaps), 0);
    for (size_t i = 0; i < THREADS; i++) {
        void *result;
        expect(pthread_join(threads[i], &result) == 0 && result == NULL);
    }
    pthread_barrier_destroy(&all_are_there);
    expect_eq(hak__heap_last_id(), ids);
    expect(hak_check_heap());
}

/* --- limits ------------------------------------------------------------------------------------------------------------------ */

/* A huge block that grows gets room to grow again, but not beyond the limit. */
static void a_huge_block_grows_within_the_limit(void **state)
{
    enum { LIMIT = 8 << 20 };
    (void)state;
    for (size_t before = LONG; before < LIMIT; before += 300000)
        for (size_t after = before; after <= LIMIT; after += 500000) {
            hak_heap_t *heap = new_heap(LIMIT, NULL, NULL);
            char *p = hak_heap_malloc(heap, before), *q = p == NULL ? NULL : hak_realloc(p, after);
            expect(p != NULL || hak__hardened.on); /* guard pages count */
            expect_op(figures_of(heap).used_bytes, <=, LIMIT);
            expect(q == NULL || hak_usable_size(q) >= after);
            hak_heap_destroy(heap);
        }
}

static atomic_bool no_more;

static void *use_until_no_more(void *heap)
{
    for (size_t n = 16; !atomic_load(&no_more); n = n % 2000 + 16)
        hak_free(hak_heap_malloc(heap, n));
    return NULL;
}

/* Whatever other threads were doing to it at the fork. */
static void reset_and_use(void *heap)
{
    size_t got = 0;
    hak_heap_reset(heap);
    expect_eq(figures_of(heap).used_bytes, 0);
    expect_eq(figures_of(heap).live_blocks, 0);
    while (hak_heap_malloc(heap, 1000) != NULL)
        got += 1000;
    expect(got >= 128 << 10 && figures_of(heap).used_bytes <= 256 << 10);
}

static void a_reset_heap_is_whole_in_a_child(void **state)
{
    pthread_t threads[3];
    (void)state;
    if (HAK_TSAN) /* a child may wait for a lock of the sanitizer's own, which another thread held at the fork */
        skip();
    hak_heap_t *heap = new_heap(256 << 10, NULL, NULL);
    for (int i = 0; i < 3; i++)
        expect_eq(pthread_create(&threads[i], NULL, use_until_no_more, heap), 0);
    for (int i = 0; i < 60; i++)
        run_fresh(reset_and_use, heap);
    atomic_store(&no_more, true);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    hak_heap_destroy(heap);
}

/* --- spans that change hands ------------------------------------------------------------------------------------------------- */

enum { HANDED_SIZES = 20, ROUNDS = 400 };

static void merge_and_free(void)
{
    hak_heap_t *heap = new_heap(0, NULL, NULL);
    char *block = hak_heap_malloc(heap, 100);
    expect_eq(hak_heap_merge_into_default(heap), 0);
    hak_free(block);
    hak_heap_destroy(heap);
}

static void *leave_blocks(void *blocks)
{
    for (size_t i = 0; i < HANDED_SIZES; i++)
        ((void **)blocks)[i] = hak_malloc(16 + i * 100);
    return NULL;
}

/* This thread takes over the spans of the one that has ended. */
static void adopt_and_free(void)
{
    static void *theirs[HANDED_SIZES], *mine[HANDED_SIZES][600];
    pthread_t thread;
    expect_eq(pthread_create(&thread, NULL, leave_blocks, theirs), 0);
    pthread_join(thread, NULL);
    for (size_t i = 0; i < HANDED_SIZES * 600; i++)
        mine[i / 600][i % 600] = hak_malloc(16 + i / 600 * 100);
    for (size_t i = 0; i < HANDED_SIZES * 600; i++)
        hak_free(mine[i / 600][i % 600]);
    for (size_t i = 0; i < HANDED_SIZES; i++)
        hak_free(theirs[i]);
    hak_collect();
}

static uint64_t metadata(void)
{
    static struct hak_stats stats;
    expect_eq(hak_stats_snapshot(&stats, sizeof stats), 0);
    return stats.bytes_metadata;
}

/* The heap that ends a span need not be the one that began it. */
static void tables_do_not_grow(void **state)
{
    static void (*const hand_over[])(void) = { merge_and_free, adopt_and_free };
    (void)state;
    for (int i = 0; i < 2; i++) {
        int rounds = i == 0 ? 20 * ROUNDS : ROUNDS;
        for (int k = 0; k < rounds / 10; k++)
            hand_over[i]();
        uint64_t before = metadata();
        for (int k = 0; k < rounds; k++)
            hand_over[i]();
        expect_op(metadata(), <, before + (128 << 10));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ended_heaps_leave_nothing),
        cmocka_unit_test(tables_do_not_grow),
        cmocka_unit_test(the_walk_meets_every_heap),
        cmocka_unit_test(no_heap_has_mallocs_huge_blocks),
        cmocka_unit_test(only_starts_of_blocks_are_a_heaps),
        cmocka_unit_test(null_is_malloc),
        cmocka_unit_test(a_callback_may_allocate),
        cmocka_unit_test(realloc_keeps_a_block_where_it_is),
        cmocka_unit_test(figures_are_those_of_the_blocks),
        cmocka_unit_test(a_huge_block_grows_within_the_limit),
        cmocka_unit_test(a_reset_heap_is_whole_in_a_child),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
