/* The contract of os.h on Linux. Called by arena/ (memory) and wherever the time or a random number is needed.
 * No function here keeps state or changes errno for its caller. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "os/os.h"

#if !defined(MADV_DONTNEED_LOCKED)
#define MADV_DONTNEED_LOCKED 24
#endif
#if !defined(MADV_COLLAPSE)
#define MADV_COLLAPSE 25
#endif
#if !defined(MADV_WIPEONFORK)
#define MADV_WIPEONFORK 18
#endif
#if !defined(MADV_GUARD_INSTALL)
#define MADV_GUARD_INSTALL 102
#endif
#if !defined(MADV_GUARD_REMOVE)
#define MADV_GUARD_REMOVE 103
#endif
#if !defined(MAP_FIXED_NOREPLACE)
#define MAP_FIXED_NOREPLACE 0x100000
#endif

static int linux_map(uintptr_t address, size_t size)
{
    int saved = errno;
    void *want = (void *)address;
    void *got = mmap(want, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    int code = got == MAP_FAILED ? errno : 0;
    if (code == 0 && got != want) {
        /* Kernels before 4.17 take the address as a hint only. */
        munmap(got, size);
        code = EEXIST;
    }
    errno = saved;
    return code;
}

static int linux_extend(uintptr_t address, size_t size)
{
    int saved = errno;
    size_t page = hak__os_linux.page_size();
    void *got = mremap((void *)(address - page), page, page + size, 0);
    errno = saved;
    return got == MAP_FAILED ? ENOMEM : 0;
}

/* The result of a call, with errno put back. */
static int linux_code(bool done, int saved)
{
    int code = done ? 0 : errno;
    errno = saved;
    return code;
}

static int linux_unmap(uintptr_t address, size_t size)
{
    int saved = errno;
    return linux_code(munmap((void *)address, size) == 0, saved);
}

/* Locked pages are refused with EINVAL; since 5.18 there is a call for them too, which leaves the range locked. */
static int linux_purge(uintptr_t address, size_t size)
{
    int saved = errno;
    bool done = madvise((void *)address, size, MADV_DONTNEED) == 0
                || (errno == EINVAL && madvise((void *)address, size, MADV_DONTNEED_LOCKED) == 0);
    return linux_code(done, saved);
}

static int linux_move(uintptr_t from, size_t size, uintptr_t to, size_t new_size)
{
    int saved = errno;
    void *got = mremap((void *)from, size, new_size, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)to);
    return linux_code(got != MAP_FAILED, saved);
}

/* mprotect by its number: that name is the program's, whose calls are noted (protect.c). */
static int linux_advise(uintptr_t address, size_t size, enum hak_os_advice what)
{
    static const int advices[] = {
        [HAK_OS_HUGE] = MADV_HUGEPAGE, [HAK_OS_NO_HUGE] = MADV_NOHUGEPAGE, [HAK_OS_COLLAPSE] = MADV_COLLAPSE,
        [HAK_OS_WIPE_ON_FORK] = MADV_WIPEONFORK, [HAK_OS_DONT_FORK] = MADV_DONTFORK,
        [HAK_OS_GUARD] = MADV_GUARD_INSTALL, [HAK_OS_UNGUARD] = MADV_GUARD_REMOVE,
    };
    int saved = errno, protection = what == HAK_OS_FORBID ? PROT_NONE : PROT_READ | PROT_WRITE;
    bool protect = what == HAK_OS_FORBID || what == HAK_OS_ALLOW;
    long done = protect ? syscall(SYS_mprotect, address, size, protection) : madvise((void *)address, size, advices[what]);
    return linux_code(done == 0, saved);
}

static uintptr_t linux_probe(size_t size)
{
    int saved = errno;
    void *got = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    uintptr_t found = 0;
    if (got != MAP_FAILED && munmap(got, size) == 0)
        found = (uintptr_t)got;
    errno = saved;
    return found;
}

static uint64_t linux_now_ms(void)
{
    struct timespec t;
    int saved = errno;
    if (clock_gettime(CLOCK_MONOTONIC_COARSE, &t) != 0)
        t = (struct timespec){ 0, 0 };
    errno = saved;
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* The kernel hands every program 16 random bytes at start, without a system call of ours; the count tells the numbers
 * made of them apart. Only without them the clock is asked: its code lies apart from all else that a small program
 * touches of the C library. */
static uint64_t linux_random(void)
{
    static _Atomic uint64_t count;
    const void *bytes = (const void *)getauxval(AT_RANDOM);
    uint64_t given[2] = { 0, 0 };
    uint64_t mix = (hak_fetch_add(&count, 1, HAK_RELAXED) + 1) * 0xd1342543de82ef95ull;
    if (bytes != NULL)   /* not aligned */
        memcpy(given, bytes, sizeof given);
    else
        given[0] = linux_now_ms();
    mix ^= given[0] + 0x9e3779b97f4a7c15ull * given[1];
    mix = (mix ^ (mix >> 30)) * 0xbf58476d1ce4e5b9ull;
    mix = (mix ^ (mix >> 27)) * 0x94d049bb133111ebull;
    return mix ^ (mix >> 31);
}

static bool linux_fixed(void)
{
    int saved = errno;
    long persona = syscall(SYS_personality, 0xffffffffu);   /* asks */
    errno = saved;
    return persona > 0 && (persona & ADDR_NO_RANDOMIZE) != 0;
}

static size_t linux_page_size(void)
{
    unsigned long size = getauxval(AT_PAGESZ);
    return size != 0 ? size : 4096;
}

const struct hak_os hak__os_linux = {
    .map = linux_map,
    .extend = linux_extend,
    .unmap = linux_unmap,
    .purge = linux_purge,
    .move = linux_move,
    .advise = linux_advise,
    .huge_setting = hak__os_linux_huge_setting,
    .probe = linux_probe,
    .now_ms = linux_now_ms,
    .random = linux_random,
    .fixed = linux_fixed,
    .page_size = linux_page_size,
    .seen = hak__os_linux_seen,
};
