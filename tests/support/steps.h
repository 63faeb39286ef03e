/* How many instructions a call takes, by single-stepping a child from one marker function to another. 0 where that
 * cannot be told: tracing is forbidden, or a sanitizer adds instructions of its own to every access. */
#ifndef HAK_TESTS_SUPPORT_STEPS_H
#define HAK_TESTS_SUPPORT_STEPS_H

#include <sys/ptrace.h>
#include <sys/user.h>

#include "base/compiler.h"
#include "support/check.h"

#if defined(__x86_64__) && !HAK_TSAN && !defined(__SANITIZE_ADDRESS__)
#define STEPS_COUNTABLE 1
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#undef STEPS_COUNTABLE
#define STEPS_COUNTABLE 0
#endif
#endif
#else
#define STEPS_COUNTABLE 0
#endif

#if STEPS_COUNTABLE
__attribute__((noinline)) static void steps_begin(void) { __asm__ volatile("" ::: "memory"); }
__attribute__((noinline)) static void steps_end(void) { __asm__ volatile("nop" ::: "memory"); }

static inline bool steps_advance(pid_t child, int *status)
{
    return ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) == 0 && waitpid(child, status, 0) == child
           && WIFSTOPPED(*status);
}

static inline uintptr_t steps_at(pid_t child)
{
    struct user_regs_struct registers;
    return ptrace(PTRACE_GETREGS, child, NULL, &registers) == 0 ? (uintptr_t)registers.rip : 0;
}

static inline void steps_child(check_body *body, void *argument)
{
    body(argument);   /* once before, so that nothing is bound or faulted in while it is counted */
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
        _exit(0);
    raise(SIGSTOP);
    steps_begin();
    body(argument);
    steps_end();
    _exit(0);
}
#endif

/* The body runs twice in a child; the second run is counted. Its argument is the child's own copy. */
static inline CHECK_UNUSED size_t count_steps(check_body *body, void *argument)
{
    size_t steps = 0;
#if STEPS_COUNTABLE
    int status;
    bool counting = false;
    pid_t child = fork();
    if (child == 0)
        steps_child(body, argument);
    if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status))
        return 0;
    while (steps_advance(child, &status)) {
        uintptr_t at = steps_at(child);
        counting |= at == (uintptr_t)steps_begin;
        if (at == (uintptr_t)steps_end)
            break;
        steps += counting;
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
#else
    (void)body, (void)argument;
#endif
    return steps;
}

#endif
