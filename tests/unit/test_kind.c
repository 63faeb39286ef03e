/* kinds/kind.h: a kind that is one file and one row. This file is that of a kind "logged", whose blocks lie in an array of its own; its row is
 * HAK_KINDS_MORE. Every function of the program's finds it, and the other kinds are what they were. */
#define HAK_KINDS_MORE(X) X(logged)
#include "kinds/kind.c"

#include "diag/report.h"
#include "hakmem_region.h"
#include "support/check.h"

/* --- the kind -------------------------------------------------------------------------------------------------------------- */

enum { BLOCKS = 4, BYTES = 64 };
static char blocks[BLOCKS][BYTES] __attribute__((aligned(16)));
static const void *log_of[BLOCKS];
static unsigned logged;

static bool logged_has(const void *p) { return (uintptr_t)p - (uintptr_t)blocks < sizeof blocks; }
static void logged_free(void *p, uint32_t word, const char *function)
{
    expect(word == 0 && strcmp(function, "free") == 0);
    log_of[logged++] = p;
}
static size_t logged_usable(const void *p, const char *function) { return expect(p != NULL && function != NULL), BYTES; }
static bool logged_live(const void *p) { return p != log_of[0]; }
static struct hak_uheap *logged_heap(const void *p) { return expect(logged_has(p)), (struct hak_uheap *)(void *)blocks; }
static void logged_describe(uintptr_t address, char *text, size_t size)
{
    hak__format(text, size, "in logged block %u", (uint64_t)((address - (uintptr_t)blocks) / BYTES));
}
const struct hak_kind hak__kind_logged = {
    .has = logged_has, .free = logged_free, .usable = logged_usable, .heap = logged_heap, .live = logged_live,
    .describe = logged_describe,
};

/* --- what the program's functions do with it --------------------------------------------------------------------------------- */

FRESH_TEST(every_function_finds_it)
{
    char text[100];
    (void)argument;
    hak_free(hak_malloc(1));
    memset(blocks, 'x', sizeof blocks);
    expect_eq(hak_usable_size(blocks[0]), BYTES);
    expect_ptr(hak_realloc(blocks[0], BYTES - 1), blocks[0]);
    expect_ptr(hak_heap_of(blocks[0]), (void *)blocks);
    hak_free(blocks[0]);
    expect(logged == 1 && log_of[0] == blocks[0]);
    expect_ptr(hak_heap_of(blocks[0]), NULL);
    hak_free_sized(blocks[1], 1);                       /* says nothing of sizes */
    expect(logged == 2 && log_of[1] == blocks[1]);
    char *moved = hak_realloc(blocks[2], 10 * BYTES);   /* by the rest of the table: a copy, and a free */
    expect(moved != NULL && !logged_has(moved) && moved[0] == 'x' && moved[BYTES - 1] == 'x');
    expect(logged == 3 && log_of[2] == blocks[2]);
    hak_free(moved);
    hak__describe((uintptr_t)&blocks[3][5], text, sizeof text);
    expect(strcmp(text, "in logged block 3") == 0);
}

FRESH_TEST(others_are_what_they_were)
{
    (void)argument;
    hak_heap_t *heap = hak_heap_new(NULL);
    void *plain = hak_malloc(100), *large = hak_malloc(200 << 10), *huge = hak_malloc(3 << 20), *user = hak_heap_malloc(heap, 100);
    bool hardened = hak__hardened.on;
    expect_ptr(hak__kind_at(plain), hardened ? &hak__kind_hardened : &hak__kind_plain);
    expect_ptr(hak__kind_at(large), hardened ? &hak__kind_hardened : &hak__kind_large);
    expect_ptr(hak__kind_at(user), hardened ? &hak__kind_hardened : &hak__kind_user_heap);
    expect_ptr(hak__kind_at(huge), hardened ? &hak__kind_sealed : &hak__kind_huge);
    expect_ptr(hak__kind_at((char *)huge + (2 << 20)), &hak__kind_none);
    expect_ptr(hak__kind_at(&heap), hak__kind_at(NULL));
    expect_ptr(hak__block_around((uintptr_t)huge + 5), huge);
    expect_ptr(hak__block_around((uintptr_t)plain + 5), plain);
    expect_ptr(hak__block_around((uintptr_t)blocks), NULL);
    static char memory[256 << 10];
    char text[100];
    hak_heap_t *region = hak_heap_new(&(struct hak_heap_options){ .size = sizeof(struct hak_heap_options), .region = memory,
                                                                  .region_size = sizeof memory });
    void *in_region = hak_heap_malloc(region, 100);
    expect_ptr(hak__kind_at(in_region), hak_load(&hak__regions, HAK_RELAXED)->kind);
    expect(hak_usable_size(in_region) >= 100 && hak_heap_of(in_region) == region);
    hak__describe((uintptr_t)in_region, text, sizeof text);
    expect(strncmp(text, "in the region of heap 0x", 24) == 0);
    hak_free(plain), hak_free(large), hak_free(huge), hak_heap_destroy(heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_function_finds_it),
        cmocka_unit_test(others_are_what_they_were),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
