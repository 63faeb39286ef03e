/* What the instrumented program tells the rest: one memory access, one entry of a function that the tool watches. */
#ifndef LINES_EVENTS_H
#define LINES_EVENTS_H

#include "cache.h"
#include "pub_tool_basics.h"

/* Of a line: who has touched it.  OWN: work areas of the program, which no allocator places. */
enum { LINE_BY_PROGRAM = 1, LINE_BY_LIBRARY = 2, LINE_OWN = 4 };

/* Where messages came from: instruction and line. */
struct site {
    struct site *next;
    struct cache_line *line;
    Addr address; /* of the line */
    Addr code;
    UInt count[CACHE_CAUSES];
};

enum { SITE_BUCKETS = 1 << 16 };

/* Calls that take the kernel's lock of mappings, and those by which threads wait or wake. */
enum { CALL_MMAP, CALL_MUNMAP, CALL_MADVISE, CALL_MPROTECT, CALL_MREMAP, CALL_BRK, CALL_MINCORE, CALL_FUTEX, CALL_YIELD, CALL_OTHER, CALLS };

/* The window: what has been counted since the program began to be counted. */
struct counted {
    ULong operations;
    ULong instructions;
    ULong accesses;
    ULong faults; /* pages touched for the first time since they were mapped */
    ULong call[CALLS];
    ULong waits;
};

extern struct cache events_cache;
extern struct site *events_site[SITE_BUCKETS];
extern struct counted events_counted;
extern ULong events_instructions; /* since the start of the program; instrumented code adds to it */

/* `packed`: size | access << 8 | by_program << 12. */
VG_REGPARM(3) void events_access(Addr address, UWord packed, Addr code);

/* A compare-and-swap: `stored` is 0 when it failed. */
void events_swap(Addr address, UWord packed, Addr code, UWord stored);

/* What the processor's counter of ticks shows: instructions, so that a program reads the same each time. */
ULong events_ticks(void);

/* Begin and end of what is counted; the end writes the report and ends the process. */
void events_init(void);
void events_begin(void);
void events_end(void);
void events_mark_own(Addr address, SizeT bytes);

#endif
