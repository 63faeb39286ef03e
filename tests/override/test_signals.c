/* Signals that interrupt malloc: handlers that fork, in a program with one thread and with many, whose children end at
 * once or go on with the interrupted call; and threads that allocate while pthread_kill interrupts each of them ten
 * thousand times a second. Handlers call nothing of the allocator, which no allocator allows. */
#include "cases.h"
#include "churn.h"

#include <signal.h>
#include <time.h>

static atomic_uint handled, wrong;
static unsigned forks_wanted;
static bool child_goes_on;
static volatile sig_atomic_t is_child;

static void pause_for(long ns)
{
    struct timespec time = { 0, ns };
    nanosleep(&time, NULL);
}

static void handle(int signal, void (*handler)(int))
{
    struct sigaction action = { .sa_handler = handler };   /* without SA_RESTART */
    expect(sigaction(signal, &action, NULL) == 0);
}

/* --- handlers that fork ------------------------------------------------------------------------------------------------ */

/* musl's fork takes locks that the interrupted code may hold; a handler may call _Fork, whose child is not ready for threads. */
#if defined(__GLIBC__)
enum { CHILD_HAS_THREADS = true };
static pid_t make_child(void) { return fork(); }
#else
enum { CHILD_HAS_THREADS = false };
static pid_t make_child(void) { return _Fork(); }
#endif

static void forks(int signal)
{
    (void)signal;
    if (is_child || atomic_load(&handled) >= forks_wanted)
        return;
    int saved = errno, status = 0;
    pid_t child = make_child();
    if (child == 0) {
        limit_child();
        if (!child_goes_on)
            _exit(42);
        is_child = 1;
        return;
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status != 42 << 8) {
        dprintf(1, "child %d ended with status %#x\n", (int)child, (unsigned)status);
        atomic_fetch_add(&wrong, 1);
    }
    atomic_fetch_add(&handled, 1);
    errno = saved;
}

static pthread_t interrupted;

/* At moments that differ: the allocating thread is somewhere else in malloc or free each time. */
static void *interrupts(void *argument)
{
    for (long i = 0; atomic_load(&handled) < forks_wanted; i++) {
        expect(pthread_kill(interrupted, SIGUSR1) == 0);
        pause_for(20000 + i * 7919 % 100000);
    }
    return argument;
}

/* The thread that is interrupted keeps its blocks across the fork: the child checks and frees them. */
static void *is_interrupted(void *argument)
{
    static __thread void *own[CHURN_OWN];
    unsigned seed = 17;
    while (!is_child && atomic_load(&handled) < forks_wanted)
        churn_step(&seed, own);
    for (unsigned i = 0; is_child && i < 300; i++)
        churn_step(&seed, own);
    for (unsigned i = 0; i < CHURN_OWN; i++)
        churn_free(own[i]);
    if (is_child) {
        churn_as_child(CHILD_HAS_THREADS);
        _exit(42);
    }
    return argument;
}

static void fork_in_handlers(unsigned load, bool goes_on)
{
    pthread_t interrupter;
    if (not_told_of_children())
        return;
    forks_wanted = in_long_form(150, 3000);
    child_goes_on = goes_on;
    interrupted = pthread_self();
    handle(SIGUSR1, forks);
    churn_begin(load);
    expect(pthread_create(&interrupter, NULL, interrupts, NULL) == 0);
    is_interrupted(NULL);
    expect(pthread_join(interrupter, NULL) == 0);
    churn_end();
    expect(atomic_load(&handled) == forks_wanted && atomic_load(&wrong) == 0);
}

static void fork_in_a_handler_and_end(void) { fork_in_handlers(0, false); }
static void fork_in_a_handler_and_go_on(void) { fork_in_handlers(0, true); }
static void fork_in_a_handler_under_load_and_end(void) { fork_in_handlers(3, false); }
static void fork_in_a_handler_under_load_and_go_on(void) { fork_in_handlers(3, true); }

/* By a timer, so that the process has one thread only and no heap but its own. */
static void fork_in_a_timers_handler(void)
{
    struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
    struct itimerspec often = { { 0, 150000 }, { 0, 150000 } };
    timer_t timer;
    if (not_told_of_children())
        return;
    forks_wanted = in_long_form(150, 3000);
    child_goes_on = true;
    handle(SIGUSR1, forks);
    expect(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &often, NULL) == 0);
    is_interrupted(NULL);
    timer_delete(timer);
    expect(atomic_load(&wrong) == 0);
}

/* --- handlers that only interrupt --------------------------------------------------------------------------------------- */

enum { SIGNALLED = 3 };

static void counts(int signal)
{
    (void)signal;
    errno = EINTR;   /* what a handler without care leaves behind must not become a reason to fail */
    atomic_fetch_add(&handled, 1);
}

static void signals_at_ten_kilohertz(int signal, unsigned seconds_long)
{
    handle(signal, counts);
    churn_begin(SIGNALLED);
    unsigned count = in_long_form(10000, 10000 * seconds_long), sent = 0;
    for (; sent < count; sent++) {
        for (unsigned i = 0; i < SIGNALLED; i++)
            expect(pthread_kill(churn_threads[i], signal) == 0);
        if (sent % 4 == 0)
            pause_for(100000);
        else
            churn_steps(sent, 3);
    }
    churn_end();
    expect(atomic_load(&handled) > 0);
}

static void signals_into_threads_that_allocate(void) { signals_at_ten_kilohertz(SIGUSR1, 30); }
static void realtime_signals_into_threads_that_allocate(void) { signals_at_ten_kilohertz(SIGRTMIN + 3, 30); }

/* Handlers on an alternate stack that the program has from malloc. */
static void *on_own_stack(void *argument)
{
    stack_t stack = { .ss_sp = malloc(65536), .ss_size = 65536 }, none = { .ss_flags = SS_DISABLE };
    expect(sigaltstack(&stack, NULL) == 0);
    while (!atomic_load(&churn_over))
        churn_steps((unsigned)(uintptr_t)argument, 500);
    expect(sigaltstack(&none, NULL) == 0);
    free(stack.ss_sp);
    return NULL;
}

static void signals_on_stacks_from_malloc(void)
{
    pthread_t threads[SIGNALLED];
    struct sigaction action = { .sa_handler = counts, .sa_flags = SA_ONSTACK };
    expect(sigaction(SIGUSR2, &action, NULL) == 0);
    for (uintptr_t i = 0; i < SIGNALLED; i++)
        expect(pthread_create(&threads[i], NULL, on_own_stack, (void *)(i + 1)) == 0);
    for (unsigned sent = 0; sent < in_long_form(2000, 100000); sent++) {
        for (unsigned i = 0; i < SIGNALLED; i++)
            expect(pthread_kill(threads[i], SIGUSR2) == 0);
        pause_for(50000);
    }
    atomic_store(&churn_over, true);
    for (unsigned i = 0; i < SIGNALLED; i++)
        expect(pthread_join(threads[i], NULL) == 0);
    expect(atomic_load(&handled) > 0);
}

static const struct test_case cases[] = {
    CASE(fork_in_a_handler_and_end),
    CASE(fork_in_a_handler_and_go_on),
    CASE(fork_in_a_handler_under_load_and_end),
    CASE(fork_in_a_handler_under_load_and_go_on),
    CASE(fork_in_a_timers_handler),
    CASE(signals_into_threads_that_allocate),
    CASE(realtime_signals_into_threads_that_allocate),
    CASE(signals_on_stacks_from_malloc),
};

int main(int argc, char **argv) { return RUN_CASES(cases); }
