/* arena/owner.h: words are made and taken apart, an address has the word of its slab, and addresses from elsewhere have none. */
#include "arena/owner.h"

#include "arena/runs.h"
#include "support/fake_os.h"

static void words_come_apart(void **state)
{
    (void)state;
    for (uint32_t id = 1; id < HAK_HEAPS_MAX; id = id * 3 + 1) {
        uint32_t tag = hak__owner_word(id, 0);
        for (uint32_t class = 0; class < HAK_CLASSES; class++) {
            uint32_t word = hak__owner_word(id, class);
            expect_eq(hak__owner_id(word), id);
            expect_eq(hak__owner_class(word), class);
            expect(hak__owner_has_class(word) && !hak__owner_is_inner(word) && !hak__owner_is_own(word));
            expect_eq(word ^ tag, class * HAK_BIN_SIZE);
            expect_ptr(hak__owner_sizes(word), &hak__classes[class]);
            expect(hak__owner_is_own(word | HAK_CLASS_OFFSET_OWN) && hak__owner_class(word | HAK_CLASS_OFFSET_OWN) == class);
        }
        expect(hak__owner_is_inner(hak__owner_inner(id)) && !hak__owner_has_class(hak__owner_inner(id)));
        expect_op(hak__owner_word(id + 1, 0) ^ tag, >=, HAK_CLASS_OFFSET_LIMIT);
    }
    expect(hak__owner_word(HAK_HEAPS_MAX - 1, 0) != hak__owner_huge());
    expect(!hak__owner_has_class(hak__owner_huge()) && !hak__owner_is_inner(hak__owner_huge()));
}

static void generations_are_told_apart(void **state)
{
    (void)state;
    uint32_t before = hak__owner_word(5, 2), share = hak__owner_aged(0, 6, 2) | HAK_CLASS_OFFSET_OWN;
    for (uint32_t i = 1; i < HAK_GENERATIONS; i++) {
        hak__window.generation = i << HAK_GENERATION_SHIFT;
        uint32_t now = hak__owner_word(5, 2), tag = hak__owner_word(5, 0);
        expect(hak__owner_id(now) == 5 && hak__owner_class(now) == 2 && !(now == hak__owner_huge()));
        expect_op(now ^ tag, <, HAK_CLASS_OFFSET_LIMIT);
        expect_op(before ^ tag, >=, HAK_CLASS_OFFSET_LIMIT);
        expect(hak__owner_is_inherited(before) && !hak__owner_is_inherited(now) && !hak__owner_is_inherited(share));
        expect_eq(hak__owner_generation(now), hak__window.generation);
    }
    hak__window.generation = 0;
}

FRESH_TEST(an_address_has_its_slabs_word)
{
    bool fresh = false;
    (void)argument;
    fake_install();
    expect_eq(hak__owner_of(&fresh), 0);
    expect_eq(hak__arena_init(), 0);
    expect_eq(hak__supers_take(1, 1, HAK_SUPER_SIZE, HAK_SUPER_HUGE, &fresh), 0);
    char *p = hak__super_start(0);
    hak__owner_set(3, hak__owner_word(7, 2));
    expect_eq(hak__slab_of(p + 3 * HAK_SLAB_SIZE), 3);
    expect_ptr(hak__slab_start(3), p + 3 * HAK_SLAB_SIZE);
    expect_eq(hak__owner_of(p + 3 * HAK_SLAB_SIZE), hak__owner_word(7, 2));
    expect_eq(hak__owner_of(p + 4 * HAK_SLAB_SIZE - 1), hak__owner_at(3));
    expect_eq(hak__owner_of(p + 4 * HAK_SLAB_SIZE), 0);
    expect(hak__owner_of(NULL) == 0 && hak__owner_of(&fresh) == 0 && hak__owner_of(p - 1) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_come_apart),
        cmocka_unit_test(generations_are_told_apart),
        cmocka_unit_test(an_address_has_its_slabs_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
