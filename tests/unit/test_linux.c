/* os/linux.c beside its table (test_os.c): ranges that are reserved, committed, discarded and borrowed; which pages are resident and
 * which words can be read, also where a filter forbids to ask; mappings; and the contracts of ranges. */
#include "os/os.h"

#include "base/limits.h"
#include "support/check.h"
#include "support/memory.h"

static size_t page(void) { return hak__os_linux.page_size(); }

/* What the kernel says of the mapping: "dd" is among the flags of one that core dumps leave out. */
static bool is_dumped(const char *p)
{
    char line[512];
    unsigned long start, end;
    FILE *maps = fopen("/proc/self/smaps", "r");
    bool here = false, dumped = false;
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
            here = (uintptr_t)p >= start && (uintptr_t)p < end;
        if (here && strncmp(line, "VmFlags:", 8) == 0)
            dumped = strstr(line, " dd") == NULL;
    }
    expect(maps != NULL && fclose(maps) == 0);
    return dumped;
}

/* An emulator takes no such advice. */
static bool is_left_out(const char *p) { return is_emulated() || !is_dumped(p); }

static void a_reserved_range_is_committed_in_parts(void **state)
{
    (void)state;
    size_t size = 16 * page();
    char *range = (char *)hak__os_reserve(size);
    expect(range != NULL);
    expect_eq(hak__os_readable((uintptr_t)range), EFAULT);
    expect(is_left_out(range));
    expect_eq(hak__os_commit((uintptr_t)range + page() + 100, page()), 0); /* the pages that the bytes lie in */
    expect(is_zero(range + page(), 2 * page()));
    memset(range + page(), 1, 2 * page());
    expect_eq(hak__os_commit((uintptr_t)range + page(), page()), 0);
    expect_eq(range[page()], 1);
    hak__os_discard((uintptr_t)range + page(), page());
    expect(is_zero(range + page(), page()));
    expect_eq(range[2 * page()], 1);
    expect_eq(hak__os_readable((uintptr_t)range + 3 * page()), EFAULT);
    expect(is_left_out(range + page()));
    hak__os_dump((uintptr_t)range + page(), 2 * page());
    expect(is_dumped(range + page()) && is_left_out(range + 3 * page()));
    hak__os_return((uintptr_t)range, size);
}

static void borrowed_memory_is_zeroed_and_goes(void **state)
{
    (void)state;
    char *p = (char *)hak__os_borrow(2 * page());
    expect(is_zero(p, 2 * page()));
    p[page()] = 1;
    hak__os_return((uintptr_t)p, 2 * page());
    expect(!is_mapped(p));
}

/* Its pages have no code, which could not run meanwhile. */
static const _Alignas(HAK_PAGE_MOST) char constant[HAK_PAGE_MOST] = "constant";

FRESH_TEST(read_only_data_can_be_written)
{
    (void)argument;
    expect_eq(hak__os_unprotect((void *)(uintptr_t)constant, sizeof constant), 0);
    *(volatile char *)(uintptr_t)constant = 'K';
    expect_eq(*(const volatile char *)constant, 'K');
}

FRESH_TEST(resident_pages)
{
    (void)argument;
    unsigned char pages[4] = { 9, 9, 9, 9 };
    char *p = (char *)hak__os_borrow(4 * page());
    p[page()] = 1;
    expect_eq(hak__os_resident((uintptr_t)p, 4 * page(), pages), 0);
    expect(pages[1] == 1 && pages[3] == 0);
    expect_eq(hak__os_readable((uintptr_t)p), 0);
    expect_eq(hak__os_readable(0), EFAULT);
    expect(!hak__os_filter_comes(true));
    expect(hak__os_is_filtered());
    expect_eq(hak__os_resident((uintptr_t)p, page(), pages), EPERM);
    expect_eq(hak__os_readable((uintptr_t)p), EPERM);
    expect(hak__os_filter_comes(false));
    hak__os_return((uintptr_t)p, 4 * page());
    expect_eq(hak__os_resident((uintptr_t)p, page(), pages), ENOMEM);
}

FRESH_TEST(the_peak)
{
    (void)argument;
    size_t before = hak__os_peak(), more = 2 * before;
    expect_op(before, >, page());
    char *p = (char *)hak__os_borrow(more);
    memset(p, 1, more);
    size_t then = hak__os_peak();
    expect_op(then, >=, more);
    hak__os_return((uintptr_t)p, more);
    expect_op(hak__os_peak(), >=, then);
    hak__os_filter_comes(true);
    expect_eq(hak__os_peak(), 0);
    hak__os_filter_comes(false);
}

struct sought {
    uintptr_t start;
    size_t resident;
};

static void look(void *argument, uintptr_t start, size_t resident, size_t huge)
{
    struct sought *sought = argument;
    (void)huge;
    if (start == sought->start)
        sought->resident += resident;
}

static void mappings_with_their_pages(void **state)
{
    (void)state;
    size_t size = 64 * page();
    char *p = (char *)hak__os_borrow(size);
    mprotect(p, size, PROT_READ | PROT_WRITE | PROT_EXEC); /* no neighbour has the same rights */
    memset(p, 1, size);
    struct sought sought = { (uintptr_t)p, 0 };
    if (hak__os_mappings(look, &sought) && !is_emulated())   /* else it has the rights to execute from its neighbours */
        expect_eq(sought.resident, size);
    hak__os_return((uintptr_t)p, size);
}

static void map_half_a_page(void *argument)
{
    (void)argument;
    hak__os_linux.map((uintptr_t)1 << 40, page() / 2);
}

static void move_over_itself(void *argument)
{
    (void)argument;
    uintptr_t p = hak__os_borrow(4 * page());
    hak__os_linux.move(p, 2 * page(), p + page(), 2 * page());
}

static void contracts(void **state)
{
    (void)state;
    expect_contract(map_half_a_page, NULL, "a range is whole pages");
    expect_contract(move_over_itself, NULL, "a mapping moves to addresses apart from it");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reserved_range_is_committed_in_parts),
        cmocka_unit_test(borrowed_memory_is_zeroed_and_goes),
        cmocka_unit_test(read_only_data_can_be_written),
        cmocka_unit_test(resident_pages), cmocka_unit_test(the_peak),
        cmocka_unit_test(mappings_with_their_pages),
        cmocka_unit_test(contracts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
