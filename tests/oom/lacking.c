/* What test_kernels.py starts: a program on a kernel that lacks calls.
 *   lacking CODE NAME... -- PROGRAM ARGUMENT...   the calls named fail with CODE (ENOSYS, EPERM or EINVAL) from PROGRAM's first
 *                                                 instruction on
 *   lacking list                                  their names */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define OWN_ARCH AUDIT_ARCH_X86_64
#else
#define OWN_ARCH AUDIT_ARCH_AARCH64
#endif

enum { FILTER_MOST = 256, SKIPPED = 77, WHOLE_CALL = -1 };
#define ONE_BIT 0x80000000u   /* in `match`: the argument has the bit */

/* A call, and which of its arguments has which value, or which bit. */
static const struct lack {
    const char *name;
    int call, argument;
    unsigned match, value;
} lacks[] = {
    { "MADV_FREE", SYS_madvise, 2, 0, 8 },
    { "MADV_WIPEONFORK", SYS_madvise, 2, 0, 18 },
    { "MADV_KEEPONFORK", SYS_madvise, 2, 0, 19 },
    { "MADV_POPULATE_READ", SYS_madvise, 2, 0, 22 },
    { "MADV_POPULATE_WRITE", SYS_madvise, 2, 0, 23 },
    { "MADV_DONTNEED_LOCKED", SYS_madvise, 2, 0, 24 },
    { "MADV_COLLAPSE", SYS_madvise, 2, 0, 25 },
    { "MADV_GUARD_INSTALL", SYS_madvise, 2, 0, 102 },
    { "MADV_GUARD_REMOVE", SYS_madvise, 2, 0, 103 },
    { "MREMAP_DONTUNMAP", SYS_mremap, 3, ONE_BIT, 4 },
    { "MAP_FIXED_NOREPLACE", SYS_mmap, 3, ONE_BIT, 0x100000 },
    { "PROCMAP_QUERY", SYS_ioctl, 1, 0, 0xc0686611 },
    { "membarrier", SYS_membarrier, WHOLE_CALL, 0, 0 },
    { "getrandom", SYS_getrandom, WHOLE_CALL, 0, 0 },
    { "process_vm_readv", SYS_process_vm_readv, WHOLE_CALL, 0, 0 },
    { "pkey_mprotect", SYS_pkey_mprotect, WHOLE_CALL, 0, 0 },
    { "mremap", SYS_mremap, WHOLE_CALL, 0, 0 },
    { "mincore", SYS_mincore, WHOLE_CALL, 0, 0 },
};
enum { LACKS = sizeof lacks / sizeof *lacks, DONTNEED = 4 };

static struct sock_filter filter[FILTER_MOST];
static struct sock_fprog program = { 0, filter };

static void emit(unsigned code, unsigned value, unsigned yes, unsigned no)
{
    filter[program.len++] = (struct sock_filter){ (unsigned short)code, (unsigned char)yes, (unsigned char)no, value };
}

static void emit_load(size_t offset) { emit(BPF_LD | BPF_W | BPF_ABS, (unsigned)offset, 0, 0); }

/* Five instructions at most; each ends with the call's number loaded again. */
static void emit_lack(const struct lack *lack, unsigned code)
{
    unsigned refuse = SECCOMP_RET_ERRNO | code;
    emit(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)lack->call, 0, lack->argument == WHOLE_CALL ? 1 : 4);
    if (lack->argument != WHOLE_CALL) {
        emit_load(offsetof(struct seccomp_data, args) + (size_t)lack->argument * 8);
        emit(BPF_JMP | (lack->match == ONE_BIT ? BPF_JSET : BPF_JEQ) | BPF_K, lack->value, 0, 1);
    }
    emit(BPF_RET | BPF_K, refuse, 0, 0);
    if (lack->argument != WHOLE_CALL)
        emit_load(offsetof(struct seccomp_data, nr));
}

/* All advice but MADV_DONTNEED, as in a sandbox that implements the calls itself. */
static void emit_only_dontneed(unsigned code)
{
    emit(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 4);
    emit_load(offsetof(struct seccomp_data, args) + 16);
    emit(BPF_JMP | BPF_JEQ | BPF_K, DONTNEED, 1, 0);
    emit(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | code, 0, 0);
    emit_load(offsetof(struct seccomp_data, nr));
}

static int find(const char *name)
{
    for (int i = 0; i < LACKS; i++)
        if (strcmp(lacks[i].name, name) == 0)
            return i;
    return -1;
}

static int list(void)
{
    for (unsigned i = 0; i < LACKS; i++)
        puts(lacks[i].name);
    return 0;
}

int main(int count, char **words)
{
    int at = 2;
    if (count == 2 && strcmp(words[1], "list") == 0)
        return list();
    if (count < 5)
        return 2;
    unsigned code = strcmp(words[1], "EPERM") == 0 ? EPERM : strcmp(words[1], "EINVAL") == 0 ? EINVAL : ENOSYS;
    emit_load(offsetof(struct seccomp_data, arch));
    emit(BPF_JMP | BPF_JEQ | BPF_K, OWN_ARCH, 1, 0);
    emit(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);   /* other architectures' programs are none of ours */
    emit_load(offsetof(struct seccomp_data, nr));
    for (; at < count && strcmp(words[at], "--") != 0; at++) {
        int which = find(words[at]);
        if (which < 0 && strcmp(words[at], "only-dontneed") != 0)
            return 2;
        if (which < 0)
            emit_only_dontneed(code);
        else
            emit_lack(&lacks[which], code);
    }
    emit(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
    if (at + 1 >= count)
        return 2;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
        || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0)
        return SKIPPED;
    execvp(words[at + 1], words + at + 1);
    return 127;
}
