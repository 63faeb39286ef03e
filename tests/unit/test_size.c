/* size/size.h, for every request and every offset there is: the class of a request is the smallest that fits; the
 * reciprocal gives the index of every multiple of 16 in a span exactly, so that block starts and other addresses are
 * told apart; the bands; and the table against the rule that generates it, written here a second time. */
#include "size/size.h"

#include "support/check.h"

static void smallest_class(void **state)
{
    (void)state;
    uint32_t class = 0;
    for (size_t n = 0; n <= HAK_LARGE_MAX; n++) {
        class += n > hak__classes[class].size;
        if (hak__class_of(n) != class)
            expect_eq(hak__class_of(n), class);
        if (n > HAK_TINY_MAX && hak__class_above_tiny(n) != class)
            expect_eq(hak__class_above_tiny(n), class);
    }
    expect_eq(class, HAK_CLASSES - 1);
    expect_eq(hak__classes[class].size, HAK_LARGE_MAX);
}

static void pools_begin_where_they_say(void **state)
{
    (void)state;
    expect_eq(hak__classes[HAK_CLASS_TINY_LAST].size, HAK_TINY_MAX);
    expect_eq(hak__classes[HAK_CLASS_MID_LAST].size, HAK_MID_MAX);
    expect_eq(hak__class_of(HAK_MID_MAX + 1), HAK_CLASS_FIRST_LARGE);
}

static void tiny_codes(void **state)
{
    (void)state;
    for (size_t unit = 0; unit <= HAK_TINY_MAX / HAK_ALIGN; unit++)
        expect_eq(hak__tiny_class_offset[unit], hak__class_of(unit * HAK_ALIGN) * HAK_BIN_SIZE);
}

/* --- places in a span --------------------------------------------------------------------------------------------- */

static bool starts_block(const struct hak_class *class, size_t offset)
{
    return hak__place_is_block(hak__place_of(class->reciprocal, offset), class->reciprocal, class->blocks);
}

static bool starts_block_plainly(const struct hak_class *class, size_t offset)
{
    return offset % class->size == 0 && offset / class->size < class->blocks;
}

/* One multiplication gives the index of every offset, and tells the starts of blocks from all other addresses. */
static void place_of_every_offset(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < HAK_CLASSES; c++) {
        const struct hak_class *class = &hak__classes[c];
        for (size_t offset = 0; offset < class->slabs * HAK_SLAB_SIZE; offset++) {
            struct hak_place place = hak__place_of(class->reciprocal, offset);
            bool right = place.index == offset / class->size;
            if (!right || starts_block(class, offset) != starts_block_plainly(class, offset))
                check_failed(__FILE__, __LINE__, "class size, offset", class->size, offset);
        }
    }
}

/* Offsets outside of any span, also those that a pointer below its span gives, are never starts. */
static void wild_offsets_are_no_blocks(void **state)
{
    (void)state;
    struct rng rng = { 2 };
    for (uint32_t c = 0; c < HAK_CLASSES; c++) {
        const struct hak_class *class = &hak__classes[c];
        for (size_t n = 0; n < 5000; n++) {
            size_t beyond = class->slabs * HAK_SLAB_SIZE + n, random = rng_next(&rng) >> rng_below(&rng, 64);
            expect(!starts_block(class, beyond));
            expect(n == 0 || !starts_block(class, -n));
            expect_eq(starts_block(class, random), starts_block_plainly(class, random));
        }
    }
}

static void bands(void **state)
{
    (void)state;
    expect_eq(hak__band_of(0), 1);   /* requests of band C0 are served by the 16-byte class */
    for (uint32_t c = 1; c <= HAK_CLASS_TINY_LAST; c++) {
        uint32_t band = hak__band_of(c);
        expect_op(hak__classes[c].size, <=, 8u << band);
        expect_op(hak__classes[c].size, >, 4u << band);
    }
    expect_eq(hak__band_of(HAK_CLASS_TINY_LAST), 7);
}

/* --- the rule ------------------------------------------------------------------------------------------------------ */

enum { FIRST_EIGHTH = 20, LAST_OF_FIVE = 39 };   /* 1152 B; 16 KiB */

static uint32_t size_by_rule(uint32_t c)
{
    static const uint32_t eighths[] = { 1152, 2304, 4480, 9344 };
    if (c < 8)
        return 16 * (c + 1);
    if (c >= FIRST_EIGHTH && c <= LAST_OF_FIVE && (c - FIRST_EIGHTH) % 5 == 0)
        return eighths[(c - FIRST_EIGHTH) / 5];
    c -= c > LAST_OF_FIVE ? 4 : c > FIRST_EIGHTH ? (c - FIRST_EIGHTH) / 5 + 1 : 0;
    uint32_t base = 128u << (c - 8) / 4, step = (c - 8) % 4 + 1, size = base + base / 4 * step;
    bool spread = size > 4096 && size < HAK_MID_MAX && step != 4;   /* odd multiples of 128 */
    return size + (spread ? 128 : 0);
}

/* The fewest slabs of which a large class loses nothing at the end. */
static uint32_t large_slabs_by_rule(size_t size)
{
    uint32_t slabs = 1;
    while (slabs * HAK_SLAB_SIZE % size != 0)
        slabs++;
    return slabs;
}

/* The fewest slabs with four blocks and at most 6 % lost at the end. */
static uint32_t slabs_by_rule(size_t size)
{
    if (size > HAK_MID_MAX)
        return large_slabs_by_rule(size);
    for (uint32_t slabs = 1; slabs <= HAK_SPAN_SLABS_MAX; slabs++) {
        size_t length = slabs * HAK_SLAB_SIZE, lost = length % size;
        if (length / size >= 4 && lost * 100 <= 6 * length)
            return slabs;
    }
    return 0;
}

static void table_follows_the_rule(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < HAK_CLASSES; c++) {
        const struct hak_class *class = &hak__classes[c];
        size_t size = size_by_rule(c);
        expect_eq(class->size, size);
        expect_eq(class->slabs, slabs_by_rule(size));
        expect_eq(class->blocks, class->slabs * HAK_SLAB_SIZE / size);
        expect_op(class->slabs, <=, HAK_SPAN_SLABS_MAX);
        expect_op(hak__class_single_slabs(c) * HAK_SLAB_SIZE, >=, size);
        expect_op(hak__class_single_slabs(c) * HAK_SLAB_SIZE - size, <, HAK_SLAB_SIZE);
        expect_eq(class->reciprocal, UINT64_MAX / size + (hak_is_power_of_two(size) ? 2 : 1));
        expect_eq(class->batch, hak_max(1, hak_min(32, (64 << 10) / size)));
        expect_op(class->blocks, <=, HAK_SPAN_BLOCKS_MAX);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(smallest_class),        cmocka_unit_test(pools_begin_where_they_say),
        cmocka_unit_test(tiny_codes),            cmocka_unit_test(place_of_every_offset),
        cmocka_unit_test(wild_offsets_are_no_blocks),
        cmocka_unit_test(bands),                 cmocka_unit_test(table_follows_the_rule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
