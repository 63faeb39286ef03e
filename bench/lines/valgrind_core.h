/*
 * Functions of valgrind's core that its public headers leave out: giving up the lock under which threads run,
 * taking it again, whether a thread is being ended, a raw system call.  The core's static library exports them.
 */
#ifndef LINES_VALGRIND_CORE_H
#define LINES_VALGRIND_CORE_H

#include "pub_tool_basics.h"

enum { CORE_YIELDING = 4 }; /* VgTs_Yielding of the core's ThreadStatus */

void VG_(release_BigLock)(ThreadId tid, Int status, const HChar *who);
void VG_(acquire_BigLock)(ThreadId tid, const HChar *who);
Bool VG_(is_exiting)(ThreadId tid);
SysRes VG_(do_syscall)(UWord number, RegWord, RegWord, RegWord, RegWord, RegWord, RegWord, RegWord, RegWord);

#endif
