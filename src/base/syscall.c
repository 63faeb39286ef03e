/* System calls through the C library: see syscall.h. Calls that change mappings use the named functions, which sanitizers
 * intercept. */
#include "base/syscall.h"

#if HAK_TESTING || !(defined(__x86_64__) || defined(__aarch64__) || (defined(__riscv) && __riscv_xlen == 64))

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

static long syscall_named(long number, long a, long b, long c, long d, long e, long f)
{
    switch (number) {
    case SYS_mmap: return (long)mmap((void *)a, (size_t)b, (int)c, (int)d, (int)e, f);
    case SYS_munmap: return munmap((void *)a, (size_t)b);
    case SYS_mremap: return (long)mremap((void *)a, (size_t)b, (size_t)c, (int)d, (void *)e);
    case SYS_madvise: return madvise((void *)a, (size_t)b, (int)c);
    default: return syscall(number, a, b, c, d, e, f);
    }
}

long hak__syscall_made(long number, long a, long b, long c, long d, long e, long f)
{
    int saved = errno;
    long result = syscall_named(number, a, b, c, d, e, f);
    if (result == -1)
        result = -errno;
    errno = saved;
    return result;
}

#endif
