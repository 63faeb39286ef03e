/* The black box (HAKMEM_BLACKBOX=DIR): a mapped file that holds what the process last wrote there, however it ends, since the kernel
 * keeps the pages of a shared mapping. This is its form, for blackbox.c, which writes it, and for the starter (starter/), which
 * reads it; both are of one machine's byte order.
 *
 * Two slots take turns. A slot is valid if its sequence is not 0 and its sum holds; the valid one with the higher sequence is the
 * last. The writer sets the sequence to 0, fills the slot, and writes sum and sequence last: at every moment one slot is
 * whole. Points of the history are rows of their own: one with a time of 0 is empty or being written, and of two with one time
 * either counts; their order in the file means nothing. */
#pragma once

#include <stdint.h>

#include "hakmem_stats.h"

#define HAK_BOX_MAGIC 0x31584f424b4148ull /* "HAKBOX1" in memory order on little-endian machines */
#define HAK_BOX_END ".hakbox" /* of a file's name: NUMBER.SECONDS.hakbox, the process and the time of its start */

enum {
    HAK_BOX_SLOTS = 2,
    HAK_BOX_POINTS = 128,
    HAK_BOX_STACKS = 16,
    HAK_BOX_FRAMES = 24,
    HAK_BOX_MODULES = 32,
    HAK_BOX_PATH = 120,
    HAK_BOX_HEAPS = 16,
    HAK_BOX_NAME = 32,
    HAK_BOX_LINES = 4,
    HAK_BOX_LINE = 160,
};

/* Why a slot was written, and which limit was the nearest. */
enum hak_box_reason { HAK_BOX_START, HAK_BOX_TIME, HAK_BOX_LEVEL, HAK_BOX_STALL, HAK_BOX_CRASH, HAK_BOX_REASONS };
enum hak_box_limit { HAK_BOX_NONE, HAK_BOX_GROUP_MAX, HAK_BOX_GROUP_HIGH, HAK_BOX_ADDRESSES, HAK_BOX_OPTION, HAK_BOX_LIMITS };

struct hak_box_point {
    uint64_t ms; /* since the start; 0: none */
    uint64_t resident, used, mapped,
        unused; /* of the process; of the nearest limit; for blocks; of the latter, in free SuperSlabs */
};

struct hak_box_heap {
    char name[HAK_BOX_NAME];
    uint64_t serial, live_bytes, live_blocks, used_bytes, limit;
};

/* Blocks from one stack that were sampled, as estimates. A frame is module << 48 | offset in its file's addresses, or, beyond the
 * modules' number, an address. */
struct hak_box_stack {
    uint64_t live_bytes, live_samples, allocated_bytes, freed_bytes;
    uint64_t frame_count, frames[HAK_BOX_FRAMES];
};
#define HAK_BOX_MODULE_SHIFT 48

struct hak_box_slot {
    uint64_t sequence, sum; /* the sum is hak_box_sum of all that follows */
    uint64_t ms, wall_s; /* since the start; since 1970 */
    uint64_t reason, signal, address; /* the last two of a crash */
    uint64_t limit_kind, limit, used,
        permille; /* of the nearest limit; used / limit, or what it will be once what is mapped is touched */
    uint64_t group_max, group_high, group_used, kills, stalled_us; /* os/groups.h */
    uint64_t addresses, resident, address_limit, option_limit, mapped;
    struct hak_stats stats; /* with the ledger, if the system tells */
    uint64_t heap_count, stack_count, module_count, interval; /* of user heaps, all that exist; 0: no profile ever counted */
    struct hak_box_heap heaps[HAK_BOX_HEAPS]; /* those with the most bytes */
    struct hak_box_stack stacks[HAK_BOX_STACKS]; /* those with the most live bytes, descending */
    char modules[HAK_BOX_MODULES][HAK_BOX_PATH];
    char lines[HAK_BOX_LINES][HAK_BOX_LINE]; /* the last reports, the oldest first */
};

struct hak_box {
    uint64_t magic, size, slot_size, stats_size; /* the sizes of what follows: a file of another version differs in one */
    uint64_t pid, parent, started_s, ended; /* `ended`: a normal exit has begun */
    char command[32], version[24];
    struct hak_box_point points[HAK_BOX_POINTS];
    struct hak_box_slot slots[HAK_BOX_SLOTS];
};

/* Of whole words. */
static inline uint64_t hak_box_sum(const struct hak_box_slot *slot)
{
    const uint64_t *at = &slot->ms, *end = (const uint64_t *)(const void *)(slot + 1);
    uint64_t sum = 14695981039346656037ull;
    for (; at < end; at++)
        sum = (sum ^ *at) * 1099511628211ull, sum ^= sum >> 29;
    return sum;
}
