/* Threads that constructors have started and nobody waits for: they allocate, free each other's blocks and have
 * destructors while main begins, returns at once, and while what runs after main allocates too. The process ends at once
 * with the code that main gave, again and again. */
#include "cases.h"
#include "churn.h"

enum { THREADS_OF_CONSTRUCTOR = 3, PROCESSES = 15, FIRST_CODE = 10 };   /* a failed check gives 1 */

static void *before_main;
static unsigned seed_of_ends = 5;

static bool is_the_process(void) { return getenv("HAK_TEST_LATE") != NULL; }

static void *starts_others(void *argument)
{
    for (;;) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, churn_briefly, argument) == 0)
            pthread_join(thread, NULL);
    }
    return NULL;
}

static void start_threads(void)
{
    pthread_t thread;
    for (uintptr_t i = 0; i < THREADS_OF_CONSTRUCTOR; i++) {
        expect(pthread_create(&thread, NULL, i == 0 ? starts_others : churn_thread, (void *)i) == 0);
        expect(pthread_detach(thread) == 0);
    }
}

__attribute__((constructor(101))) static void construct_first(void)
{
    if (is_the_process())
        start_threads();
}

__attribute__((constructor)) static void construct(void)
{
    if (is_the_process())
        before_main = churn_make(&seed_of_ends);
}

static void use_at_the_end(void)
{
    churn_free(before_main);
    churn_steps(seed_of_ends, 500);
    before_main = churn_make(&seed_of_ends);
}

__attribute__((destructor)) static void destruct(void)
{
    if (is_the_process())
        use_at_the_end();
}

__attribute__((destructor(101))) static void destruct_last(void)
{
    if (is_the_process())
        use_at_the_end();
}

static void run_process(unsigned code)
{
    char program[] = "/proc/self/exe", name[20];
    snprintf(name, sizeof name, "%u", code);
    pid_t child = fork();
    expect(child >= 0);
    if (child == 0) {
        char *arguments[] = { program, name, NULL };
        setenv("HAK_TEST_LATE", "1", 1);
        limit_child();
        execv(program, arguments);
        _exit(127);
    }
    expect(end_of_child(child) == (int)code);
}

int main(int argc, char **argv)
{
    if (is_the_process()) {
        atexit(use_at_the_end);
        return argc == 2 ? (int)strtol(argv[1], NULL, 10) : 126;
    }
    for (unsigned i = 0; i < in_long_form(PROCESSES, 200); i++)
        run_process(FIRST_CODE + i);
    return 0;
}
