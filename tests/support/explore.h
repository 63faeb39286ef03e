/* Schedule exploration: runs small concurrent cases under every interleaving of their atomic operations, by depth-first
 * search, up to a stated number of preemptions.
 *
 * The code under test is compiled with HAK_RACE_TEST=1: each operation of base/atomic.h first calls hak__race_point,
 * where the explorer may let another thread go on. Threads are fibers of one real thread, so a schedule is a list of
 * choices and can be repeated exactly. Switching away from a thread that could go on counts as a preemption; switching
 * because one has ended is free. With EXPLORE_ALL every interleaving is run.
 *
 * By itself the explorer sees sequentially consistent interleavings only. Linked with support/weak.c, to which the
 * compiler's instrumentation reports every access, it also explores what weaker orders allow: loads that return older
 * values, and plain accesses that nothing orders. Under ThreadSanitizer the fibers count as threads that nothing but the
 * code's own operations synchronises. */
#ifndef HAK_TESTS_SUPPORT_EXPLORE_H
#define HAK_TESTS_SUPPORT_EXPLORE_H

#include <stdbool.h>
#include <stdint.h>

enum { EXPLORE_THREADS = 4, EXPLORE_ALL = 1000 };

/* The last fields of a case are mostly left out, which means 0. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

struct explore_case {
    const char *name;
    unsigned preemptions;                    /* the bound, or EXPLORE_ALL */
    unsigned threads;
    void (*setup)(void);                     /* the state in which each schedule begins */
    void (*body[EXPLORE_THREADS])(void);
    void (*check)(void);                     /* after all threads have ended */
    unsigned weak_preemptions, stale;        /* with weak.c: the bound, and loads per schedule that return an older value;
                                              * 0: at most 2 preemptions, 2 such loads */
    bool every_write;                        /* with weak.c: plain writes are points as well */
};

/* Runs the cases given. Without arguments: exit status 0 when no schedule violates anything; prints the number of
 * schedules. With the argument "planted": 0 only when a violation is found, because the sources carry a planted bug.
 * With "weaken FUNCTION:OPERATION..." (weak.c only): each order of these operations that is stronger than relaxed is
 * weakened, one at a time and in each way; 0 only when every one is found. "weaken" alone tries all operations that the
 * cases run, and prints which are found. HAK_RACE_PREEMPTIONS and HAK_RACE_STALE override the bounds. */
int explore_main(const struct explore_case *cases, unsigned count, int argc, char **argv);

/* Explores one case and gives the number of its schedules: for the explorer's own test. */
uint64_t explore_case_run(const struct explore_case *one);

/* From a body, a check or the code under test: this schedule is wrong. */
__attribute__((noreturn)) void explore_violation(const char *what);

#define EXPLORE_EXPECT(condition, what) ((condition) ? (void)0 : explore_violation(what))

/* From the code under test, in place of hak__yield: lets the others go on first; no preemption. */
void explore_yield(void);

/* Between true and false no other thread goes on, and memory is what it is: a forked child. */
void explore_alone(bool alone);

/* A case may define it: a thread goes on after a point, with the operation before it, or after it has let others go on. */
void explore_resumed(void);

void hak__race_point(const char *function, const char *operation);

/* --- between explore.c and weak.c --------------------------------------------------------------------------------- */

bool explore_directly(void);                 /* no thread of a case is running */
unsigned explore_thread(void);               /* which one is */
unsigned explore_choose(unsigned options);   /* one way of several; all are taken in turn */
bool explore_every_write(void);
bool explore_is_local(const void *at);
struct explore_site { const char *function, *operation; };
struct explore_site explore_take_site(void); /* what the last point of this thread was told, once */

void weak_begin(unsigned stale);             /* before the threads of a schedule start */
/* The n-th way to weaken an operation that has run so far; false when there are no more. */
bool weak_mutant(unsigned n, char *name, unsigned size);
void weak_choose_mutant(unsigned n);

#endif
