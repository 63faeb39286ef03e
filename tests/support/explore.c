/* See explore.h. Compiled without sanitizers: the explorer's own state is shared by the fibers on purpose. */
#include "support/explore.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>

#if !defined(EXPLORE_TSAN)
#define EXPLORE_TSAN 0
#endif
#if !defined(EXPLORE_ASAN)
#define EXPLORE_ASAN 0
#endif

enum { POINTS_MAX = 4000, STEPS_MAX = 20000, STACK = 256 << 10, MAIN = EXPLORE_THREADS };

/* A point at which the schedule could go on in several ways, and which of them it took. */
struct choice { uint8_t options, taken; };

struct fiber {
    ucontext_t context;
    char *stack;
    void *tsan, *asan_stack;
    bool ended;
};

static const struct explore_case *now;
static struct fiber fibers[EXPLORE_THREADS + 1];
static unsigned current = MAIN, bound, preemptions;
static bool planted;
static struct choice path[POINTS_MAX];
static unsigned depth, path_length;
static uint64_t schedules, points, steps;   /* steps: points of this schedule */
static unsigned trace[POINTS_MAX], trace_length;

/* --- switching ------------------------------------------------------------------------------------------------------ */

#if EXPLORE_TSAN
void *__tsan_create_fiber(unsigned flags);
void *__tsan_get_current_fiber(void);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
void __tsan_acquire(void *address);
void __tsan_release(void *address);

static void tsan_create(struct fiber *fiber) { fiber->tsan = __tsan_create_fiber(0); }
static void tsan_current(struct fiber *fiber) { fiber->tsan = __tsan_get_current_fiber(); }

static void tsan_switch(unsigned to) { __tsan_switch_to_fiber(fibers[to].tsan, 1); }   /* 1: orders nothing */

/* Only the start and the end of a schedule order anything: setup, then the threads, then the check. */
static char start_edge, end_edge;
static void edge_out(bool start) { __tsan_release(start ? &start_edge : &end_edge); }
static void edge_in(bool start) { __tsan_acquire(start ? &start_edge : &end_edge); }
#else
static void tsan_create(struct fiber *fiber) { (void)fiber; }
static void tsan_current(struct fiber *fiber) { (void)fiber; }
static void tsan_switch(unsigned to) { (void)to; }
static void edge_out(bool start) { (void)start; }
static void edge_in(bool start) { (void)start; }
#endif

#if EXPLORE_ASAN
void __sanitizer_start_switch_fiber(void **fake_stack, const void *bottom, size_t size);
void __sanitizer_finish_switch_fiber(void *fake_stack, const void **bottom, size_t *size);
static const void *main_bottom;
static size_t main_size;

static void asan_leave(unsigned from, unsigned to)
{
    const void *bottom = to == MAIN ? main_bottom : fibers[to].stack;
    __sanitizer_start_switch_fiber(&fibers[from].asan_stack, bottom, to == MAIN ? main_size : STACK);
}
static void asan_arrive(unsigned to, bool first)
{
    const void *bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(first ? NULL : fibers[to].asan_stack, &bottom, &size);
    if (main_bottom == NULL) {
        main_bottom = bottom;
        main_size = size;
    }
}
#else
static void asan_leave(unsigned from, unsigned to) { (void)from, (void)to; }
static void asan_arrive(unsigned to, bool first) { (void)to, (void)first; }
#endif

static void switch_to(unsigned to)
{
    unsigned from = current;
    current = to;
    asan_leave(from, to);
    tsan_switch(to);
    swapcontext(&fibers[from].context, &fibers[to].context);
    asan_arrive(from, false);
}

static const char endless[] = "a schedule does not end";

/* --- choosing -------------------------------------------------------------------------------------------------------- */

/* The way taken among `options` ways: the one that the path says, else the first, which is remembered. */
static unsigned choose(unsigned options)
{
    if (options == 1)
        return 0;
    if (depth == POINTS_MAX)
        explore_violation(endless);
    if (depth == path_length)
        path[path_length++] = (struct choice){ (uint8_t)options, 0 };
    return path[depth++].taken;
}

/* The n-th thread that has not ended, `but` one; MAIN if there is none. */
static unsigned other(unsigned but, unsigned n)
{
    for (unsigned i = 0; i < now->threads; i++)
        if (i != but && !fibers[i].ended && n-- == 0)
            return i;
    return MAIN;
}

static unsigned others(unsigned but)
{
    unsigned count = 0;
    while (other(but, count) != MAIN)
        count++;
    return count;
}

void hak__race_point(void)
{
    if (++steps == STEPS_MAX)
        explore_violation(endless);
    if (current == MAIN)
        return;
    points++;
    unsigned taken = choose(preemptions < bound ? 1 + others(current) : 1);
    if (taken == 0)
        return;
    preemptions++;
    trace[trace_length++ % POINTS_MAX] = other(current, taken - 1);
    switch_to(other(current, taken - 1));
}

/* The last choice that has another way is changed; what follows it is forgotten. False when there is none. */
static bool next_path(void)
{
    while (path_length > 0 && path[path_length - 1].taken + 1 == path[path_length - 1].options)
        path_length--;
    if (path_length > 0)
        path[path_length - 1].taken++;
    return path_length > 0;
}

/* --- running --------------------------------------------------------------------------------------------------------- */

/* A fiber lives as long as the program: it runs its body once per schedule. */
static void fiber_main(void)
{
    asan_arrive(current, true);
    for (;;) {
        unsigned me = current;
        edge_in(true);
        now->body[me]();
        edge_out(false);
        fibers[me].ended = true;
        unsigned count = others(me), to = count == 0 ? MAIN : other(me, choose(count));
        trace[trace_length++ % POINTS_MAX] = to;
        switch_to(to);
    }
}

static void create(struct fiber *fiber)
{
    if (fiber->stack == NULL)
        fiber->stack = aligned_alloc(4096, STACK);
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = STACK;
    makecontext(&fiber->context, fiber_main, 0);
    if (fiber->tsan == NULL)
        tsan_create(fiber);
}

static void run_schedule(void)
{
    depth = preemptions = trace_length = 0;
    steps = 0;
    for (unsigned i = 0; i < now->threads; i++)
        fibers[i].ended = false;
    now->setup();
    edge_out(true);
    unsigned first = choose(now->threads);
    trace[trace_length++] = first;
    switch_to(first);
    edge_in(false);
    now->check();
    schedules++;
}

static void explore(const struct explore_case *one)
{
    const char *text = getenv("HAK_RACE_PREEMPTIONS");
    now = one;
    bound = text != NULL ? (unsigned)atoi(text) : one->preemptions;
    path_length = 0;
    schedules = points = 0;
    for (unsigned i = 0; i < one->threads; i++)
        create(&fibers[i]);
    do
        run_schedule();
    while (next_path());
    char limit[32] = "all";
    if (bound < EXPLORE_ALL)
        snprintf(limit, sizeof limit, "<= %u", bound);
    printf("%-44s preemptions %-5s schedules %-9llu points %llu\n", one->name, limit, (unsigned long long)schedules,
           (unsigned long long)points);
    fflush(stdout);
}

void explore_violation(const char *what)
{
    printf("%s: violated after %llu schedules: %s\n  threads in turn:", now->name, (unsigned long long)schedules, what);
    for (unsigned i = 0; i < trace_length && i < 100 && trace[i] != MAIN; i++)
        printf(" %u", trace[i]);
    printf("\n%s\n", planted ? "the planted bug was found" : "THIS IS A BUG");
    fflush(stdout);
    _Exit(planted ? 0 : 1);
}

int explore_main(const struct explore_case *cases, unsigned count, int argc, char **argv)
{
    planted = argc > 1 && strcmp(argv[1], "planted") == 0;
    tsan_current(&fibers[MAIN]);
    for (unsigned i = 0; i < count; i++)
        explore(&cases[i]);
    if (planted)
        printf("the planted bug was NOT found\n");
    return planted;
}
