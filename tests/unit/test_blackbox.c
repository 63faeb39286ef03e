/* stats/blackbox.h: slots take turns and are whole, levels are crossed once each and again only after memory has fallen, the
 * history never overflows and stays in order, and a normal exit leaves no file. */
#include "stats/blackbox.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "diag/options.h"
#include "diag/report.h"
#include "os/os.h"
#include "stats/stats.h"
#include "support/heaps.h"
#include "upkeep/nearness.h"

#define MIB (1ull << 20)

static const struct hak_box *box;
static uint64_t now_ms;

/* The file of a process as another one would see it. */
static const struct hak_box *box_of(pid_t pid)
{
    char path[300];
    snprintf(path, sizeof path, "ls %s/%ld.*" HAK_BOX_END, hak__blackbox_folder, (long)pid);
    FILE *list = popen(path, "r");
    expect(list != NULL && fgets(path, sizeof path, list) != NULL && pclose(list) == 0);
    path[strcspn(path, "\n")] = 0;
    int file = open(path, O_RDONLY);
    void *at = mmap(NULL, sizeof *box, PROT_READ, MAP_SHARED, file, 0);
    expect(file >= 0 && at != MAP_FAILED);
    close(file);
    if (pid != getpid())
        expect_eq(unlink(path), 0);
    return at;
}

static void start(void)
{
    heaps_start();
    strcpy(hak__blackbox_folder, "/tmp/hakmem-box-XXXXXX");
    expect(mkdtemp(hak__blackbox_folder) != NULL);
    hak__option_put(HAK_OPTION_blackbox, 1);
    hak__option_put(HAK_OPTION_blackbox_every, 86400000);
    expect(hak__blackbox_begin());
    box = box_of(getpid());
    now_ms = hak__os->now_ms();
}

static const struct hak_box_slot *last(void)
{
    const struct hak_box_slot *slots = box->slots;
    return &slots[slots[1].sequence > slots[0].sequence];
}

/* Returns whether it left a slot. */
static bool seen(uint64_t used)
{
    struct hak_nearness near = {
        .limit = 100 * MIB, .used = used * MIB, .kind = HAK_NEAR_GROUP_MAX, .process.resident = used * MIB
    };
    uint64_t before = last()->sequence;
    near.permille = (uint32_t)(used * 10);
    hak__blackbox_seen(&near, now_ms += 1000);
    return last()->sequence != before;
}

static void end(void)
{
    hak__blackbox_end();
    expect_eq(rmdir(hak__blackbox_folder), 0);
}

FRESH_TEST(slots_take_turns)
{
    (void)argument;
    start();
    expect_eq(box->magic, HAK_BOX_MAGIC);
    expect_eq(box->pid, getpid());
    expect_eq(last()->sequence, 1);
    expect_eq(last()->reason, HAK_BOX_START);
    hak__blackbox_crash(11, 16);
    expect_eq(last()->sequence, 2);
    expect(last()->reason == HAK_BOX_CRASH && last()->signal == 11 && last()->address == 16);
    for (unsigned i = 0; i < HAK_BOX_SLOTS; i++)
        expect_eq(box->slots[i].sum, hak_box_sum(&box->slots[i]));
    expect((last()->stats.flags & HAK_STATS_HAS_LEDGER) != 0);
    end();
}

static bool yes(void) { return true; }
static _Atomic uint32_t *no_mark(void) { return NULL; }

/* It has not looked yet, so the handler begins its file; its parent's stays. */
FRESH_TEST(a_young_child_crashes)
{
    (void)argument;
    start();
    hak__fork_begin(yes, yes, no_mark, yes);
    pid_t child = fork();
    if (child == 0) {
        hak__fork_unwatched();
        hak__blackbox_crash(11, 16);
        _exit(0);
    }
    expect(child > 0 && waitpid(child, NULL, 0) == child);
    expect_eq(last()->sequence, 1);
    const struct hak_box *parents = box;
    box = box_of(child);
    expect_eq(box->pid, child);
    expect(last()->sequence == 1 && last()->reason == HAK_BOX_CRASH && last()->signal == 11 && last()->sum == hak_box_sum(last()));
    box = parents;
    expect(seen(81)); /* and it still writes */
    end();
}

/* Nothing touches the mapping behind the end of a file that somebody has truncated, and the exit removes that file too. */
static void truncate_file(void)
{
    char command[300];
    start();
    snprintf(command, sizeof command, "truncate -s 100 %s/*" HAK_BOX_END, hak__blackbox_folder);
    expect_eq(system(command), 0);
}

FRESH_TEST(truncated_before_a_look)
{
    struct hak_nearness near = { .limit = HAK_GROUP_UNLIMITED };
    (void)argument;
    truncate_file();
    for (unsigned i = 0; i < 2; i++) {
        hak__blackbox_seen(&near, now_ms += 1000);
        hak__blackbox_crash(11, 16);
    }
    end();
}

FRESH_TEST(truncated_before_the_end)
{
    (void)argument;
    truncate_file();
    end();
}

FRESH_TEST(levels)
{
    (void)argument;
    start();
    expect(!seen(50) && seen(81) && !seen(82) && seen(91) && seen(96) && !seen(97));
    expect(!seen(94) && !seen(96)); /* it trembles around a level */
    expect(!seen(70) && seen(96)); /* all three at once */
    expect_eq(last()->reason, HAK_BOX_LEVEL);
    expect_eq(last()->used, 96 * MIB);
    end();
}

/* Mapped memory that may be touched at any moment counts. */
FRESH_TEST(what_comes_counts)
{
    (void)argument;
    start();
    struct hak_nearness near = { .limit = 100 * MIB, .used = 50 * MIB, .kind = HAK_NEAR_GROUP_MAX, .coming = 35 * MIB };
    hak__blackbox_seen(&near, now_ms += 1000);
    expect_eq(last()->reason, HAK_BOX_LEVEL);
    end();
}

FRESH_TEST(stalls)
{
    (void)argument;
    start();
    struct hak_nearness near = { .limit = HAK_GROUP_UNLIMITED };
    for (unsigned i = 0; i < 30; i++) {
        uint64_t before = last()->sequence;
        near.group.stalled_us += i == 20 ? 200000 : 50000; /* a fifth, a twentieth of the second */
        hak__blackbox_seen(&near, now_ms += 1000);
        expect_eq(last()->sequence - before, i == 20);
    }
    expect_eq(last()->reason, HAK_BOX_STALL);
    end();
}

FRESH_TEST(history)
{
    (void)argument;
    start();
    for (unsigned i = 0; i < 3000; i++)
        seen(i % 50);
    uint64_t count = 0, first = UINT64_MAX, latest = 0;
    for (unsigned i = 0; i < HAK_BOX_POINTS; i++) {
        const struct hak_box_point *point = &box->points[i];
        count += point->ms != 0;
        first = point->ms != 0 && point->ms < first ? point->ms : first;
        latest = point->ms > latest ? point->ms : latest;
        for (unsigned other = 0; other < i && point->ms != 0; other++)
            expect(box->points[other].ms != point->ms);
    }
    expect_op(count, >=, HAK_BOX_POINTS / 2);
    expect_op(first, <, 2000);
    expect_op(latest, >, 2900000);
    end();
}

FRESH_TEST(lines)
{
    (void)argument;
    start();
    for (uint64_t i = 0; i < 6; i++)
        hak__warn("line %u", i);
    hak__blackbox_crash(6, 0);
    expect(strcmp(last()->lines[0], "hakmem: line 2") == 0);
    expect(strcmp(last()->lines[HAK_BOX_LINES - 1], "hakmem: line 5") == 0);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(slots_take_turns),
                                        cmocka_unit_test(a_young_child_crashes),
                                        cmocka_unit_test(levels),
                                        cmocka_unit_test(what_comes_counts),
                                        cmocka_unit_test(stalls),
                                        cmocka_unit_test(history),
                                        cmocka_unit_test(lines),
                                        cmocka_unit_test(truncated_before_a_look),
                                        cmocka_unit_test(truncated_before_the_end) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
