/*
 * Whose turn it is.  Valgrind runs one thread at a time; here the turns are short, go round in the order of the
 * thread numbers, and their lengths come from a seed, so that a program meets the same interleaving each time.
 *
 * A thread takes part from its creation to its end, except while it waits for a futex or sleeps for long.  Other
 * system calls keep the turn.  Who wakes others waits until they have come back, and the turn after a wait begins
 * when the kernel says that the waiter sleeps: so the kernel's own timing decides nothing.
 *
 * All functions are called with valgrind's lock held; turns_wait gives it up meanwhile.
 */
#ifndef LINES_TURNS_H
#define LINES_TURNS_H

#include "pub_tool_basics.h"

/* `mean`: blocks of code per turn on average; 0: a turn ends only in sched_yield, a wait or the thread's end. */
void turns_init(UInt mean, ULong seed);

void turns_created(ThreadId thread);
void turns_ended(ThreadId thread);

/* Before client code runs, and after it has stopped. */
void turns_wait(ThreadId thread);
void turns_pause(ThreadId thread);

void turns_before_call(ThreadId thread, UInt number, const UWord *argument);
void turns_after_call(ThreadId thread, UInt number, const UWord *argument, SysRes result);

/* How many take part, at least 1. */
UInt turns_partaking(void);

/* How often a thread has waited in the kernel for another. */
ULong turns_waits(void);

#endif
