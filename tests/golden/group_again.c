/* A program for test_limits_live.py: group_again SIZE. Three times it fills memory with blocks of SIZE bytes, as fast as it can, until its
 * callback is called; then it frees all but some, so that SuperSlabs stay in use, and does little for a while. Each time the memory is
 * the same, whose pages had gone back. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hakmem.h"

#pragma weak hak_set_pressure_callback
#pragma weak hak_collect

enum { ROUNDS = 3, BLOCKS = 1 << 20, TURNS = 100, KEPT_EACH = 2 << 20 };
static void *blocks[BLOCKS];
static volatile bool called;
static size_t latest; /* part of the limit that was used at a call, in percent */

static void on_pressure(size_t used, size_t limit, void *argument)
{
    (void)argument;
    if (latest < used * 100 / limit)
        latest = used * 100 / limit;
    called = true;
}

int main(int count, char **words)
{
    size_t size = count > 1 ? strtoul(words[1], NULL, 10) : 20000;
    hak_set_pressure_callback(on_pressure, NULL);
    for (unsigned round = 0; round < ROUNDS; round++) {
        size_t held = 0;
        for (called = false; !called; held++)
            memset(blocks[held] = malloc(size), 1, size);
        for (size_t i = 0, each = KEPT_EACH / size; i < held; i++)
            if (each < 2 || i % each != 0)
                free(blocks[i]);
        hak_collect();
        for (unsigned i = 0; i < TURNS; i++, usleep(5000))
            for (size_t k = 0; k < 200; k++)
                free(malloc(1000 + 64 * k));
    }
    printf("called at %zu %% at most\n", latest);
}
