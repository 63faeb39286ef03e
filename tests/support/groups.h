/* A made-up hierarchy of control groups in files, for tests: group_write(file, text) writes one of them. */
#pragma once

#include <stdio.h>
#include <sys/stat.h>

#include "os/groups.h"
#include "support/check.h"

static char group_folder[] = "/tmp/hakmem-groups-XXXXXX";

static void group_write(const char *file, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", group_folder, file);
    FILE *out = fopen(path, "w");
    expect(out != NULL && fputs(text, out) >= 0 && fclose(out) == 0);
}

static void group_make(const char *folder)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", group_folder, folder);
    expect(mkdir(path, 0700) == 0);
}

/* `line` is that of /proc/self/cgroup. */
static void groups_begin(const char *line)
{
    static char of[300];
    expect(mkdtemp(group_folder) != NULL);
    snprintf(of, sizeof of, "%s/of", group_folder);
    group_write("of", line);
    hak__os_group_root = group_folder;
    hak__os_group_of = of;
}

static void groups_end(void)
{
    char command[300];
    snprintf(command, sizeof command, "rm -rf %s", group_folder);
    expect(system(command) == 0);
    memcpy(group_folder + sizeof group_folder - 7, "XXXXXX", 6);
}
