/* What the cases of one bin share: a heap's bin of BLOCKS blocks, of which each must be in one place. Define BIN_CLASS before. */
#ifndef HAK_TESTS_RACE_BIN_WORLD_H
#define HAK_TESTS_RACE_BIN_WORLD_H

#include "world.h"

enum { BLOCKS = 4 };

static void *slots[1 + BLOCKS + BLOCKS];    /* NULL below the bottom, the blocks, and room behind them */
static char memory[BLOCKS];                 /* the blocks; nobody looks into them */
static unsigned given[BLOCKS], in_use[BLOCKS];

static struct hak_heap *the_heap(void) { return hak__heap_by_id(1); }
static unsigned number(const void *block) { return (unsigned)((const char *)block - memory); }

/* All blocks are in the bin. */
static void bin_reset(struct hak_bin *bin)
{
    world_reset();
    for (unsigned i = 0; i < BLOCKS; i++) {
        slots[i + 1] = &memory[i];
        given[i] = in_use[i] = 0;
    }
    the_heap()->classes[BIN_CLASS].bottom = slots + 1;
    the_heap()->classes[BIN_CLASS].capacity = BLOCKS;
    bin->top = bin->end = slots + 1 + BLOCKS;
}

static void bin_check(const struct hak_bin *bin)
{
    unsigned places[BLOCKS] = { 0 };
    for (void **slot = slots + 1; slot < bin->top; slot++)
        places[number(*slot)]++;
    for (unsigned i = 0; i < BLOCKS; i++)
        EXPLORE_EXPECT(places[i] + given[i] + in_use[i] == 1, "a block is in one place");
}

#endif
