/* The contract of os.h on Linux. Called by arena/ (memory) and wherever the time or a random number is needed.
 * No function here keeps state or changes errno for its caller. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <time.h>

#include "base/syscall.h"
#include "os/loaded.h"
#include "os/os.h"
#include "os/reserved.h"

#if defined(__aarch64__)
#define VDSO_CLOCK "__kernel_clock_gettime"
#else
#define VDSO_CLOCK "__vdso_clock_gettime"
#endif

#if !defined(MADV_DONTNEED_LOCKED)
#define MADV_DONTNEED_LOCKED 24
#endif
#if !defined(MADV_COLLAPSE)
#define MADV_COLLAPSE 25
#endif
#if !defined(MADV_WIPEONFORK)
#define MADV_WIPEONFORK 18
#endif
#if !defined(MADV_KEEPONFORK)
#define MADV_KEEPONFORK 19
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

static bool linux_failed(long result) { return hak__syscall_code(result) != 0; }

static int linux_map(uintptr_t address, size_t size)
{
    long got = hak__syscall(SYS_mmap, address, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    int code = hak__syscall_code(got);
    if (code == 0 && (uintptr_t)got != address) {
        /* Kernels before 4.17 take the address as a hint only. */
        hak__syscall(SYS_munmap, got, size);
        code = EEXIST;
    }
    return code;
}

static int linux_unmap(uintptr_t address, size_t size) { return hak__syscall_code(hak__syscall(SYS_munmap, address, size)); }

/* Emulators and filters may take advice, say that it has been done, and do nothing. Whether that is so is asked at the first purge, and
 * once more when a filter has come (resident.c): NOT_DONE. A refusal is no lie. */
static bool advice_is_done(void)
{
    enum { UNKNOWN, DONE, NOT_DONE };
    static _Atomic uint8_t known[2];
    _Atomic uint8_t *state = &known[hak__os_is_filtered()];
    if (hak_likely(hak_load(state, HAK_RELAXED) != UNKNOWN))
        return hak_load(state, HAK_RELAXED) == DONE;
    size_t size = hak__os_linux.page_size();
    volatile char *page = (volatile char *)hak__os_borrow(size);
    if (page == NULL)
        return true;
    *page = 1;
    bool done = hak__syscall(SYS_madvise, page, size, MADV_DONTNEED) != 0 || *page == 0;
    hak__os_return((uintptr_t)page, size);
    hak_store(state, done ? DONE : NOT_DONE, HAK_RELAXED);
    return done;
}

/* Locked pages are refused with EINVAL; since 5.18 there is a call for them too, which leaves the range locked. */
static int linux_purge(uintptr_t address, size_t size)
{
    if (!advice_is_done())
        return ENOSYS;
    int code = hak__syscall_code(hak__syscall(SYS_madvise, address, size, MADV_DONTNEED));
    return code == EINVAL ? hak__syscall_code(hak__syscall(SYS_madvise, address, size, MADV_DONTNEED_LOCKED)) : code;
}

static int linux_move(uintptr_t from, size_t size, uintptr_t to, size_t new_size)
{
    return hak__syscall_code(hak__syscall(SYS_mremap, from, size, new_size, MREMAP_MAYMOVE | MREMAP_FIXED, to));
}

/* A call that does not exist, or that a filter forbids, has nothing to undo; only what the kernel refuses for want of mappings
 * (ENOMEM) may leave something changed. Programs with filters need not know the call for keys: it is made where the first page cannot be
 * read otherwise. */
static int linux_restore(uintptr_t address, size_t size)
{
    static const int advices[] = { MADV_GUARD_REMOVE, MADV_DOFORK, MADV_KEEPONFORK };
    int rights = PROT_READ | PROT_WRITE;
    bool done = hak__syscall(SYS_mprotect, address, size, rights) != -ENOMEM;
    for (unsigned i = 0; i < sizeof advices / sizeof *advices && done; i++)
        done = hak__syscall(SYS_madvise, address, size, advices[i]) != -ENOMEM;
    if (done && hak__os_readable(address) == EFAULT)
        done = !linux_failed(hak__syscall(SYS_pkey_mprotect, address, size, rights, 0));
    return done ? 0 : ENOMEM;
}

/* What grows has the rights of its end, which may be a guard or a page that the program has protected. */
static int linux_extend(uintptr_t address, size_t size)
{
    size_t page = hak__os_linux.page_size();
    if (linux_failed(hak__syscall(SYS_mremap, address - page, page, page + size, 0)))
        return ENOMEM;
    if (linux_restore(address, size) == 0)
        return 0;
    hak__syscall(SYS_munmap, address, size);
    return ENOMEM;
}

static int linux_advise(uintptr_t address, size_t size, enum hak_os_advice what)
{
    static const int advices[] = {
        [HAK_OS_HUGE] = MADV_HUGEPAGE, [HAK_OS_NO_HUGE] = MADV_NOHUGEPAGE, [HAK_OS_COLLAPSE] = MADV_COLLAPSE,
        [HAK_OS_WIPE_ON_FORK] = MADV_WIPEONFORK, [HAK_OS_DONT_FORK] = MADV_DONTFORK,
        [HAK_OS_GUARD] = MADV_GUARD_INSTALL, [HAK_OS_UNGUARD] = MADV_GUARD_REMOVE,
    };
    if (what == HAK_OS_RESTORE)
        return linux_restore(address, size);
    if (what == HAK_OS_FORBID || what == HAK_OS_ALLOW) {
        int rights = what == HAK_OS_FORBID ? PROT_NONE : PROT_READ | PROT_WRITE;
        return hak__syscall_code(hak__syscall(SYS_mprotect, address, size, rights));
    }
    if (what == HAK_OS_GUARD && !advice_is_done())
        return EINVAL;
    return hak__syscall_code(hak__syscall(SYS_madvise, address, size, advices[what]));
}

static uintptr_t linux_probe(size_t size)
{
    long got = hak__syscall(SYS_mmap, 0, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return linux_failed(got) || linux_failed(hak__syscall(SYS_munmap, got, size)) ? 0 : (uintptr_t)got;
}

typedef int linux_clock(clockid_t clock, struct timespec *time);

static int linux_clock_by_call(clockid_t clock, struct timespec *time) { return (int)hak__syscall(SYS_clock_gettime, clock, time); }

/* The kernel's own function for the clock, which enters no kernel; where a process has none, the call. */
static uint64_t linux_now_ms(void)
{
    static _Atomic(linux_clock *) known;   /* relaxed: every thread finds the same one */
    struct timespec t;
    linux_clock *clock = hak_load(&known, HAK_RELAXED);
    if (hak_unlikely(clock == NULL)) {
        clock = (linux_clock *)hak__loaded_by_kernel(VDSO_CLOCK);
        if (clock == NULL)
            clock = linux_clock_by_call;
        hak_store(&known, clock, HAK_RELAXED);
    }
    if (clock(CLOCK_MONOTONIC_COARSE, &t) != 0)
        t = (struct timespec){ 0, 0 };
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
    long persona = hak__syscall(SYS_personality, 0xffffffffu);   /* asks */
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
