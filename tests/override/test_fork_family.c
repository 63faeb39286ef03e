/* Every way to make a process while threads allocate: fork, _Fork, vfork, posix_spawn; forks of forks; forks by a thread;
 * handlers of pthread_atfork that allocate; forks beside fflush(NULL) and getline, which hold the C library's own locks.
 * Children free what they have inherited, allocate in every pool and start threads, each within a time. */
#include "cases.h"
#include "churn.h"

#include <spawn.h>

extern char **environ;

enum { LOADED_BY = 4 };

/* --- fork and _Fork --------------------------------------------------------------------------------------------------- */

static void child_lives(pid_t (*make)(void), bool threads)
{
    pid_t child = make();
    expect(child >= 0);
    if (child == 0) {
        limit_child();
        churn_as_child(threads);
        _exit(42);
    }
    expect(end_of_child(child) == 42);
}

static void a_thousand_forks_under_load(void)
{
    churn_begin(LOADED_BY);
    for (unsigned i = in_long_form(50, 1000); i > 0; i--) {
        child_lives(fork, true);
        churn_steps(i, 100);
    }
    churn_end();
}

static void raw_forks_under_load(void)
{
#if defined(__GLIBC_PREREQ)
#if __GLIBC_PREREQ(2, 34)
    churn_begin(LOADED_BY);
    for (unsigned i = in_long_form(50, 1000); i > 0; i--)
        child_lives(_Fork, false); /* whose C library is not ready for threads */
    churn_end();
#endif
#endif
}

static void *forks(void *argument)
{
    for (unsigned i = in_long_form(15, 300); i > 0; i--)
        child_lives(fork, true);
    return argument;
}

static void forks_by_several_threads(void)
{
    pthread_t threads[3];
    churn_begin(2);
    for (int i = 0; i < 3; i++)
        expect(pthread_create(&threads[i], NULL, forks, NULL) == 0);
    for (int i = 0; i < 3; i++)
        expect(pthread_join(threads[i], NULL) == 0);
    churn_end();
}

/* Each generation has its own load when it forks the next. */
static void generation(unsigned left)
{
    if (left == 0)
        return;
    churn_begin(2);
    pid_t child = fork();
    expect(child >= 0);
    if (child == 0) {
        limit_child();
        churn_as_child(true);
        generation(left - 1);
        _exit(42);
    }
    churn_end();
    expect(end_of_child(child) == 42);
}

static void eight_generations(void)
{
    for (unsigned i = in_long_form(3, 50); i > 0; i--)
        generation(8);
}

/* --- programs --------------------------------------------------------------------------------------------------------- */

static void allocates_and_ends(void) { churn_steps(3, 2000); }

static char program[] = "/proc/self/exe", case_name[] = "allocates_and_ends";
static char *const arguments[] = { program, case_name, NULL };

static void vfork_under_load(void)
{
    churn_begin(LOADED_BY);
    for (unsigned i = in_long_form(50, 1000); i > 0; i--) {
        pid_t child = vfork();
        if (child == 0) {
            execve(program, arguments, environ);
            _exit(127);
        }
        expect(child > 0);
        churn_steps(i, 100);
        expect(end_of_child(child) == 0);
    }
    churn_end();
}

static void posix_spawn_under_load(void)
{
    churn_begin(LOADED_BY);
    for (unsigned i = in_long_form(50, 1000); i > 0; i--) {
        pid_t child;
        posix_spawn_file_actions_t actions;
        expect(posix_spawn_file_actions_init(&actions) == 0);
        expect(posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", 0, 0) == 0);
        expect(posix_spawn(&child, program, &actions, NULL, arguments, environ) == 0);
        posix_spawn_file_actions_destroy(&actions);
        churn_steps(i, 100);
        expect(end_of_child(child) == 0);
    }
    churn_end();
}

static void popen_and_system_under_load(void)
{
    churn_begin(LOADED_BY);
    for (unsigned i = in_long_form(15, 300); i > 0; i--) {
        char line[100] = "";
        FILE *pipe = popen("echo one line", "r");
        expect(pipe != NULL && fgets(line, sizeof line, pipe) != NULL && strcmp(line, "one line\n") == 0);
        expect(pclose(pipe) == 0);
        expect(system("exit 3") == 3 << 8);
    }
    churn_end();
}

/* --- handlers --------------------------------------------------------------------------------------------------------- */

static void *from_prepare[20];
static unsigned prepared, in_parent, in_child;

static void prepare(void)
{
    unsigned seed = ++prepared;
    for (unsigned i = 0; i < 20; i++)
        from_prepare[i] = churn_make(&seed);
}

static void release(void)
{
    unsigned seed = 1;
    for (unsigned i = 0; i < 20; i++) {
        churn_free(from_prepare[i]);
        from_prepare[i] = NULL;
        churn_free(churn_make(&seed));
    }
}

static void parent(void) { in_parent++, release(); }
static void child(void) { in_child++, release(); }

/* Before the library's own constructor in some builds, which must not matter. */
__attribute__((constructor(101))) static void register_early(void)
{
    if (getenv("HAK_TEST_ATFORK") != NULL)
        pthread_atfork(prepare, parent, child);
}

static void fork_with_handlers(void)
{
    churn_begin(LOADED_BY);
    for (unsigned i = 1, count = in_long_form(50, 1000); i <= count; i++) {
        pid_t made = fork();
        expect(made >= 0);
        if (made == 0) {
            limit_child();
            expect(in_child == 1 && prepared == i && in_parent == i - 1);
            churn_as_child(true);
            _exit(42);
        }
        expect(end_of_child(made) == 42 && prepared == i && in_parent == i && in_child == 0);
    }
    churn_end();
}

static void atfork_handlers_that_allocate(void)
{
    expect(pthread_atfork(prepare, parent, child) == 0);
    fork_with_handlers();
}

static void fork_with_early_handlers(void)
{
    if (getenv("HAK_TEST_ATFORK") != NULL) {
        fork_with_handlers();
        return;
    }
    static char name[] = "atfork_handlers_registered_early";
    char *const again[] = { program, name, NULL };
    setenv("HAK_TEST_ATFORK", "1", 1);
    execve(program, again, environ);
    expect(!"the program can be executed again");
}

static void atfork_handlers_registered_early(void) { fork_with_early_handlers(); }

/* --- the C library's streams ------------------------------------------------------------------------------------------- */

/* musl leaves a child with the locks of streams that the parent's threads held. */
#if defined(__GLIBC__)
static atomic_bool streams_over;
static char lines_text[300 * 2000];
static size_t lines_length;

/* Holds a stream's lock while it allocates. A file's place would be shared with the children, whose fflush(NULL) moves it from glibc 2.41
 * on; memory's is not. */
static void count_lines(void)
{
    char *line = NULL;
    size_t size = 0, lines = 0;
    FILE *file = fmemopen(lines_text, lines_length, "r");
    expect(file != NULL);
    while (getline(&line, &size, file) > 0)
        lines++;
    expect(lines == 300);
    free(line);
    fclose(file);
}

static void *reads_lines(void *argument)
{
    while (!atomic_load(&streams_over))
        count_lines();
    return argument;
}

/* Holds the list of streams while it waits for each of them. */
static void *flushes(void *argument)
{
    while (!atomic_load(&streams_over))
        expect(fflush(NULL) == 0);
    return argument;
}

static void *writes(void *argument)
{
    FILE *file = fopen("/dev/null", "w");
    expect(file != NULL);
    while (!atomic_load(&streams_over)) {
        char *text = NULL;
        expect(asprintf(&text, "%d %s", 5, "words") > 0);
        expect(fprintf(file, "%s %100d\n", text, 5) > 0);
        free(text);
    }
    fclose(file);
    return argument;
}

static void write_lines(void)
{
    for (int i = 0; i < 300; i++)
        lines_length += (size_t)sprintf(lines_text + lines_length, "%*d\n", i * 7 % 1900 + 1, i);
}

static void forks_beside_fflush_and_getline(void)
{
    static void *(*const bodies[])(void *) = { reads_lines, reads_lines, flushes, writes };
    pthread_t threads[4];
    write_lines();
    for (int i = 0; i < 4; i++)
        expect(pthread_create(&threads[i], NULL, bodies[i], NULL) == 0);
    for (unsigned i = in_long_form(50, 2000); i > 0; i--) {
        pid_t made = fork();
        expect(made >= 0);
        if (made == 0) {
            limit_child();
            churn_steps(i, 300);
            count_lines();
            fflush(NULL);
            _exit(42);
        }
        expect(end_of_child(made) == 42);
    }
    atomic_store(&streams_over, true);
    for (int i = 0; i < 4; i++)
        expect(pthread_join(threads[i], NULL) == 0);
}
#endif

/* --- a thread that is first ---------------------------------------------------------------------------------------------- */

enum { TAKEN = 8, TAKEN_SIZE = 48, TURNS = 20000 };

/* Each block says whose it is for as long as it is in use. */
static void *take_turns(void *argument)
{
    void **blocks[TAKEN];
    for (int turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < TAKEN; i++) {
            blocks[i] = malloc(TAKEN_SIZE);
            expect(blocks[i] != NULL);
            *blocks[i] = &blocks[i];
        }
        for (int i = 0; i < TAKEN; i++) {
            expect(*blocks[i] == &blocks[i]);
            free(blocks[i]);
        }
    }
    return argument;
}

static void thread_first(bool had_threads)
{
    enum { THREADS = 3 };
    pthread_t threads[THREADS];
    for (int i = 0; had_threads && i < THREADS; i++) /* and leave the C library stacks for the child's */
        expect(pthread_create(&threads[i], NULL, take_turns, NULL) == 0);
    for (int i = 0; had_threads && i < THREADS; i++)
        expect(pthread_join(threads[i], NULL) == 0);
    take_turns(NULL); /* what is cached is enough for a while: the child's first thread needs no slow path */
    pid_t child = fork();
    expect(child >= 0);
    if (child == 0) {
        limit_child();
        for (int i = 0; i < THREADS; i++)
            expect(pthread_create(&threads[i], NULL, take_turns, NULL) == 0);
        take_turns(NULL);
        for (int i = 0; i < THREADS; i++)
            expect(pthread_join(threads[i], NULL) == 0);
        churn_as_child(true);
        _exit(42);
    }
    expect(end_of_child(child) == 42);
}

static void a_new_thread_allocates_first(void)
{
    for (int i = 0; i < 5; i++)
        thread_first(false);
    for (int i = 0; i < 10; i++)
        thread_first(true);
}

static const struct test_case cases[] = {
    CASE(a_thousand_forks_under_load),
    CASE(raw_forks_under_load),
    CASE(forks_by_several_threads),
    CASE(eight_generations),
    CASE(a_new_thread_allocates_first),
    CASE(allocates_and_ends),
    CASE(vfork_under_load),
    CASE(posix_spawn_under_load),
    CASE(popen_and_system_under_load),
    CASE(atfork_handlers_that_allocate),
    CASE(atfork_handlers_registered_early),
#if defined(__GLIBC__)
    CASE(forks_beside_fflush_and_getline),
#endif
};

int main(int argc, char **argv) { return argc < 2 && not_told_of_children() ? LEFT_OUT : RUN_CASES(cases); }
