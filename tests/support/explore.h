/* Schedule exploration: runs small concurrent cases under every interleaving of their atomic operations, by depth-first
 * search, up to a stated number of preemptions.
 *
 * The code under test is compiled with HAK_RACE_TEST=1: each operation of base/atomic.h first calls hak__race_point,
 * where the explorer may let another thread go on. Threads are fibers of one real thread, so a schedule is a list of
 * choices and can be repeated exactly. Switching away from a thread that could go on counts as a preemption; switching
 * because one has ended is free. With EXPLORE_ALL every interleaving is run.
 *
 * Only sequentially consistent interleavings are seen: what weaker orders allow is argued in the comments of the
 * sources. Under ThreadSanitizer the fibers count as threads that nothing but the code's own operations synchronises, so
 * that plain accesses which the stated orders do not order are reported in every schedule that is run. */
#ifndef HAK_TESTS_SUPPORT_EXPLORE_H
#define HAK_TESTS_SUPPORT_EXPLORE_H

#include <stdbool.h>
#include <stdint.h>

enum { EXPLORE_THREADS = 4, EXPLORE_ALL = 1000 };

struct explore_case {
    const char *name;
    unsigned preemptions;                    /* the bound, or EXPLORE_ALL */
    unsigned threads;
    void (*setup)(void);                     /* the state in which each schedule begins */
    void (*body[EXPLORE_THREADS])(void);
    void (*check)(void);                     /* after all threads have ended */
};

/* Runs the cases given. Without arguments: exit status 0 when no schedule violates anything; prints the number of
 * schedules. With the argument "planted": 0 only when a violation is found, because the sources carry a planted bug.
 * HAK_RACE_PREEMPTIONS overrides the bounds. */
int explore_main(const struct explore_case *cases, unsigned count, int argc, char **argv);

/* From a body, a check or the code under test: this schedule is wrong. */
__attribute__((noreturn)) void explore_violation(const char *what);

#define EXPLORE_EXPECT(condition, what) ((condition) ? (void)0 : explore_violation(what))

void hak__race_point(void);

#endif
