/* Under HAKMEM_MISUSE=report: mistakes that look different each time although each is made at one place: places. Prints how many were
 * counted. */
#include <stdio.h>
#include <stdlib.h>

#include "hakmem.h"
#include "hakmem_stats.h"

enum { LARGE = 100000, DEPTH = 100 };

/* A second free soon and one late, when nothing is there any more. */
static void late(void)
{
    for (int i = 0; i < 2; i++) {
        void *volatile p = malloc(LARGE);
        free(p);
        if (i == 1)
            hak_collect();
        free(p);
    }
}

/* Not the last call, so that it has a frame. */
static int deep(int depth)
{
    if (depth > 0)
        return deep(depth - 1) + 1;
    void *volatile p = malloc(100);
    free(p);
    free(p);
    return 1;
}

int main(void)
{
    late();
    int sum = 0;
    for (int depth = 1; depth < DEPTH; depth++)
        sum += deep(depth);
    struct hak_stats stats;
    hak_stats_snapshot(&stats, sizeof stats);
    printf("%d mistakes, %d counted\n", 2 + DEPTH - 1, (int)(stats.misuse_double_frees + stats.misuse_invalid));
    return sum == 0;
}
