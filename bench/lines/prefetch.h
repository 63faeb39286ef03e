/* Prefetches that take a line as its writer; valgrind's translation drops them, but they decide who holds the line. */
#ifndef LINES_PREFETCH_H
#define LINES_PREFETCH_H

#include "libvex_ir.h"
#include "pub_tool_basics.h"

/* Whether the instruction is one, and where: a base register, an index register times a scale, a distance;
 * with neither register the distance is the address. */
struct prefetch {
    Int base; /* offsets in the guest's state, or -1 */
    Int index;
    UInt shift;
    Long distance;
};

Bool prefetch_decode(const UChar *code, UInt length, struct prefetch *found);

#endif
