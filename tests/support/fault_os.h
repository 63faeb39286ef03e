/* The real system behind a table that counts the calls, and fails or interrupts some of them. */
#ifndef HAK_TESTS_SUPPORT_FAULT_OS_H
#define HAK_TESTS_SUPPORT_FAULT_OS_H

#include "os/os.h"

enum fault_mode { FAULT_NEVER, FAULT_ONCE, FAULT_FROM_THEN_ON, FAULT_EVERY_THIRD, FAULT_MODES };

struct fault_plan {
    enum fault_mode mode;
    uint64_t first;      /* the first call that fails, counted from 1 */
    int code;            /* what it fails with */
};

/* Puts the table in force with a plan; the count of calls begins anew. */
void fault_install(struct fault_plan plan);

uint64_t fault_calls(void);      /* memory calls since then */
uint64_t fault_failures(void);   /* those that failed by plan */

/* Called before and after each memory call with its number; `done` tells which. NULL: nothing is called. */
extern void (*fault_observer)(uint64_t call, bool done);

#endif
