/* stats/stats.h: the totals are what the test holds, class by class, in every state a block can be in (with the program,
 * cached, in an outbox, published, of a parked heap), and the printed table contains them. */
#include "stats/stats.h"

#include "arena/limit.h"
#include "cache/cache.h"
#include "diag/options.h"
#include "heap/heap.h"
#include "huge/huge.h"
#include "support/heaps.h"

enum { CLASS_64 = HAK_CLASS_64, CLASS_4096 = HAK_CLASS_4096, CLASS_LARGE = HAK_CLASS_FIRST_LARGE, MANY = 500 };

static void *blocks[MANY];

static struct hak_stats totals(void)
{
    struct hak_stats out;
    hak__snapshot(&out);
    return out;
}

static void expect_live(uint32_t class, uint64_t live)
{
    struct hak_stats t = totals();
    const struct hak_stats_class *k = &t.classes[class];
    expect_eq(k->live, live);
    expect_eq(k->refilled, k->drained + k->collected + k->cached + k->outbox + k->live);
}

FRESH_TEST(live_is_what_the_program_holds)
{
    uint64_t bytes = 0, count = 0;
    (void)argument;
    heaps_start();
    struct hak_heap *heap = heap_open(0);
    for (uint32_t c = 0; c < HAK_CLASSES; c++) {
        for (uint32_t i = 0; i <= c % 7; i++)
            blocks[i] = heap_malloc(heap, c);
        heap_free(heap, c, blocks[0]);
        expect_live(c, c % 7);
        bytes += c % 7 * hak__classes[c].size;
        count += c % 7;
    }
    struct hak_stats t = totals();
    expect_eq(t.bytes_live, bytes);
    expect_eq(t.total_live, count);
    expect_eq(t.remote_heaps, 1);
    expect_eq(t.remote_parked, 0);
    expect_op(t.bytes_spans, >=, t.bytes_live + t.bytes_cached);
}

FRESH_TEST(a_block_on_its_way)
{
    (void)argument;
    heaps_start();
    struct hak_heap *owner = heap_open(0), *other = heap_open(0);
    for (unsigned i = 0; i < 20; i++)
        blocks[i] = heap_malloc(owner, CLASS_64);
    for (unsigned i = 0; i < 8; i++)
        heap_free_remote(other, blocks[i]);
    expect_live(CLASS_64, 12);
    expect_eq(totals().classes[CLASS_64].outbox, 8);
    hak__outbox_flush(other, "free");
    expect_eq(totals().classes[CLASS_64].outbox, 0);
    expect_eq(totals().remote_frees, 8);
    expect_eq(totals().remote_published, 1);
    hak__heap_collect(owner);
    expect_live(CLASS_64, 12);
    expect_eq(totals().classes[CLASS_64].collected, 8);
    void *large = heap_malloc(owner, CLASS_LARGE);
    expect_live(CLASS_LARGE, 1);
    heap_free_remote(other, large);
    expect_live(CLASS_LARGE, 0);
    hak__cache_flush(owner);
    hak__heap_park(owner);
    expect_live(CLASS_64, 12);
    expect_eq(totals().remote_parked, 1);
    expect_eq(totals().remote_heaps, 2);
}

/* --- the table -------------------------------------------------------------------------------------------------------- */

static void expect_line(const char *said, const char *wanted)
{
    const char *at = strstr(said, wanted);
    if (at == NULL)
        fprintf(stderr, "missing: %s\nin:\n%s", wanted, said);
    expect(at != NULL && (at == said || at[-1] == '\n'));
}

static void allocate_and_print(void *argument)
{
    bool zero;
    (void)argument;
    heaps_start();
    struct hak_heap *heap = heap_open(0);
    for (unsigned i = 0; i < 100; i++)
        blocks[i] = heap_malloc(heap, CLASS_4096);
    for (unsigned i = 0; i < 40; i++)
        heap_free(heap, CLASS_4096, blocks[i]);
    hak__huge_alloc(3 << 20, HAK_SUPER_SIZE, &zero);
    hak__dump_text(STDERR_FILENO);
}

static void text_contains_the_totals(void **state)
{
    char said[SAID_SIZE], wanted[200];
    unsigned long spans, live, cached, refilled, drained, collected, misses;
    (void)state;
    expect_eq(run_child(allocate_and_print, NULL, said), 0);
    expect_line(said, "hakmem: statistics of process ");
    const char *row = strstr(said, "hakmem:     4096 ");
    expect(row != NULL);
    expect_eq(sscanf(row, "hakmem: 4096 %lu %lu %lu %lu %lu %lu %lu", &spans, &live, &cached, &refilled, &drained,
                     &collected, &misses), 7);
    expect_eq(live, 60);
    expect_eq(refilled, live + cached + drained + collected);
    expect_op(misses, >=, (100 + 15) / 16);
    expect_op(spans, >=, 100 / 16);
    snprintf(wanted, sizeof wanted, "total refilled=%lu drained=%lu misses=%lu live=60 peak_bytes=", refilled,
             drained + collected, misses);
    expect_line(said, wanted);
    expect_line(said, "hakmem: huge live=1 allocated=1 freed=0 grown_in_place=0 moved=0\n");
    snprintf(wanted, sizeof wanted, "hakmem: bytes live=%u ", 60 * 4096);
    expect_line(said, wanted);
    expect(strstr(said, " huge=3145728 ") != NULL);
    expect(strstr(said, "mallocs") == NULL && strstr(said, "calls malloc=") == NULL);
    for (const char *line = said; *line != 0; line = strchr(line, '\n') + 1)
        expect(strncmp(line, "hakmem: ", 8) == 0 || strncmp(line, "total ", 6) == 0);
}

/* --- the public structure and the other formats ------------------------------------------------------------------------ */

FRESH_TEST(the_snapshot_has_every_layer)
{
    static struct hak_stats stats;
    bool zero;
    (void)argument;
    heaps_start();
    struct hak_heap *heap = heap_open(0);
    for (unsigned i = 0; i < 100; i++)
        blocks[i] = heap_malloc(heap, CLASS_4096);
    hak__huge_alloc(3 << 20, HAK_SUPER_SIZE, &zero);
    hak__snapshot(&stats);
    expect_eq(stats.magic, HAK_STATS_MAGIC);
    expect_eq(stats.size, sizeof stats);
    expect_eq(stats.flags, 0);
    expect_eq(stats.class_count, HAK_CLASSES);
    expect_eq(stats.classes[CLASS_4096].size, 4096);
    expect_eq(stats.classes[CLASS_4096].live, 100);
    expect_eq(stats.classes[CLASS_4096].refilled, hak_counted(&heap->classes[CLASS_4096].refilled));
    expect_eq(stats.total_live, 100);
    expect_eq(stats.bytes_live, 100 * 4096);
    expect_eq(stats.bytes_huge, 3 << 20);
    expect_eq(stats.huge_live, 1);
    expect_eq(stats.superslabs_opened, 1);
    expect_eq(stats.superslabs_taken, 3);
    expect_op(stats.bytes_mapped, >=, (HAK_SUPER_SIZE + (3 << 20)));
    expect_op(stats.system_mmap, >, 0);
}

/* In a bare SuperSlab, which each is in a thrifty process, a span maps only what it uses, and counts as that. */
FRESH_TEST(spans_are_what_is_mapped)
{
    (void)argument;
    heaps_start();
    hak__thrift_begin();
    struct hak_heap *heap = heap_open(0);
    for (uint32_t c = 0; c < HAK_CLASSES; c++) {
        blocks[c] = heap_malloc(heap, c);
        struct hak_stats t = totals();
        expect_op(t.bytes_spans, >=, t.bytes_live);
        expect_eq(t.bytes_spans, t.bytes_mapped);
    }
    for (uint32_t c = 0; c < HAK_CLASSES; c++) {
        heap_free(heap, c, blocks[c]);
        expect_eq(totals().bytes_spans, totals().bytes_mapped);
    }
}

/* Every figure that is printed is the field's: each is set to its own number, and each number is looked for once. */
static void print_numbered(void *argument)
{
    static struct hak_stats stats;
    int (*print)(int, const struct hak_stats *) = *(int (**)(int, const struct hak_stats *))argument;
    uint64_t *field = &stats.remote_frees;
    stats.flags = HAK_STATS_HAS_CALLS | HAK_STATS_HAS_LEDGER | HAK_STATS_HAS_LATENCY;
    for (unsigned i = 0; field + i < stats.reserved; i++)
        field[i] = 7000 + i;
    stats.class_count = 1;
    field = &stats.classes[0].size;
    for (unsigned i = 0; field + i < stats.classes[0].reserved; i++)
        field[i] = 8000 + i;
    stats.latency_malloc.buckets[3] = 9000;
    expect_eq(print(STDERR_FILENO, &stats), 0);
}

static unsigned times(const char *said, unsigned n)
{
    unsigned count = 0;
    char number[32];
    size_t length = (size_t)snprintf(number, sizeof number, "%u", n);
    for (const char *at = said; (at = strstr(at, number)) != NULL; at += length)
        count += (at[length] < '0' || at[length] > '9') && (at == said || at[-1] < '0' || at[-1] > '9');
    return count;
}

static void expect_numbers(int (*print)(int, const struct hak_stats *), bool text)
{
    char said[SAID_SIZE];
    unsigned figures_expected = (offsetof(struct hak_stats, reserved) - offsetof(struct hak_stats, remote_frees)) / 8;
    unsigned columns_expected = offsetof(struct hak_stats_class, reserved) / 8;
    expect_eq(run_child(print_numbered, &print, said), 0);
    for (unsigned i = 0; i < figures_expected; i++)
        expect_eq(times(said, 7000 + i), 1);
    for (unsigned i = 1; i < columns_expected; i++) {
        /* outbox, hits and the warm pool's figures have no column in the text */
        bool hidden = text && (i == 8 || i == 11 || i == 13 || i == 14);
        expect_eq(times(said, 8000 + i), !hidden);
    }
    expect_op(times(said, 9000), >=, 1);
}

static void every_format_has_every_figure(void **state)
{
    (void)state;
    expect_numbers(hak__print_text, true);
    expect_numbers(hak__print_json, false);
    expect_numbers(hak__print_openmetrics, false);
}

static void a_refused_write_is_an_error(void **state)
{
    static struct hak_stats stats;
    int pipe_ends[2];
    (void)state;
    expect_eq(hak__print_json(-1, &stats), EBADF);
    signal(SIGPIPE, SIG_IGN);
    expect_eq(pipe(pipe_ends), 0);
    close(pipe_ends[0]);
    expect_eq(hak__print_text(pipe_ends[1], &stats), EPIPE);
    close(pipe_ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(live_is_what_the_program_holds),
        cmocka_unit_test(a_block_on_its_way),
        cmocka_unit_test(text_contains_the_totals),
        cmocka_unit_test(the_snapshot_has_every_layer),
        cmocka_unit_test(spans_are_what_is_mapped),
        cmocka_unit_test(every_format_has_every_figure),
        cmocka_unit_test(a_refused_write_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
