/* stats/stats.h: a reader who knows nothing but include/hakmem_live.h, and reads as if from outside, finds the figures of
 * hak_stats_snapshot, field by field; and the options with their words. */
#include "stats/stats.h"

#include <errno.h>
#include <sys/uio.h>

#include "cache/cache.h"
#include "diag/options.h"
#include "hakmem_live.h"
#include "heap/heap.h"
#include "huge/huge.h"
#include "support/heaps.h"

enum { CLASS_64 = HAK_CLASS_64, CLASS_4096 = HAK_CLASS_4096, MANY = 300 };

static void *blocks[MANY];

/* --- the reader ----------------------------------------------------------------------------------------------------- */

/* Through the kernel, which refuses a wrong address instead of ending the program; an emulator may not have that. */
static void read_at(uint64_t address, void *to, size_t size)
{
    struct iovec here = { to, size }, there = { (void *)(uintptr_t)address, size };
    ssize_t done = process_vm_readv(getpid(), &here, 1, &there, 1, 0);
    if (done < 0 && errno == ENOSYS)
        memcpy(to, (void *)(uintptr_t)address, size);
    else
        expect_eq(done, size);
}

static uint64_t word_at(uint64_t address)
{
    uint64_t word;
    read_at(address, &word, sizeof word);
    return word;
}

static uint32_t half_at(uint64_t address)
{
    uint32_t half;
    read_at(address, &half, sizeof half);
    return half;
}

static struct hak_live_list list_of(unsigned number)
{
    struct hak_live_list list;
    read_at(hak_live.roots[0] + offsetof(struct hak_live_tables, lists) + number * sizeof list, &list, sizeof list);
    return list;
}

/* The i-th name of a list. */
static const char *name_in(unsigned number, unsigned i)
{
    const char *name = (const char *)(uintptr_t)(hak_live.roots[0] + list_of(number).names);
    for (; i > 0; i--)
        name += strlen(name) + 1;
    return name;
}

/* The place of a name in a list, or the list's length. */
static unsigned find_in(unsigned number, const char *name)
{
    unsigned i = 0, count = list_of(number).count;
    const char *at = name_in(number, 0);
    for (; i < count && strcmp(at, name) != 0; i++)
        at += strlen(at) + 1;
    return i;
}

static uint32_t value_in(unsigned number, const char *name)
{
    struct hak_live_list list = list_of(number);
    unsigned i = find_in(number, name);
    if (i == list.count)
        fprintf(stderr, "no %s in list %u\n", name, number);
    expect(i < list.count);
    return half_at(hak_live.roots[0] + list.values + i * sizeof(uint32_t));
}

static uint64_t number(const char *name) { return value_in(HAK_LIVE_LIST_NUMBERS, name); }

static uint64_t root(const char *name)
{
    unsigned i = find_in(HAK_LIVE_LIST_ROOTS, name);
    expect(i < hak_live.root_count);
    return hak_live.roots[i];
}

static uint64_t sum_over_heaps(uint64_t offset)
{
    uint64_t sum = 0, last = half_at(root("heap_last"));
    for (uint64_t id = 1; id <= last; id++) {
        uint64_t heap = root("heaps") + id * number("heap_stride");
        if (half_at(heap + number("heap_state")) != 0)
            sum += word_at(heap + offset);
    }
    return sum;
}

/* The figure as its place says; false for one that is derived. */
static bool figure_at(uint32_t where, unsigned class, uint64_t *figure)
{
    switch (HAK_LIVE_KIND(where)) {
    case HAK_LIVE_WORD:
        *figure = word_at(hak_live.roots[HAK_LIVE_ROOT(where)] + HAK_LIVE_OFFSET(where));
        return true;
    case HAK_LIVE_HEAPS:
        *figure = sum_over_heaps(HAK_LIVE_OFFSET(where));
        return true;
    case HAK_LIVE_CLASS:
        *figure = sum_over_heaps(number("heap_classes") + class * number("heap_class_stride") + HAK_LIVE_OFFSET(where));
        return true;
    case HAK_LIVE_TABLE:
        *figure = half_at(root("classes") + class * number("class_stride") + HAK_LIVE_OFFSET(where));
        return true;
    default:
        return false;
    }
}

/* --- tests ---------------------------------------------------------------------------------------------------------- */

static void make_busy(void)
{
    bool zero;
    heaps_start();
    hak__live_open("1.2.3-test");
    struct hak_heap *heap = heap_open(0), *other = heap_open(HAK_MODE_EXACT);
    for (unsigned i = 0; i < MANY; i++)
        blocks[i] = heap_malloc(i % 3 == 0 ? other : heap, i % 2 == 0 ? CLASS_64 : CLASS_4096);
    for (unsigned i = 0; i < MANY; i += 3)
        heap_free_remote(heap, blocks[i]);
    hak__outbox_flush(heap, "free");
    hak__heap_collect(other);
    for (unsigned i = 1; i < MANY; i += 3)
        heap_free(heap, i % 2 == 0 ? CLASS_64 : CLASS_4096, blocks[i]);
    hak__heap_park(other);
    hak__huge_free(hak__huge_alloc(5 << 20, HAK_SUPER_SIZE, &zero), "free");
    hak__huge_alloc(3 << 20, HAK_SUPER_SIZE, &zero);
}

FRESH_TEST(figures_are_those_of_the_snapshot)
{
    static struct hak_stats stats;
    unsigned compared = 0;
    uint64_t figure;
    (void)argument;
    make_busy();
    hak__snapshot(&stats);
    struct hak_live_list figures = list_of(HAK_LIVE_LIST_FIGURES), columns = list_of(HAK_LIVE_LIST_COLUMNS);
    const uint64_t *field = &stats.remote_frees;
    expect_eq((uint64_t)figures.count, (uint64_t)(stats.reserved - field));
    for (unsigned i = 0; i < figures.count; i++) {
        uint32_t where = half_at(hak_live.roots[0] + figures.values + i * sizeof where);
        if (!figure_at(where, 0, &figure))
            continue;
        if (figure != field[i])
            fprintf(stderr, "%s\n", name_in(HAK_LIVE_LIST_FIGURES, i));
        expect_eq(figure, field[i]);
        compared++;
    }
    expect_op(compared, >=, 25);
    expect_op(stats.remote_frees, >, 0);
    expect_op(stats.huge_freed, >, 0);
    expect_eq((uint64_t)columns.count, offsetof(struct hak_stats_class, reserved) / sizeof(uint64_t));
    for (unsigned class = 0; class < HAK_CLASSES; class++) {
        field = &stats.classes[class].size;
        for (unsigned i = 0; i < columns.count; i++)
            if (figure_at(half_at(hak_live.roots[0] + columns.values + i * 4), class, &figure))
                expect_eq(figure, field[i]);
    }
}

/* What a reader needs for the derived columns: stacks, their real bin, the outboxes. */
FRESH_TEST(stacks_can_be_counted)
{
    static struct hak_stats stats;
    (void)argument;
    make_busy();
    hak__snapshot(&stats);
    for (unsigned class = 0; class < HAK_CLASSES; class++) {
        uint64_t cached = 0;
        for (uint64_t id = 1; id <= half_at(root("heap_last")); id++) {
            uint64_t heap = root("heaps") + id * number("heap_stride");
            uint64_t k = heap + number("heap_classes") + class * number("heap_class_stride");
            bool closed = *(const uint8_t *)(uintptr_t)(heap + number("heap_closed") + class) != 0;
            uint64_t bin = closed ? k + number("heap_class_hidden")
                                     : heap + number("heap_bins") + class * number("bin_stride");
            uint64_t bottom = word_at(k + number("heap_class_bottom"));
            cached += bottom == 0 ? 0 : (word_at(bin + number("bin_top")) - bottom) / sizeof(void *);
        }
        expect_eq(cached, stats.classes[class].cached);
    }
    expect_op(stats.classes[CLASS_64].cached, >, 0);
}

static uint64_t field(uint64_t from, const char *name, unsigned bytes)
{
    uint64_t value = 0;
    read_at(from + number(name), &value, bytes);   /* little-endian, as are all machines that it runs on */
    return value;
}

/* The map that `hakmem stats --map` draws: from any used slab to its span, and how many blocks of it are outside. */
FRESH_TEST(spans_can_be_found)
{
    unsigned seen = 0;
    (void)argument;
    make_busy();
    uint64_t slabs = word_at(root("frontier")) << (number("super_shift") - number("slab_shift"));
    expect_op(slabs, <=, hak__window.slabs);
    for (uint64_t i = 0; i < slabs; i++) {
        uint32_t word = half_at(root("map") + i * number("map_stride") + number("map_owner"));
        expect_eq(word, hak__owner_at(i));
        if (word == 0 || word >> number("class_offset_bits") == number("huge_id"))
            continue;
        uint64_t here = root("spans") + i * number("span_stride");
        uint64_t first = i - field(here, "span_back", 1), at = root("spans") + first * number("span_stride");
        const struct hak_span *span = hak__span_at(i);
        expect_eq(first, hak__span_slab(span));
        expect_eq(field(at, "span_slabs", 1), span->slabs);
        expect_eq(field(at, "span_blocks", 2), span->blocks);
        expect_eq(field(at, "span_frontier", 2) - field(at, "span_free_count", 2), hak__span_allocated(span));
        seen++;
    }
    expect_op(seen, >=, 2);
}

/* --- blocks --------------------------------------------------------------------------------------------------------- */

static bool bit_at(uint64_t bits, uint64_t i) { return (word_at(bits + i / 64 * 8) >> i % 64 & 1) != 0; }

/* Blocks that lie in a stack or in an outbox. */
static uint64_t held[MANY * 4];
static unsigned assigned_count;

static void hold(uint64_t at, uint64_t end)
{
    for (; at < end; at += 8) {
        expect_op(assigned_count, <, sizeof held / sizeof held[0]);
        held[assigned_count++] = word_at(at);
    }
}

static bool is_assigned(uint64_t block)
{
    for (unsigned i = 0; i < assigned_count; i++)
        if (held[i] == block)
            return true;
    return false;
}

static void hold_what_lies_in(uint64_t heap)
{
    for (uint64_t class = 0; class < number("class_count"); class++) {
        uint64_t k = heap + number("heap_classes") + class * number("heap_class_stride");
        uint64_t visible = heap + number("heap_bins") + class * number("bin_stride");
        uint64_t bin = field(heap + class, "heap_closed", 1) != 0 ? k + number("heap_class_hidden") : visible;
        uint64_t bottom = field(k, "heap_class_bottom", 8);
        hold(bottom, bottom == 0 ? 0 : field(bin, "bin_top", 8));
    }
    for (uint64_t i = 0; i < number("bucket_count"); i++) {
        uint64_t bucket = heap + number("heap_outbox") + i * number("bucket_stride"), list = bucket + number("bucket_list");
        uint64_t taken = field(bucket, "bucket_taken", 2), count = field(bucket, "bucket_blocks", 2);
        expect_op(count, <=, number("bucket_room"));
        if (field(bucket, "bucket_slab", 4) != 0)
            hold(list + taken * 8, list + count * 8);
    }
}

/* In use, or freed by another thread and not collected, which the library's figures count as in use. */
static uint64_t live_in_span(uint64_t slab, unsigned class)
{
    uint64_t live = 0, frees = 0, span = root("spans") + slab * number("span_stride");
    uint64_t free = field(span, "span_free", 8), remote = field(span, "span_remote", 8);
    uint64_t start = root("window") + (slab << number("slab_shift")), frontier = field(span, "span_frontier", 2);
    uint64_t size = half_at(root("classes") + class * number("class_stride") + number("class_size"));
    expect_eq(field(span, "span_class", 2), class);
    for (uint64_t i = 0; i < frontier; i++) {
        bool waits = is_assigned(start + i * size);
        frees += bit_at(free, i);
        expect(!(waits && (bit_at(free, i) || bit_at(remote, i))));
        live += !bit_at(free, i) && !waits;
    }
    expect_eq(frees, field(span, "span_free_count", 2));
    return live;
}

/* `hakmem block`: from the map, the bits, the stacks and the outboxes follows of every block whether it is in use, and their
 * sum is what the library counts. */
FRESH_TEST(blocks_can_be_judged)
{
    static struct hak_stats stats;
    uint64_t live[HAK_CLASSES] = { 0 };
    (void)argument;
    make_busy();
    hak__outbox_add_slow(heap_open(0), blocks[2], hak__owner_of(blocks[2]), "free");   /* waits in a third heap */
    hak__snapshot(&stats);
    for (uint64_t id = 1; id <= half_at(root("heap_last")); id++)
        hold_what_lies_in(root("heaps") + id * number("heap_stride"));
    uint64_t slabs = word_at(root("frontier")) << (number("super_shift") - number("slab_shift"));
    for (uint64_t i = 0; i < slabs; i++) {
        uint32_t word = half_at(root("map") + i * number("map_stride") + number("map_owner"));
        uint64_t class = (word & ((1u << number("class_offset_bits")) - 1)) / number("class_offset_unit");
        if (word != 0 && class < number("class_count") && field(root("spans") + i * number("span_stride"), "span_back", 1) == 0)
            live[class] += live_in_span(i, (unsigned)class);
    }
    for (unsigned class = 0; class < HAK_CLASSES; class++)
        expect_eq(live[class], stats.classes[class].live);
    expect_op(stats.classes[CLASS_64].live, >, 0);
    expect_op(stats.classes[CLASS_64].outbox + stats.classes[CLASS_4096].outbox, ==, 1);
}

static uint64_t mixed(uint64_t x)
{
    uint64_t y = x * HAK_LIVE_MIX;
    return y ^ y >> 32;
}

/* The root layout is the sum that hakmem_live.h says, so that a file of another build is not taken for the one that ran. */
FRESH_TEST(layout_is_the_sum)
{
    uint64_t sum = 0;
    (void)argument;
    heaps_start();
    hak__live_open("1.2.3-test");
    struct hak_live_list numbers = list_of(HAK_LIVE_LIST_NUMBERS);
    for (uint64_t i = 0; i < numbers.count; i++)
        sum += mixed(mixed(half_at(root("tables") + numbers.values + i * 4) + (i << 32)));
    for (uint64_t c = 0; c < number("class_count"); c++) {
        uint64_t at = root("classes") + c * number("class_stride");
        uint64_t value = field(at, "class_size", 4) | field(at, "class_blocks", 2) << 32 | field(at, "class_slabs", 1) << 56;
        sum += mixed(mixed(value + ((65536 + c) << 32)));
    }
    expect_eq(root("layout"), sum);
}

FRESH_TEST(options_have_their_words)
{
    (void)argument;
    heaps_start();
    hak__live_open("1.2.3-test");
    expect_eq(strcmp((const char *)(uintptr_t)root("version"), "1.2.3-test"), 0);
    expect_eq(hak__option_set("refill_count", "77"), 0);
    expect_eq(number("option_count"), HAK_OPTIONS);
    for (unsigned i = 0; i < HAK_OPTIONS; i++) {
        uint64_t word = word_at(root("option_words") + i * 8), row = root("option_rows") + i * number("option_stride");
        const char *origin = name_in(HAK_LIVE_LIST_ORIGINS, (unsigned)(word >> number("origin_shift")));
        const uint16_t *name = (const uint16_t *)(uintptr_t)(row + number("option_name"));
        expect_eq(strcmp((const char *)(uintptr_t)(root("option_text") + *name), hak__option_name((int)i)), 0);
        expect_eq(strcmp(origin, hak__option_origin_name(hak__option_origin((enum hak_option)i))), 0);
    }
}

static void words_are_those_of_the_options(void **state)
{
    (void)state;
    hak__live_open("");
    for (unsigned i = 0; i < list_of(HAK_LIVE_LIST_ORIGINS).count; i++)
        expect_eq(strcmp(name_in(HAK_LIVE_LIST_ORIGINS, i), hak__option_origin_name((enum hak_option_origin)i)), 0);
    for (unsigned i = 0; i < list_of(HAK_LIVE_LIST_KINDS).count; i++)
        expect_eq(strcmp(name_in(HAK_LIVE_LIST_KINDS, i), hak__option_kind_name((enum hak_option_kind)i)), 0);
    for (unsigned i = 0; i < list_of(HAK_LIVE_LIST_WHEN).count; i++)
        expect_eq(strcmp(name_in(HAK_LIVE_LIST_WHEN, i), hak__option_when_name((enum hak_option_when)i)), 0);
    for (unsigned i = 0; i < list_of(HAK_LIVE_LIST_PRESETS).count; i++)
        expect_eq(strcmp(name_in(HAK_LIVE_LIST_PRESETS, i), hak__option_word(HAK_OPTION_preset, i)), 0);
    for (unsigned i = HAK_STATS_EXACT; i < list_of(HAK_LIVE_LIST_STATS).count; i++)
        expect_eq(strcmp(name_in(HAK_LIVE_LIST_STATS, i), hak__option_word(HAK_OPTION_stats, i)), 0);
    expect_eq(list_of(HAK_LIVE_LIST_ROOTS).count, hak_live.root_count);
    expect_eq(hak_live.magic, HAK_LIVE_MAGIC);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_are_those_of_the_snapshot),
        cmocka_unit_test(stacks_can_be_counted),
        cmocka_unit_test(spans_can_be_found),
        cmocka_unit_test(blocks_can_be_judged),
        cmocka_unit_test(layout_is_the_sum),
        cmocka_unit_test(options_have_their_words),
        cmocka_unit_test(words_are_those_of_the_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
