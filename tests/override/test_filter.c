/* A program that has the kernel forbid it system calls, as sshd does in its process before the login: mincore and getrusage, which
 * only the allocator makes there, end the process. In libhakmem.so alone, which sees the filter come. */
// test: interposed flavours=preload,shared
#include "cases.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "hakmem.h"

/* Idle memory is looked at every millisecond, by the calls of the program. */
const char *hak_conf = "purge_delay:1,background:0";

enum { BLOCKS = 3000, MILLISECONDS = 400, NO_FILTERS = 99 };

static uint64_t milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Spans become idle with some blocks in use, and large blocks are kept and used again: what the allocator looks at. */
static void use_memory(void)
{
    static char *blocks[BLOCKS];
    uint64_t end = milliseconds() + MILLISECONDS;
    for (unsigned round = 0; round < 20 || milliseconds() < end; round++) {
        for (unsigned i = 0; i < BLOCKS; i++) {
            size_t size = i % 100 == 0 ? 300000 : 500 + i;
            expect((blocks[i] = malloc(size)) != NULL);
            memset(blocks[i], (int)i, size);
        }
        for (unsigned i = 0; i < BLOCKS; i++)
            if (i % 40 != round % 40)
                free(blocks[i]);
        for (unsigned i = round % 40; i < BLOCKS; i += 40)
            free(blocks[i]);
    }
}

static struct sock_filter no_questions[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mincore, 1, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getrusage, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
};
static struct sock_fprog filter = { sizeof no_questions / sizeof *no_questions, no_questions };

static int by_prctl(void)
{
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) : -1;
}

static int by_seccomp(void)
{
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 ? (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) : -1;
}

/* A forked child forbids itself these calls and goes on. */
static void expect_that_a_child_goes_on(int (*install)(void))
{
    use_memory();
    pid_t child = fork();
    expect(child >= 0);
    if (child == 0) {
        limit_child();
        if (install() != 0)
            _exit(NO_FILTERS);
        use_memory();
        _exit(3);
    }
    int end = end_of_child(child);
    expect(end == 3 || end == NO_FILTERS);
}

static void filter_by_prctl(void) { expect_that_a_child_goes_on(by_prctl); }
static void filter_by_seccomp(void) { expect_that_a_child_goes_on(by_seccomp); }

static void filter_in_the_program_itself(void)
{
    use_memory();
    if (by_prctl() == 0)
        use_memory();
}

static void prctl_is_the_c_librarys(void)
{
    char name[16] = "";
    expect(prctl(PR_SET_NAME, "a name") == 0 && prctl(PR_GET_NAME, name) == 0 && strcmp(name, "a name") == 0);
    expect(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0 && prctl(PR_GET_DUMPABLE) == 1);
    errno = 0;
    expect(prctl(-1, 0, 0, 0, 0) == -1 && errno == EINVAL);
    errno = 0;
    expect(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) == -1 && (errno == EFAULT || errno == EACCES || errno == EINVAL));
    expect(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0);
}

/* --- in a child of vfork -------------------------------------------------------------------------------------------------- */

static volatile bool told;

static void note_pressure(size_t mapped, size_t limit, void *argument)
{
    (void)mapped, (void)limit, (void)argument;
    told = true;
}

/* Near its limit the program is told, as long as the library asks the system. */
static bool is_told_of_a_limit(void)
{
    enum { BLOCK = 1 << 20, BLOCKS_MOST = 64 };
    uint64_t end = milliseconds() + 5000;
    expect(hak_option_set("limit", "64M") == 0);
    hak_set_pressure_callback(note_pressure, NULL);
    for (unsigned i = 0; i < BLOCKS_MOST; i++) {
        char *block = malloc(BLOCK);
        if (block != NULL)
            memset(block, 1, BLOCK);
    }
    while (!told && milliseconds() < end)
        free(malloc(1 + milliseconds() % 10000));
    return told;
}

static void a_vfork_childs_call_is_its_own(void)
{
    static char name[] = "true", path[] = "/bin/true";
    static char *arguments[] = { name, NULL };
    if (not_emulated("children in their parents' memory"))
        return;
    pid_t child = vfork();
    if (child == 0) {
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
            _exit(4);
        execv(path, arguments);
        _exit(5);
    }
    expect(child > 0 && end_of_child(child) == 0);
    expect(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0);
    expect(is_told_of_a_limit());
}

static const struct test_case cases[] = {
    CASE(filter_by_prctl),
    CASE(filter_by_seccomp),
    CASE(filter_in_the_program_itself),
    CASE(prctl_is_the_c_librarys),
    CASE(a_vfork_childs_call_is_its_own),
};

int main(int argc, char **argv) { return RUN_CASES(cases); }
