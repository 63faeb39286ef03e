/* Programs of several cases, each in a process of its own: executed anew, so that nobody's earlier calls are behind it,
 * with a time limit, and in a process group that is killed afterwards, so that it leaves nothing behind.
 *
 *     program           runs all cases, says how each ended, and gives 0 if all passed
 *     program CASE      runs one of them in this process
 *
 * A case is a function of its name without arguments and results; a failing expect() ends it. */
#ifndef HAK_TESTS_OVERRIDE_CASES_H
#define HAK_TESTS_OVERRIDE_CASES_H

#include "expect.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { CASE_SECONDS = 100 };

struct test_case {
    const char *name;
    void (*run)(void);
};
#define CASE(name) { #name, name }

/* A count that HAK_TEST_LONG=1 raises to that of the long run. */
static inline unsigned in_long_form(unsigned brief, unsigned full)
{
    const char *text = getenv("HAK_TEST_LONG");
    return text != NULL && *text != 0 && *text != '0' ? full : brief;
}

/* --- children -------------------------------------------------------------------------------------------------------- */

/* Waits for a child; its exit code, or 256 plus the signal that ended it. */
static inline int end_of_child(pid_t child)
{
    int status;
    while (waitpid(child, &status, 0) != child)
        expect(errno == EINTR);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

/* A child has to limit its time by itself: alarms are not inherited. */
static inline void limit_child(void)
{
    struct rlimit none = { 0, 0 };
    setrlimit(RLIMIT_CORE, &none);
    alarm(30);
}

/* Whether all lines but the first, up to where the text was cut, are parts of the report: its stacks, in hardened mode. */
static inline bool goes_on_with_stacks(const char *said)
{
    static const char beginning[] = "hakmem:   ";
    for (const char *end = strchr(said, '\n'); end != NULL && end[1] != 0; end = strchr(end + 1, '\n')) {
        size_t rest = strlen(end + 1);
        if (strncmp(end + 1, beginning, rest < sizeof beginning - 1 ? rest : sizeof beginning - 1) != 0)
            return false;
    }
    return strchr(said, '\n') != NULL;
}

/* Takes away the line that an emulator adds about its program's end. */
static inline void without_emulator(char *said)
{
    char *line = strstr(said, "qemu: uncaught target signal");
    if (line != NULL)
        *line = 0;
}

/* Runs the body in a forked child that must end by abort(), after one report that begins so on stderr. */
static inline void expect_abort(void (*body)(void), const char *beginning)
{
    char said[400];
    int ends[2];
    expect(pipe(ends) == 0);
    pid_t child = fork();
    expect(child >= 0);
    if (child == 0) {
        limit_child();
        dup2(ends[1], 2);
        body();
        _exit(0);
    }
    close(ends[1]);
    int code = end_of_child(child);
    ssize_t length = read(ends[0], said, sizeof said - 1);
    close(ends[0]);
    said[length > 0 ? length : 0] = 0;
    without_emulator(said);
    if (code != 256 + SIGABRT || strncmp(said, beginning, strlen(beginning)) != 0)
        printf("ended with %d, said: %s\nexpected: %s\n", code, said, beginning), fflush(stdout);
    expect(code == 256 + SIGABRT && strncmp(said, beginning, strlen(beginning)) == 0);
    const char *hardened = getenv("HAKMEM_HARDEN");
    bool stacks = hardened != NULL && strcmp(hardened, "0") != 0;
    expect(stacks ? goes_on_with_stacks(said) : strchr(said, '\n') == said + strlen(said) - 1);
}

/* --- running them ---------------------------------------------------------------------------------------------------- */

static inline bool passes(const char *name)
{
    char program[] = "/proc/self/exe";
    pid_t child = fork();
    expect(child >= 0);
    if (child == 0) {
        char *arguments[] = { program, (char *)(uintptr_t)name, NULL };
        setpgid(0, 0);
        alarm(CASE_SECONDS);
        execv(program, arguments);
        _exit(127);
    }
    setpgid(child, child);
    int code = end_of_child(child);
    kill(-child, SIGKILL);
    printf("%-6s %s", code == 0 ? "passed" : "FAILED", name);
    if (code != 0)
        printf(code >= 256 ? ": signal %d" : ": exit code %d", code & 255);
    printf("\n");
    fflush(stdout);
    return code == 0;
}

/* Runs a case anew with an option, which is read at the start; it has to pass. Profiles are written to /tmp. */
static inline void pass_with(const char *option, const char *value, const char *name)
{
    char program[] = "/proc/self/exe";
    pid_t child = fork();
    expect(child >= 0);
    if (child == 0) {
        char *arguments[] = { program, (char *)(uintptr_t)name, NULL };
        expect(chdir("/tmp") == 0);
        setenv(option, value, 1);
        execv(program, arguments);
        _exit(127);
    }
    expect(end_of_child(child) == 0);
}

static inline int run_cases(const struct test_case *cases, size_t count, int argc, char **argv)
{
    unsigned failed = 0;
    for (size_t i = 0; i < count; i++) {
        if (argc < 2) {
            failed += !passes(cases[i].name);
        } else if (strcmp(cases[i].name, argv[1]) == 0) {
            cases[i].run();
            return 0;
        }
    }
    if (argc >= 2)
        fprintf(stderr, "there is no case '%s'\n", argv[1]);
    return argc >= 2 ? 2 : failed != 0;
}
#define RUN_CASES(cases) run_cases(cases, sizeof(cases) / sizeof *(cases), argc, argv)

#endif
