/* System calls: counted, made to tell of 64 processors, and followed where they change what memory is there. */
#ifndef LINES_CALLS_H
#define LINES_CALLS_H

#include "pub_tool_basics.h"

void calls_before(ThreadId thread, UInt number, UWord *argument, UInt count);
void calls_after(ThreadId thread, UInt number, UWord *argument, UInt count, SysRes result);
void calls_unmapped(Addr address, SizeT bytes);

/* Before the program's first instruction: the random bytes that the kernel hands over become fixed ones. */
void calls_fix_random(ThreadId thread);

/* What the running thread maps next is the program's own. */
void calls_own_follows(void);

#endif
