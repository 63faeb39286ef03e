/* What test_opened.py runs.
 *   trace COMMAND...        runs a command and prints, a line each, the files that it opens, and "prctl" for each announcement of a filter
 *   small                   allocates a hundred blocks
 *   grown                   allocates 16 MiB
 *   limited                 has no descriptor while it allocates 16 MiB, then allocates 48
 *   filtered                promises not to gain privileges, while it is small, and then allocates 16 MiB
 *   seccomp                 the same with a filter that ends it at openat and getpid, twice */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NO_TRACE = 77 };

/* The kernel's struct ptrace_syscall_info as far as it is needed; the C library's header may be older. */
enum { GET_SYSCALL_INFO = 0x420e, ENTRY = 1 };
struct call {
    uint8_t op, pad[3];
    uint32_t arch;
    uint64_t ip, sp, number, arguments[6];
};

static void print_call(pid_t child)
{
    struct call call;
    char path[256] = "";
    if (ptrace(GET_SYSCALL_INFO, child, (void *)sizeof call, &call) <= 0)
        exit(NO_TRACE);
    if (call.op != ENTRY)
        return;
    if (call.number == SYS_prctl && (call.arguments[0] == PR_SET_NO_NEW_PRIVS || call.arguments[0] == PR_SET_SECCOMP))
        printf("prctl\n");
    if (call.number != SYS_openat)
        return;
    for (size_t i = 0; i + 1 < sizeof path; i++) { /* byte by byte, since the next page may not be there */
        struct iovec to = { path + i, 1 }, from = { (void *)(uintptr_t)(call.arguments[1] + i), 1 };
        if (process_vm_readv(child, &to, 1, &from, 1, 0) != 1 || path[i] == 0)
            break;
    }
    printf("%s\n", path);
}

static int trace(char **command)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0)
            execv(command[0], command);
        _exit(NO_TRACE);
    }
    waitpid(child, &status, 0);
    if (WIFEXITED(status) || ptrace(PTRACE_SETOPTIONS, child, NULL, (void *)(PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL)) != 0)
        return NO_TRACE;
    for (long signal = 0; ptrace(PTRACE_SYSCALL, child, NULL, (void *)signal) == 0 && waitpid(child, &status, 0) == child;) {
        if (WIFEXITED(status))
            return WEXITSTATUS(status);
        if (WIFSIGNALED(status))
            return 128 + WTERMSIG(status);
        signal = WSTOPSIG(status) == (SIGTRAP | 0x80) || WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
        if (WSTOPSIG(status) == (SIGTRAP | 0x80))
            print_call(child);
    }
    return 1;
}

static void allocate(size_t count, size_t size)
{
    while (count-- > 0) {
        char *volatile p = malloc(size);
        memset(p, 1, size);
    }
}

static void install(void)
{
    struct sock_filter forbidden[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = { sizeof forbidden / sizeof *forbidden, forbidden };
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
        exit(NO_TRACE);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    if (strcmp(mode, "trace") == 0)
        return trace(argv + 2);
    allocate(100, 100);
    if (strcmp(mode, "limited") == 0) {
        struct rlimit usual, none;
        getrlimit(RLIMIT_NOFILE, &usual);
        none = usual;
        none.rlim_cur = 0;
        setrlimit(RLIMIT_NOFILE, &none);
        allocate(16, 1 << 20);
        setrlimit(RLIMIT_NOFILE, &usual);
        allocate(48, 1 << 20);
    }
    bool filters = strcmp(mode, "seccomp") == 0;
    if ((filters || strcmp(mode, "filtered") == 0) && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return NO_TRACE;
    for (int i = 0; filters && i < 2; i++)
        install();
    if (strcmp(mode, "small") != 0)
        allocate(16, 1 << 20);
    return 0;
}
