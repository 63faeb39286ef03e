/* os/groups.h on made-up files: limits of both versions and of the groups above, use without what files can give back, kills and
 * stalls; a path that does not exist here, and files that say nothing. */
#include "support/groups.h"

#define MIB (1ull << 20)

static struct hak_os_group looked(void)
{
    struct hak_os_group group;
    hak__os_group_look(&group, true);
    return group;
}

static void version_2(void **state)
{
    (void)state;
    groups_begin("1:name=systemd:/x\n0::/above/own\n");
    group_write("cgroup.controllers", "memory\n");
    group_make("above");
    group_make("above/own");
    group_write("above/memory.max", "104857600\n");
    group_write("above/memory.current", "99000000\n");
    group_write("above/memory.stat", "anon 90000000\nfile 9000000\ninactive_file 1000000\nactive_file 2000000\n");
    group_write("above/own/memory.max", "max\n");
    group_write("above/own/memory.high", "209715200\n");
    group_write("above/own/memory.current", "50000000\n");
    group_write("above/own/memory.events", "low 0\nhigh 3\nmax 9\noom 2\noom_kill 1\n");
    group_write("above/own/memory.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1234\nfull avg10=0.00 total=77\n");
    struct hak_os_group group = looked();
    expect_eq(group.max, 100 * MIB);
    expect_eq(group.high, 200 * MIB);
    expect_eq(group.used, 96000000); /* of the group above, whose limit is the least */
    expect_eq(group.kills, 1);
    expect_eq(group.stalled_us, 1234);
    group_write("above/memory.max", "max\n"); /* a change is seen */
    group = looked();
    expect_eq(group.max, HAK_GROUP_UNLIMITED);
    expect_eq(group.used, 50000000);
    hak__os_group_limits(&group);
    expect_eq(group.high, 200 * MIB);
    expect(!group.unseen);
    groups_end();
}

static void version_1(void **state)
{
    (void)state;
    groups_begin("9:name=systemd:/\n5:cpu,memory:/host/path/of/a/container\n3:mymemory:/no\n0::/\n");
    group_make("memory");
    group_write("memory/memory.stat", "cache 5\nhierarchical_memory_limit 104857600\ninactive_file 1\ntotal_inactive_file 1000000\n"
                                      "total_active_file 500000\n");
    group_write("memory/memory.usage_in_bytes", "90000000\n");
    group_write("memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n");
    struct hak_os_group group = looked();
    expect_eq(group.max, 100 * MIB);
    expect_eq(group.used, 88500000);
    expect_eq(group.kills, 4);
    group_write("memory/memory.stat", "hierarchical_memory_limit 9223372036854771712\n");
    expect_eq(looked().max, HAK_GROUP_UNLIMITED);
    hak__os_group_limits(&group);
    expect(group.unseen);
    groups_end();
}

static void nothing(void **state)
{
    static const char *const lines[] = { "", "0::/\n", "no line", "4:memory\n", "4:memory:", "0::/../../x\n", "4:memoryless:/\n" };
    (void)state;
    for (unsigned i = 0; i < sizeof lines / sizeof *lines; i++) {
        groups_begin(lines[i]);
        struct hak_os_group group = looked();
        expect(group.max == HAK_GROUP_UNLIMITED && group.high == HAK_GROUP_UNLIMITED && group.used == 0);
        groups_end();
    }
}

static void this_process(void **state)
{
    (void)state;
    struct hak_os_process own;
    hak__os_process_look(&own);
    expect_op(own.resident, >, 4096);
    expect_op(own.addresses, >, own.resident);
    expect_eq(hak__os_limit_in("99999999999999999999999"), HAK_GROUP_UNLIMITED);
    expect_eq(hak__os_limit_in("max"), HAK_GROUP_UNLIMITED);
    expect_eq(hak__os_limit_in("12 kB"), 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(version_2), cmocka_unit_test(version_1), cmocka_unit_test(nothing),
                                        cmocka_unit_test(this_process) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
