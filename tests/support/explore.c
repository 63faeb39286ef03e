/* See explore.h. Compiled without sanitizers: the explorer's own state is shared by the fibers on purpose. */
#include "support/explore.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

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
    struct explore_site site;
    bool ended, yielded;
};

static const struct explore_case *now;
static struct fiber fibers[EXPLORE_THREADS + 1];
static unsigned current = MAIN, bound, preemptions;
static bool planted, alone;
static struct effort { unsigned preemptions, stale; } most = { EXPLORE_ALL, EXPLORE_ALL };   /* bounds of all cases */
static struct choice path[POINTS_MAX];
static unsigned depth, path_length;
static uint64_t schedules, points, steps;   /* steps: points of this schedule */
static unsigned trace[POINTS_MAX], trace_length, stale;

/* Only where weak.c is linked. */
#pragma weak weak_begin
#pragma weak weak_mutant
#pragma weak weak_choose_mutant

/* --- switching ------------------------------------------------------------------------------------------------------ */

#if EXPLORE_TSAN
void *__tsan_create_fiber(unsigned flags);
void *__tsan_get_current_fiber(void);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
void __tsan_acquire(void *address);
void __tsan_release(void *address);
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreSyncBegin(const char *file, int line);
void AnnotateIgnoreSyncEnd(const char *file, int line);

static void tsan_create(struct fiber *fiber) { fiber->tsan = __tsan_create_fiber(0); }
static void tsan_current(struct fiber *fiber) { fiber->tsan = __tsan_get_current_fiber(); }

static void tsan_switch(unsigned to) { __tsan_switch_to_fiber(fibers[to].tsan, 1); }   /* 1: orders nothing */

/* Only the start and the end of a schedule order anything: setup, then the threads, then the check. */
static char start_edge, end_edge;
static void edge_out(bool start) { __tsan_release(start ? &start_edge : &end_edge); }
static void edge_in(bool start) { __tsan_acquire(start ? &start_edge : &end_edge); }

/* Setup and check take longer than a schedule, and these edges order them with all that threads do: nothing there can be a race. */
static void unwatched(void (*function)(void))
{
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
    function();
    AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}
#else
static void tsan_create(struct fiber *fiber) { (void)fiber; }
static void tsan_current(struct fiber *fiber) { (void)fiber; }
static void tsan_switch(unsigned to) { (void)to; }
static void edge_out(bool start) { (void)start; }
static void edge_in(bool start) { (void)start; }
static void unwatched(void (*function)(void)) { function(); }
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

static void go_to(unsigned to)
{
    fibers[to].yielded = false;
    trace[trace_length++ % POINTS_MAX] = to;
    switch_to(to);
}

static void point(void)
{
    if (++steps == STEPS_MAX)
        explore_violation(endless);
    if (explore_directly())
        return;
    points++;
    unsigned taken = choose(preemptions < bound ? 1 + others(current) : 1);
    if (taken == 0)
        return;
    preemptions++;
    go_to(other(current, taken - 1));
}

__attribute__((weak)) void explore_resumed(void) {}

void hak__race_point(const char *function, const char *operation)
{
    point();
    explore_resumed();
    fibers[current].site = (struct explore_site){ function, operation };
}

struct explore_site explore_take_site(void)
{
    struct explore_site site = fibers[current].site;
    fibers[current].site = (struct explore_site){ NULL, NULL };
    return site;
}

/* The others that have not yielded since they last ran; when all have, each may try again. */
void explore_yield(void)
{
    unsigned ready[EXPLORE_THREADS], count = 0, me = current;
    if (++steps == STEPS_MAX || explore_directly())
        explore_violation(endless);
    if (others(me) == 0)
        return;   /* what was waited for may have been an older value */
    fibers[me].yielded = true;
    for (int round = 0; count == 0; round++)
        for (unsigned i = 0; i < now->threads; i++)
            if (i != me && !fibers[i].ended && (round == 1 || !fibers[i].yielded))
                ready[count++] = i;
    go_to(ready[choose(count)]);
    explore_resumed();
}

void explore_alone(bool is) { alone = is; }
bool explore_directly(void) { return current == MAIN || alone; }
unsigned explore_thread(void) { return current; }
unsigned explore_choose(unsigned options) { return choose(options); }
bool explore_every_write(void) { return now->every_write; }

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
        go_to(to);
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
    alone = false;
    for (unsigned i = 0; i < now->threads; i++)
        fibers[i].ended = fibers[i].yielded = false;
    unwatched(now->setup);
    if (weak_begin != NULL)
        weak_begin(stale);
    edge_out(true);
    go_to(choose(now->threads));
    edge_in(false);
    unwatched(now->check);
    schedules++;
}

static unsigned knob(const char *name, unsigned otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? (unsigned)atoi(text) : otherwise;
}

static void set_bounds(const struct explore_case *one)
{
    bound = one->preemptions;
    if (weak_begin != NULL)
        bound = one->weak_preemptions != 0 ? one->weak_preemptions : bound < 2 ? bound : 2;
    bound = knob("HAK_RACE_PREEMPTIONS", bound);
    stale = knob("HAK_RACE_STALE", one->stale != 0 ? one->stale : 2);
    bound = bound < most.preemptions ? bound : most.preemptions;
    stale = stale < most.stale ? stale : most.stale;
}

uint64_t explore_case_run(const struct explore_case *one)
{
    now = one;
    set_bounds(one);
    if (fibers[MAIN].tsan == NULL)
        tsan_current(&fibers[MAIN]);
    path_length = 0;
    schedules = points = 0;
    for (unsigned i = 0; i < one->threads; i++)
        create(&fibers[i]);
    do
        run_schedule();
    while (next_path());
    return schedules;
}

static void explore(const struct explore_case *one)
{
    char limit[32] = "all", older[32] = "";
    explore_case_run(one);
    if (bound < EXPLORE_ALL)
        snprintf(limit, sizeof limit, "<= %u", bound);
    if (weak_begin != NULL)
        snprintf(older, sizeof older, "older values <= %u ", stale);
    printf("%-50s preemptions %-5s %sschedules %-9llu points %llu\n", one->name, limit, older,
           (unsigned long long)schedules, (unsigned long long)points);
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

/* --- orders weakened ------------------------------------------------------------------------------------------------- */

enum { FOUND = 0, NOT_FOUND = 1, MUTANT_SECONDS = 60 };

/* Most mutants show in one of the first schedules of some case: all cases are gone through with little effort before any
 * is explored as far as its own bounds go. */
static const struct effort efforts[] = { { 1, 0 }, { 1, 1 }, { 2, 1 }, { EXPLORE_ALL, EXPLORE_ALL } };
enum { EFFORTS = sizeof efforts / sizeof efforts[0] };

/* Whether the cases find the n-th mutant; in a child, since a violation ends the process. */
static bool finds_mutant(const struct explore_case *cases, unsigned count, unsigned n)
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        if (freopen("/dev/null", "w", stdout) == NULL)
            _Exit(NOT_FOUND);
        alarm(MUTANT_SECONDS);
        planted = true;
        weak_choose_mutant(n);
        for (unsigned effort = 0; effort < EFFORTS; effort++)
            for (unsigned i = 0; i < count; i++) {
                most = efforts[effort];
                explore_case_run(&cases[i]);
            }
        _Exit(NOT_FOUND);
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == FOUND;
}

/* "function:operation" begins the mutant's name, which goes on with the orders. */
static bool is_of(const char *name, const char *wanted)
{
    size_t length = strlen(wanted);
    return strncmp(name, wanted, length) == 0 && (name[length] == ':' || name[length] == 0);
}

static int weaken(const struct explore_case *cases, unsigned count, int wanted, char **names)
{
    int failed = 0, *matches = calloc((size_t)wanted + 1, sizeof *matches);
    char name[200];
    most = efforts[0];
    for (unsigned i = 0; i < count; i++)   /* so that the operations are known */
        explore_case_run(&cases[i]);
    for (unsigned n = 0; weak_mutant(n, name, sizeof name); n++) {
        bool asked = wanted == 0;
        for (int i = 0; i < wanted; i++)
            if (is_of(name, names[i])) {
                asked = true;
                matches[i]++;
            }
        if (!asked)
            continue;
        bool found = finds_mutant(cases, count, n);
        printf("%-60s %s\n", name, found ? "found" : "NOT FOUND");
        failed += !found && wanted != 0;
    }
    for (int i = 0; i < wanted; i++)
        if (matches[i] == 0) {
            printf("no case runs %s with an order stronger than relaxed; adjust the name to the source\n", names[i]);
            failed++;
        }
    free(matches);
    return failed != 0;
}

int explore_main(const struct explore_case *cases, unsigned count, int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "weaken") == 0) {
        if (weak_mutant != NULL)
            return weaken(cases, count, argc - 2, argv + 2);
        printf("orders can be weakened only in the programs linked with support/weak.c (weak_*)\n");
        return 2;
    }
    planted = argc > 1 && strcmp(argv[1], "planted") == 0;
    for (unsigned i = 0; i < count; i++)
        explore(&cases[i]);
    if (planted)
        printf("the planted bug was NOT found\n");
    return planted;
}
