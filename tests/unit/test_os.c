/* os/os.h on Linux: the contract that arena/ relies on. Nothing is ever replaced by map, a purge gives zeros, a move
 * keeps the content and leaves nothing behind, failures say why by their code and leave errno alone; the wrappers
 * count calls and failures by kind. */
#include "os/os.h"

#include "support/check.h"
#include "support/memory.h"

#include <sys/wait.h>

enum { PAGES = 4 };

static size_t page;
static uintptr_t room;   /* PAGES * 4 pages that nobody has mapped */

static int setup(void **state)
{
    (void)state;
    page = hak__os_linux.page_size();
    room = hak__os_linux.probe(PAGES * 4 * page);
    errno = 77;   /* no call may change it */
    return room == 0;
}

static int teardown(void **state)
{
    (void)state;
    munmap((void *)room, PAGES * 4 * page);
    bool kept = errno == 77 || (is_emulated() && page > 4096);   /* where cmocka's sigsetjmp() fails after the setup */
    return kept ? 0 : -1;
}

static char *at(size_t pages) { return (char *)room + pages * page; }

static void map_gives_zeros(void **state)
{
    (void)state;
    expect_eq(hak__os_map(room, PAGES * page), 0);
    expect(is_zero(at(0), PAGES * page));
    memset(at(0), 1, PAGES * page);
    expect(!is_mapped(at(PAGES)));
}

static void map_replaces_nothing(void **state)
{
    (void)state;
    expect_eq(hak__os_map(room + page, page), 0);
    memset(at(1), 7, page);
    expect_eq(hak__os_map(room + page, page), EEXIST);
    expect_eq(hak__os_map(room, 2 * page), EEXIST);
    expect_eq(hak__os_map(room, PAGES * page), EEXIST);
    expect_eq(at(1)[0], 7);
    expect_eq(at(1)[page - 1], 7);
    expect(!is_mapped(at(0)) && !is_mapped(at(2)));
}

static void map_refused(void **state)
{
    (void)state;
    uint64_t calls = atomic_load(&hak__os_calls[HAK_OS_MAP]), failures = atomic_load(&hak__os_failures);
    expect(hak__os_map(room, (size_t)1 << 62) != 0);
    expect_eq(atomic_load(&hak__os_calls[HAK_OS_MAP]), calls + 1);
    expect_eq(atomic_load(&hak__os_failures), failures + 1);
    expect(!is_mapped(at(0)));
}

static void unmap_part(void **state)
{
    (void)state;
    expect_eq(hak__os_map(room, PAGES * page), 0);
    expect_eq(hak__os_unmap(room + page, page), 0);
    expect(is_mapped(at(0)) && !is_mapped(at(1)) && is_mapped(at(2)));
    expect(hak__os_unmap(room + 1, page) != 0);   /* not a page's start */
    expect(is_mapped(at(0)));
}

static void purge_gives_zeros(void **state)
{
    (void)state;
    expect_eq(hak__os_map(room, PAGES * page), 0);
    memset(at(0), 3, PAGES * page);
    expect_eq(hak__os_purge(room + page, page), 0);
    expect(is_zero(at(1), page));
    expect(is_mapped(at(1)));
    expect_eq(at(0)[page - 1], 3);
    expect_eq(at(2)[0], 3);
    expect_eq(hak__os_unmap(room, PAGES * page), 0);
    expect_eq(hak__os_purge(room, page), ENOMEM);
}

static void move_keeps_content(void **state)
{
    (void)state;
    expect_eq(hak__os_map(room, PAGES * page), 0);
    expect_eq(hak__os_map(room + 2 * PAGES * page, 2 * PAGES * page), 0);
    for (size_t i = 0; i < PAGES; i++)
        memset(at(i), (int)i + 1, page);
    expect_eq(hak__os_move(room, PAGES * page, room + 2 * PAGES * page, 2 * PAGES * page), 0);
    for (size_t i = 0; i < PAGES; i++) {
        expect_eq(at(2 * PAGES + i)[0], i + 1);
        expect_eq(at(2 * PAGES + i)[page - 1], i + 1);
        expect(!is_mapped(at(i)));
    }
    expect(is_zero(at(3 * PAGES), PAGES * page));
}

static void move_refused(void **state)
{
    (void)state;
    uint64_t failures = atomic_load(&hak__os_failures);
    expect_eq(hak__os_map(room + 2 * page, page), 0);
    at(2)[0] = 9;
    expect(hak__os_move(room, page, room + 2 * page, page) != 0);   /* nothing to move */
    expect_eq(atomic_load(&hak__os_failures), failures + 1);
}

static void probe_finds_room(void **state)
{
    (void)state;
    uintptr_t found = hak__os_probe(64 * page);
    expect(found != 0 && found % page == 0);
    expect_eq(hak__os_map(found, 64 * page), 0);
    expect_eq(hak__os_unmap(found, 64 * page), 0);
    expect_eq(hak__os_probe((size_t)1 << 62), 0);
}

static void counts_by_kind(void **state)
{
    (void)state;
    uint64_t before[HAK_OS_CALLS];
    unsigned char resident;
    for (int kind = 0; kind < HAK_OS_CALLS; kind++)
        before[kind] = atomic_load(&hak__os_calls[kind]);
    hak__os_map(room, page);
    hak__os_purge(room, page);
    hak__os_map(room + 2 * page, page);
    hak__os_move(room, page, room + 2 * page, page);
    hak__os_unmap(room + 2 * page, page);
    hak__os_probe(page);
    expect_eq(hak__os_resident(room + 2 * page, page, &resident), ENOMEM);
    static const uint64_t made[HAK_OS_CALLS] = { [HAK_OS_MAP] = 2, [HAK_OS_UNMAP] = 1, [HAK_OS_PURGE] = 1,
                                                 [HAK_OS_MOVE] = 1, [HAK_OS_PROBE] = 1, [HAK_OS_LOOK] = 1 };
    for (int kind = 0; kind < HAK_OS_CALLS; kind++)
        expect_eq(atomic_load(&hak__os_calls[kind]) - before[kind], made[kind]);
}

static void knows_what_can_be_read(void **state)
{
    (void)state;
    uint64_t signals = hak__os_block_signals();
    hak__os_restore_signals(signals);
    expect_eq(hak__os_readable(room), EFAULT);
    expect_eq(hak__os_readable(0), EFAULT);
    hak__os_map(room, page);
    expect_eq(hak__os_readable(room), 0);
    expect_eq(mprotect((void *)room, page, PROT_READ), 0);
    expect_eq(hak__os_readable(room), 0);
    expect_eq(mprotect((void *)room, page, PROT_NONE), 0);
    expect_eq(hak__os_readable(room), EFAULT);
    hak__os_unmap(room, page);
    expect_eq(hak__os_block_signals(), signals);   /* no signal is blocked by it */
    hak__os_restore_signals(signals);
}

static void looks_at_nothing_under_a_filter(void **state)
{
    (void)state;
    unsigned char resident = 7;
    uint64_t looks = atomic_load(&hak__os_calls[HAK_OS_LOOK]);
    expect(!hak__os_filter_comes(true));
    expect_eq(hak__os_resident(room, page, &resident), EPERM);
    expect_eq(hak__os_readable(room), EPERM);
    expect(atomic_load(&hak__os_calls[HAK_OS_LOOK]) == looks);
    expect(hak__os_filter_comes(true));
    expect(hak__os_filter_comes(false));
    hak__os_map(room, page);
    *(volatile char *)room = 1;
    expect_eq(hak__os_resident(room, page, &resident), 0);
    expect_eq(resident, 1);
    hak__os_unmap(room, page);
}

/* The page below may be a guard, or the program's: what grows from it can be used all the same, in children too. */
static void extend_grows_usable_memory(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        hak__os_map(room, page);
        expect(way != 1 || mprotect(at(0), page, PROT_READ) == 0);
        expect(way != 2 || mprotect(at(0), page, PROT_NONE) == 0);
        expect(way != 3 || madvise(at(0), page, MADV_DONTFORK) == 0);
        expect_eq(hak__os_extend(room + page, 2 * page), 0);
        memset(at(1), 7, 2 * page);
        pid_t child = fork();
        if (child == 0)
            _exit(at(2)[0] == 7 ? 0 : 1);
        int status = 1;
        waitpid(child, &status, 0);
        expect_eq(status, 0);
        hak__os_unmap(room, 3 * page);
    }
    hak__os_map(room, 2 * page);
    expect_eq(hak__os_extend(room + page, page), ENOMEM);
    hak__os_unmap(room, 2 * page);
}

static void restore_undoes_what_the_program_did(void **state)
{
    enum { GUARD_INSTALL = 102 };
    (void)state;
    hak__os_map(room, PAGES * page);
    memset(at(0), 5, PAGES * page);
    expect(mprotect(at(0), page, PROT_NONE) == 0 && mprotect(at(2), page, PROT_READ) == 0);
    madvise(at(1), page, GUARD_INSTALL);   /* where the kernel knows it */
    expect(madvise(at(3), page, MADV_DONTFORK) == 0);
    errno = 77;
    expect_eq(hak__os_advise(room, PAGES * page, HAK_OS_RESTORE), 0);
    expect(at(0)[0] == 5 && at(2)[0] == 5 && at(3)[0] == 5);
    memset(at(0), 6, PAGES * page);
    pid_t child = fork();
    if (child == 0)
        _exit(at(3)[0] == 6 ? 0 : 1);
    int status = 1;
    waitpid(child, &status, 0);
    expect_eq(status, 0);
    hak__os_unmap(room + page, page);
    expect(hak__os_advise(room, PAGES * page, HAK_OS_RESTORE) != 0);
    errno = 77;
}

static void clock_and_random(void **state)
{
    (void)state;
    uint64_t first = hak__os_linux.now_ms();
    usleep(30000);
    uint64_t second = hak__os_linux.now_ms();
    expect_op(second, >=, first + 10);
    expect_op(second, <, first + 60000);
    uint64_t a = hak__os_linux.random(), b = hak__os_linux.random();
    expect(a != b || hak__os_linux.random() != a);
    expect_eq(page, (size_t)sysconf(_SC_PAGESIZE));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(map_gives_zeros), TEST(map_replaces_nothing), TEST(map_refused),      TEST(unmap_part),
        TEST(purge_gives_zeros), TEST(move_keeps_content), TEST(move_refused),     TEST(probe_finds_room),
        TEST(counts_by_kind),  TEST(knows_what_can_be_read), TEST(looks_at_nothing_under_a_filter), TEST(clock_and_random),
        TEST(extend_grows_usable_memory), TEST(restore_undoes_what_the_program_did),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
