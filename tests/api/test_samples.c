/* Samples of user heaps: at interval 1 every block is one. By handle or as a default heap's, of whatever size, it is the heap's: in
 * hak_heap_of, the figures, a visit and the limit; it is freed by either free, and ends with its heap, or becomes malloc's with it; the
 * profile has as many as there are; and threads may free while the heap is merged. */
#include "hakmem.h"
#include "support/check.h"

enum { KINDS = 6, BLOCKS = 40, THREADS = 4, ROUNDS = 30 };

static const size_t sizes[] = { 1, 100, 1024, 5000, 57344, 57345, 300000, 1 << 20, 3 << 20 };
enum { SIZES = sizeof sizes / sizeof *sizes };

static void *make(hak_heap_t *heap, unsigned kind, size_t n)
{
    void *p = NULL;
    if (kind >= 3)
        hak_heap_set_default(heap);
    switch (kind) {
    case 0: p = hak_heap_malloc(heap, n); break;
    case 1: p = hak_heap_calloc(heap, 1, n); break;
    case 2: p = hak_heap_realloc(heap, hak_heap_aligned_alloc(heap, 64, n / 2 + 1), n); break;
    case 3: p = hak_malloc(n); break;
    case 4: p = hak_calloc(n, 1); break;
    default: p = hak_realloc(hak_aligned_alloc(64, n / 2 + 1), n); break;
    }
    if (kind >= 3)
        hak_heap_set_default(NULL);
    expect(p != NULL);
    memset(p, 1, n);
    return p;
}

struct seen {
    unsigned long long blocks, bytes;
};

/* Samples in use, as a dump has them. */
static struct seen dumped(void)
{
    char path[] = "samples-XXXXXX.json", *text = malloc(64 << 20);
    struct seen sum = { 0, 0 }, one;
    int fd = mkstemps(path, 5);
    expect(fd >= 0 && text != NULL);
    close(fd);
    expect_eq(hak_profile_dump(path), 0);
    FILE *file = fopen(path, "r");
    expect(file != NULL);
    text[fread(text, 1, (64 << 20) - 1, file)] = 0;
    fclose(file);
    unlink(path);
    for (char *at = text; (at = strstr(at, "\"allocated\":[")) != NULL;) {
        expect_eq(sscanf(at += 13, "%llu,%llu", &one.blocks, &one.bytes), 2);
        sum = (struct seen){ sum.blocks + one.blocks, sum.bytes + one.bytes };
        at = strstr(at, "\"freed\":[");
        expect_eq(sscanf(at += 9, "%llu,%llu", &one.blocks, &one.bytes), 2);
        sum = (struct seen){ sum.blocks - one.blocks, sum.bytes - one.bytes };
    }
    free(text);
    return sum;
}

static unsigned long long live(void) { return dumped().blocks; }

static struct hak_heap_figures figures(hak_heap_t *heap)
{
    struct hak_heap_figures out;
    expect_eq(hak_heap_stats(heap, &out, sizeof out), 0);
    return out;
}

static int see(void *block, size_t size, void *argument)
{
    struct seen *seen = argument;
    expect_eq(hak_usable_size(block), size);
    seen->blocks++;
    seen->bytes += size;
    return 0;
}

static void make_all(hak_heap_t *heap, void *blocks[KINDS][SIZES])
{
    for (unsigned kind = 0; kind < KINDS; kind++)
        for (unsigned i = 0; i < SIZES; i++) {
            blocks[kind][i] = make(heap, kind, sizes[i]);
            expect(hak_heap_of(blocks[kind][i]) == heap);
        }
}

static void samples_are_the_heaps(void **state)
{
    void *blocks[KINDS][SIZES];
    unsigned long long bytes = 0;
    struct seen seen = { 0, 0 };
    (void)state;
    expect_eq(hak_profile_start(1), 0);
    unsigned long long before = live();
    hak_heap_t *heap = hak_heap_new(NULL);
    make_all(heap, blocks);
    for (unsigned i = 0; i < KINDS * SIZES; i++)
        bytes += hak_usable_size(blocks[i / SIZES][i % SIZES]);
    expect_eq(live() - before, KINDS * SIZES);
    struct hak_heap_figures full = figures(heap);
    expect_eq(full.live_blocks, KINDS * SIZES);
    expect_eq(full.live_bytes, bytes);
    expect_op(full.used_bytes, >=, bytes);
    expect_eq(hak_heap_visit(heap, see, &seen), 0);
    expect(seen.blocks == full.live_blocks && seen.bytes == full.live_bytes);
    for (unsigned i = 0; i < KINDS * SIZES; i++)
        i % 2 == 0 ? hak_heap_free(heap, blocks[i / SIZES][i % SIZES]) : hak_free(blocks[i / SIZES][i % SIZES]);
    expect_eq(figures(heap).live_blocks, 0);
    expect_eq(figures(heap).live_bytes, 0);
    expect_eq(live(), before);
    hak_heap_destroy(heap);
    hak_profile_stop();
    expect(hak_check_heap());
}

/* Again and again, and in the end nothing of it is left. */
static void samples_end_with_the_heap(void **state)
{
    void *blocks[KINDS][SIZES];
    (void)state;
    expect_eq(hak_profile_start(1), 0);
    unsigned long long before = live();
    for (unsigned round = 0; round < 6; round++) {
        hak_heap_t *heap = hak_heap_new(NULL);
        for (unsigned turn = 0; turn < 3; turn++) {
            make_all(heap, blocks);
            hak_heap_reset(heap);
            expect_eq(figures(heap).live_blocks, 0);
            expect_eq(live(), before);
        }
        make_all(heap, blocks);
        hak_heap_destroy(heap);
        expect_eq(live(), before);
    }
    hak_profile_stop();
    expect(hak_check_heap());
}

static void samples_merge(void **state)
{
    void *blocks[KINDS][SIZES];
    (void)state;
    expect_eq(hak_profile_start(1), 0);
    unsigned long long before = live();
    hak_heap_t *heap = hak_heap_new(NULL);
    make_all(heap, blocks);
    expect_eq(hak_heap_merge_into_default(heap), 0);
    expect_eq(live() - before, KINDS * SIZES);
    expect_eq(figures(heap).live_blocks, 0);
    hak_heap_destroy(heap);
    for (unsigned i = 0; i < KINDS * SIZES; i++) {
        unsigned char *p = blocks[i / SIZES][i % SIZES];
        expect(hak_heap_of(p) == NULL && p[0] == 1 && p[sizes[i % SIZES] - 1] == 1);
        hak_free(p);
    }
    expect_eq(live(), before);
    hak_profile_stop();
    expect(hak_check_heap());
}

/* What the limit allows is about the same with every block sampled and with none. */
static void samples_count_against_the_limit(void **state)
{
    enum { LIMIT = 4 << 20, SIZE = 1000 };
    size_t fit[2];
    (void)state;
    for (unsigned profiled = 0; profiled < 2; profiled++) {
        hak_heap_t *heap = hak_heap_new(&(struct hak_heap_options){ .size = sizeof(struct hak_heap_options), .limit = LIMIT });
        if (profiled)
            expect_eq(hak_profile_start(1), 0);
        for (fit[profiled] = 0; hak_heap_malloc(heap, SIZE) != NULL; fit[profiled]++)
            expect_op(fit[profiled], <, LIMIT / SIZE);
        expect_op(figures(heap).used_bytes, <=, LIMIT);
        expect_op(figures(heap).refused, >=, 1);
        hak_heap_reset(heap);
        expect(hak_heap_malloc(heap, SIZE) != NULL);
        hak_heap_destroy(heap);
    }
    hak_profile_stop();
    expect_op(fit[0], >, LIMIT / SIZE * 8 / 10);
    expect_op(fit[1], >, LIMIT / SIZE * 8 / 10);
}

static void fill_up(hak_heap_t *heap)
{
    static const size_t lengths[] = { 3 << 20, 700000, 200000, 60000, 10000, 1000, 300 };
    for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++)
        while (hak_heap_malloc(heap, lengths[i]) != NULL)
            ;
}

/* A block that shrinks to less than half counts with its new length, also where none is left for it to move to. */
static void a_full_heaps_samples_shrink(void **state)
{
    static const size_t lengths[] = { 100000, 1000000, 3 << 20 };
    (void)state;
    expect_eq(hak_profile_start(1), 0);
    unsigned long long before = live();
    for (unsigned i = 0; i < 2 * sizeof lengths / sizeof *lengths; i++) {
        bool of_heap = i % 2 == 0;
        hak_heap_t *heap = hak_heap_new(&(struct hak_heap_options){ .size = sizeof(struct hak_heap_options), .limit = 4 << 20 });
        void *p = of_heap ? hak_heap_malloc(heap, lengths[i / 2]) : hak_malloc(lengths[i / 2]);
        for (size_t had = lengths[i / 2], n = had / 3; n > 300; had = n, n /= 5) {
            if (of_heap)
                fill_up(heap);
            struct seen longer = dumped();
            p = n > 57344 && had % 2 == 0 ? hak_aligned_realloc(p, 64, n) : hak_realloc(p, n);
            expect(p != NULL);
            struct seen shorter = dumped();
            expect_eq(longer.blocks, shorter.blocks);
            expect_eq(longer.bytes - shorter.bytes, had - n);
        }
        hak_free(p);
        hak_heap_destroy(heap);
        expect_eq(live(), before);
    }
    hak_profile_stop();
    expect(hak_check_heap());
}

static void *free_all(void *blocks)
{
    for (unsigned i = 0; i < BLOCKS; i++)
        hak_free(((void **)blocks)[i]);
    return NULL;
}

static void merged_while_others_free(void **state)
{
    (void)state;
    expect_eq(hak_profile_start(1), 0);
    unsigned long long before = live();
    for (unsigned round = 0; round < ROUNDS; round++) {
        void *blocks[THREADS][BLOCKS];
        pthread_t threads[THREADS];
        hak_heap_t *heap = hak_heap_new(NULL);
        for (unsigned i = 0; i < THREADS * BLOCKS; i++)
            blocks[i / BLOCKS][i % BLOCKS] = hak_heap_malloc(heap, 1 + i * 37 % 3000);
        for (unsigned i = 0; i < THREADS; i++)
            expect_eq(pthread_create(&threads[i], NULL, free_all, blocks[i]), 0);
        expect_eq(hak_heap_merge_into_default(heap), 0);
        for (unsigned i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        expect_eq(figures(heap).live_blocks, 0);
        hak_heap_destroy(heap);
    }
    expect_eq(live(), before);
    hak_profile_stop();
    expect(hak_check_heap());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_are_the_heaps),
        cmocka_unit_test(samples_end_with_the_heap),
        cmocka_unit_test(samples_merge),
        cmocka_unit_test(samples_count_against_the_limit),
        cmocka_unit_test(a_full_heaps_samples_shrink),
        cmocka_unit_test(merged_while_others_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
