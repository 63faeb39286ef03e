/* What test_stats.py runs: figures that are known beforehand. Arguments: what to do.
 *   exit        allocate, then end
 *   signal N    raise signal N before the end */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *blocks[1000];

int main(int count, char **arguments)
{
    for (int i = 0; i < 1000; i++)
        memset(blocks[i] = malloc(4000), 1, 4000);
    for (int i = 0; i < 400; i++)
        free(blocks[i]);
    blocks[0] = malloc(3 << 20);
    if (count > 2 && strcmp(arguments[1], "signal") == 0)
        raise(atoi(arguments[2]));
    return 0;
}
