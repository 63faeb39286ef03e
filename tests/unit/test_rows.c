/* Rules of frames in one word, and the rows in which they are kept: what goes in comes out, and half a row is none. */
#include "support/check.h"
#include "trace/rows.h"

#if defined(__x86_64__)
static const struct rules plain = { .frame_register = REGISTER_SP, .frame_offset = 8 };

static struct rules with_return(void)
{
    struct rules rules = plain;
    set_rule(&rules, REGISTER_RETURN, RULE_OFFSET, -8);
    return rules;
}

static void same(const struct rules *a, const struct rules *b)
{
    expect_eq(a->frame_register, b->frame_register);
    expect_eq(a->frame_offset, b->frame_offset);
    for (unsigned i = 0; i < REGISTERS; i++) {
        bool in_a = row_has(a, i, RULE_OFFSET), in_b = row_has(b, i, RULE_OFFSET);
        expect_eq(in_a, in_b);
        if (in_a)
            expect_eq(a->at[i], b->at[i]);
    }
}

static void what_goes_in_comes_out(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (unsigned turn = 0; turn < 20000; turn++) {
        struct rules rules = with_return(), again;
        seed = seed * ROW_MIX + 1;
        rules.frame_register = (seed >> 20 & 1) != 0 ? REGISTER_FP : REGISTER_SP;
        rules.frame_offset = (intptr_t)(1 + (seed >> 21) % (ROW_FRAME_MOST - 1)) * 8;
        for (unsigned i = 0; i < ROW_REGISTERS; i++)
            if ((seed >> (40 + i) & 1) != 0)
                set_rule(&rules, row_registers[i], (seed >> (50 + i) & 1) != 0 ? RULE_OFFSET : RULE_SAME,
                         -8 * (int64_t)(1 + (seed >> i) % ROW_PLACE_MOST));
        expect_op(row_pack(&rules), !=, 0);
        row_unpack(row_pack(&rules), &again);
        same(&rules, &again);
    }
    struct rules outermost = plain, again;
    set_rule(&outermost, REGISTER_RETURN, RULE_NONE, 0);
    row_unpack(row_pack(&outermost), &again);
    expect(row_has(&again, REGISTER_RETURN, RULE_NONE));
}

static void refused(struct rules rules) { expect_eq(row_pack(&rules), 0); }

static void other_rules_have_no_word(void **state)
{
    (void)state;
    struct rules rules;
    refused(plain);                                                        /* the return address is where it was */
    rules = with_return(), set_rule(&rules, REGISTER_RETURN, RULE_OFFSET, -16), refused(rules);
    rules = with_return(), rules.frame_register = 10, refused(rules);
    rules = with_return(), rules.frame_offset = 12, refused(rules);
    rules = with_return(), rules.frame_offset = 0, refused(rules);
    rules = with_return(), rules.frame_offset = -8, refused(rules);
    rules = with_return(), rules.frame_offset = ROW_FRAME_MOST * 8, refused(rules);
    rules = with_return(), set_rule(&rules, 12, RULE_OFFSET, -8 * (ROW_PLACE_MOST + 1)), refused(rules);
    rules = with_return(), set_rule(&rules, 12, RULE_OFFSET, 8), refused(rules);
    rules = with_return(), set_rule(&rules, 12, RULE_OFFSET, -12), refused(rules);
    rules = with_return(), set_rule(&rules, 12, RULE_NONE, 0), refused(rules);
    rules = with_return(), set_rule(&rules, 8, RULE_OFFSET, -24), refused(rules);
}
#endif

static void half_a_row_is_none(void **state)
{
    (void)state;
    const uintptr_t pc = 0x55550123;
    const struct row row = { 3, 70000, 0x123456789abcdef0 };
    struct row found;
    expect(!row_find(pc, &found));
    row_keep(pc, &row);
    expect(row_find(pc, &found) && memcmp(&row, &found, sizeof row) == 0);
    for (unsigned i = 0; i < 4; i++) {
        _Atomic uint64_t *word = &row_words(pc)[i];
        uint64_t before = hak_load(word, HAK_RELAXED);
        for (unsigned bit = 0; bit < 64; bit++) {
            hak_store(word, before ^ 1ull << bit, HAK_RELAXED);
            expect(!row_find(pc, &found));
        }
        hak_store(word, before, HAK_RELAXED);
    }
    expect(row_find(pc, &found));
    row_keep(pc, &(struct row){ 0, 1, 1 });   /* nothing to keep */
    row_keep(pc, &(struct row){ 1, 1, 0 });
    expect(row_find(pc, &found) && found.rules == row.rules);
}

/* Each byte of an entry and of its common part counts; one that is too long, or lies partly outside, has no sum. */
static void sums(void **state)
{
    (void)state;
    enum { COMMON = 24, ENTRY = 36 };
    uint8_t bytes[ENTRY + COMMON + ROW_RECORD_MOST] = { 0 };
    uint32_t lengths[] = { COMMON - 4, ENTRY - 4, COMMON + 4 };
    memcpy(bytes, &lengths[0], 4);
    memcpy(bytes + COMMON, &lengths[1], 4);
    memcpy(bytes + COMMON + 4, &lengths[2], 4);
    struct reader all = { bytes, bytes + sizeof bytes, false };
    uint64_t sum = entry_sum(all, bytes + COMMON);
    expect_op(sum, !=, 0);
    for (unsigned at = 4; at < COMMON + ENTRY; at++) {
        if (at >= COMMON && at < COMMON + 8)
            continue;   /* lengths, and the way back */
        bytes[at] ^= 0x40;
        expect_op(entry_sum(all, bytes + COMMON), !=, sum);
        bytes[at] ^= 0x40;
    }
    all.end = bytes + COMMON + ENTRY - 1;
    expect_eq(entry_sum(all, bytes + COMMON), 0);
    all = (struct reader){ bytes + 1, bytes + sizeof bytes, false };
    expect_eq(entry_sum(all, bytes + COMMON), 0);
    all.at = bytes;
    lengths[1] = ROW_RECORD_MOST + 4;
    memcpy(bytes + COMMON, &lengths[1], 4);
    expect_eq(entry_sum(all, bytes + COMMON), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#if defined(__x86_64__)
        cmocka_unit_test(what_goes_in_comes_out),
        cmocka_unit_test(other_rules_have_no_word),
#endif
        cmocka_unit_test(half_a_row_is_none),
        cmocka_unit_test(sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
