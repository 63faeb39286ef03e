/* The contract of os.h on Linux: memory, time and random numbers; ranges beside the table; which pages are resident and readable;
 * and the system's limits for this process. arena/ calls it for memory, all layers for the rest. No function here changes errno for
 * its caller. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>

#include "base/bits.h"
#include "base/syscall.h"
#include "os/groups.h"
#include "os/loaded.h"
#include "os/os.h"

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
#if !defined(PR_SET_VMA)
#define PR_SET_VMA 0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif
#if !defined(MAP_FIXED_NOREPLACE)
#define MAP_FIXED_NOREPLACE 0x100000
#endif

static bool linux_failed(long result) { return hak__syscall_code(result) != 0; }

/* Holds for every range in the contract of os.h. */
hak_inline bool is_whole_pages(uintptr_t address, size_t size)
{
    size_t page = hak__os_linux.page_size();
    return address % page == 0 && size % page == 0 && size != 0;
}

/* --- names of mappings ---------------------------------------------------------------------------------------------------------- */

static _Atomic bool mappings_named, resident_filtered; /* relaxed: a reader that finds them set need not see earlier writes */

static int name_mapping(uintptr_t address, size_t size)
{
    return hak__syscall_code(hak__syscall(SYS_prctl, PR_SET_VMA, PR_SET_VMA_ANON_NAME, address, size, "hakmem"));
}

void hak__os_names_begin(uintptr_t start, uintptr_t end)
{
    hak_assert(start <= end, "a range");
    if (!hak__os_is_filtered() && name_mapping(start, end - start) != EINVAL) /* ENOMEM: there are gaps in it */
        hak_store(&mappings_named, true, HAK_RELAXED);
}

/* A filter may refuse the flag, and before 4.17 the kernel does not know it: then the address is only a hint. */
static int linux_map(uintptr_t address, size_t size)
{
    static const int kinds[] = { MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, MAP_PRIVATE | MAP_ANONYMOUS };
    hak_assert(address != 0, "the caller chooses the address");
    hak_assert(is_whole_pages(address, size), "a range is whole pages");
    long got = hak__syscall(SYS_mmap, address, size, PROT_READ | PROT_WRITE, kinds[0], -1, 0);
    int code = hak__syscall_code(got);
    if (code != 0 && code != EEXIST && code != ENOMEM) {
        got = hak__syscall(SYS_mmap, address, size, PROT_READ | PROT_WRITE, kinds[1], -1, 0);
        code = hak__syscall_code(got);
    }
    if (code == 0 && (uintptr_t)got != address) {
        hak__syscall(SYS_munmap, got, size);
        code = EEXIST;
    }
    if (code == 0 && hak_load(&mappings_named, HAK_RELAXED) && !hak__os_is_filtered())
        name_mapping(address, size);
    return code;
}

static int linux_unmap(uintptr_t address, size_t size) { return hak__syscall_code(hak__syscall(SYS_munmap, address, size)); }

/* Emulators and filters may accept advice that discards and do nothing (NOT_DONE), some emulators guards alone. Tested at the first
 * purge and the first guard, and once more after a filter has come (hak__os_filter_comes). A refusal counts as done, since the
 * caller sees it. */
static bool advice_is_done(int advice)
{
    enum { UNKNOWN, DONE, NOT_DONE };
    static _Atomic uint8_t known[2][2];
    bool guards = advice == MADV_GUARD_INSTALL;
    _Atomic uint8_t *state = &known[guards][hak__os_is_filtered()];
    if (hak_likely(hak_load(state, HAK_RELAXED) != UNKNOWN))
        return hak_load(state, HAK_RELAXED) == DONE;
    size_t size = hak__os_linux.page_size();
    volatile char *page = (volatile char *)hak__os_borrow(size);
    if (page == NULL)
        return true;
    *page = 1;
    bool accepted = hak__syscall(SYS_madvise, page, size, advice) == 0;
    if (guards && accepted)
        hak__syscall(SYS_madvise, page, size, MADV_GUARD_REMOVE);
    bool done = !accepted || *page == 0;
    hak__os_return((uintptr_t)page, size);
    hak_store(state, done ? DONE : NOT_DONE, HAK_RELAXED);
    return done;
}

/* For locked pages this advice fails with EINVAL; since 5.18 another advice works on them too, and leaves the range locked. */
static int linux_purge(uintptr_t address, size_t size)
{
    hak_assert(is_whole_pages(address, size), "a range is whole pages");
    if (!advice_is_done(MADV_DONTNEED))
        return ENOSYS;
    int code = hak__syscall_code(hak__syscall(SYS_madvise, address, size, MADV_DONTNEED));
    return code == EINVAL ? hak__syscall_code(hak__syscall(SYS_madvise, address, size, MADV_DONTNEED_LOCKED)) : code;
}

static int linux_move(uintptr_t from, size_t size, uintptr_t to, size_t new_size)
{
    hak_assert(is_whole_pages(from, size) && is_whole_pages(to, new_size), "a range is whole pages");
    hak_assert(from + size <= to || to + new_size <= from, "a mapping moves to addresses apart from it");
    return hak__syscall_code(hak__syscall(SYS_mremap, from, size, new_size, MREMAP_MAYMOVE | MREMAP_FIXED, to));
}

/* If the call does not exist or a filter forbids it, there is nothing to undo; only a refusal for want of mappings (ENOMEM) may
 * leave something changed. Programs with filters need not know the call for keys: it is made only where the first page cannot be
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

/* The added memory gets the rights of the mapping's end, which may be a guard or a page that the program has protected. */
static int linux_extend(uintptr_t address, size_t size)
{
    size_t page = hak__os_linux.page_size();
    hak_assert(is_whole_pages(address, size), "a range is whole pages");
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
    hak_assert(is_whole_pages(address, size) && what < HAK_OS_ADVICES, "a range is whole pages, and its advice one of the list");
    if (what == HAK_OS_RESTORE)
        return linux_restore(address, size);
    if (what == HAK_OS_FORBID || what == HAK_OS_ALLOW) {
        int rights = what == HAK_OS_FORBID ? PROT_NONE : PROT_READ | PROT_WRITE;
        return hak__syscall_code(hak__syscall(SYS_mprotect, address, size, rights));
    }
    if (what == HAK_OS_GUARD && !advice_is_done(MADV_GUARD_INSTALL))
        return EINVAL;
    int code = hak__syscall_code(hak__syscall(SYS_madvise, address, size, advices[what]));
    return what == HAK_OS_GUARD && (code == ENOSYS || code == EPERM) ? EINVAL : code; /* a filter's answers */
}

static uintptr_t linux_probe(size_t size)
{
    long got = hak__syscall(SYS_mmap, 0, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return linux_failed(got) || linux_failed(hak__syscall(SYS_munmap, got, size)) ? 0 : (uintptr_t)got;
}

typedef int linux_clock(clockid_t clock, struct timespec *time);

static int linux_clock_by_call(clockid_t clock, struct timespec *time) { return (int)hak__syscall(SYS_clock_gettime, clock, time); }

/* Uses the kernel's clock function, which needs no system call; a process without one makes the call. */
static struct timespec linux_now(int which)
{
    static _Atomic(linux_clock *) known; /* relaxed: every thread finds the same function */
    struct timespec t;
    linux_clock *clock = hak_load(&known, HAK_RELAXED);
    if (hak_unlikely(clock == NULL)) {
        clock = (linux_clock *)hak__loaded_by_kernel(VDSO_CLOCK);
        if (clock == NULL)
            clock = linux_clock_by_call;
        hak_store(&known, clock, HAK_RELAXED);
    }
    return clock(which, &t) == 0 ? t : (struct timespec){ 0, 0 };
}

static uint64_t linux_now_ms(void)
{
    struct timespec t = linux_now(CLOCK_MONOTONIC_COARSE);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static uint64_t linux_now_ns(void)
{
    struct timespec t = linux_now(CLOCK_MONOTONIC);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* The kernel hands every program 16 random bytes at start, so no system call is needed; a count makes the numbers derived from them
 * differ. Without these bytes the clock is read: its code lies apart from everything else that a small program touches of the C
 * library. */
static uint64_t linux_random(void)
{
    static _Atomic uint64_t count;
    const void *bytes = (const void *)getauxval(AT_RANDOM);
    uint64_t given[2] = { 0, 0 };
    uint64_t mix = (hak_fetch_add(&count, 1, HAK_RELAXED) + 1) * 0xd1342543de82ef95ull;
    if (bytes != NULL) /* not aligned */
        memcpy(given, bytes, sizeof given);
    else
        given[0] = linux_now_ms();
    return hak_mix64(mix ^ (given[0] + 0x9e3779b97f4a7c15ull * given[1]));
}

static bool linux_fixed(void)
{
    long persona = hak__syscall(SYS_personality, 0xffffffffu); /* only queries */
    return persona > 0 && (persona & ADDR_NO_RANDOMIZE) != 0;
}

static size_t linux_page_size(void)
{
    unsigned long size = getauxval(AT_PAGESZ);
    return size != 0 ? size : 4096;
}

/* --- limits of the system -------------------------------------------------------------------------------------------- */

static enum hak_os_huge_setting linux_huge_setting(void)
{
    char text[64]; /* "always [madvise] never" */
    hak__os_read_text("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text);
    for (const char *at = text; *at != 0; at++)
        if (*at == '[')
            return at[1] == 'a' ? HAK_OS_HUGE_ALWAYS : at[1] == 'm' ? HAK_OS_HUGE_MADVISE : HAK_OS_HUGE_NEVER;
    return HAK_OS_HUGE_UNKNOWN;
}

static uint32_t linux_processors(void)
{
    uint64_t mask[128] = { 0 }; /* 8192 processors */
    long bytes = hak__syscall(SYS_sched_getaffinity, 0, sizeof mask, mask);
    uint32_t count = 0;
    for (long i = 0; i < bytes / 8; i++)
        count += (uint32_t)__builtin_popcountll(mask[i]);
    return count;
}

static uint64_t resource(int which)
{
    struct rlimit limit;
    bool limited = hak__syscall(SYS_prlimit64, 0, which, NULL, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    return limited ? limit.rlim_cur : HAK_OS_UNLIMITED;
}

static void linux_room(struct hak_os_seen *out)
{
    out->address_space = resource(RLIMIT_AS);
    out->data = resource(RLIMIT_DATA);
}

static void linux_seen(struct hak_os_seen *out)
{
    struct hak_os_group group;
    char text[32];
    *out = (struct hak_os_seen){ 0 };
    linux_room(out);
    hak__os_group_limits(&group);
    out->memory_max = group.max, out->memory_high = group.high, out->group_unseen = group.unseen;
    hak__os_read_text("/proc/sys/vm/overcommit_memory", text, sizeof text);
    out->strict = text[0] == '2';
    hak__os_read_text("/proc/sys/vm/max_map_count", text, sizeof text);
    out->mappings = hak__os_limit_in(text) == HAK_OS_UNLIMITED ? 0 : hak__os_limit_in(text);
}

const struct hak_os hak__os_linux = {
    .map = linux_map,
    .extend = linux_extend,
    .unmap = linux_unmap,
    .purge = linux_purge,
    .move = linux_move,
    .advise = linux_advise,
    .huge_setting = linux_huge_setting,
    .probe = linux_probe,
    .now_ms = linux_now_ms,
    .now_ns = linux_now_ns,
    .random = linux_random,
    .fixed = linux_fixed,
    .page_size = linux_page_size,
    .room = linux_room,
    .processors = linux_processors,
    .seen = linux_seen,
};

/* --- ranges beside the table ----------------------------------------------------------------------------------------- */

static int protect_pages(uintptr_t address, size_t size)
{
    size_t page = hak__os->page_size();
    uintptr_t start = hak_align_down(address, page), end = hak_align_up(address + size, page);
    return hak__syscall_code(hak__syscall(SYS_mprotect, start, end - start, PROT_READ | PROT_WRITE));
}

static uintptr_t map_anywhere(size_t size, int rights, int flags)
{
    long at = hak__syscall(SYS_mmap, 0, size, rights, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    return hak__syscall_code(at) != 0 ? 0 : (uintptr_t)at;
}

uintptr_t hak__os_reserve(size_t size)
{
    uintptr_t at = map_anywhere(size, PROT_NONE, MAP_NORESERVE);
    if (at != 0)
        hak__syscall(SYS_madvise, at, size, MADV_DONTDUMP);
    return at;
}

void hak__os_dump(uintptr_t address, size_t size) { hak__syscall(SYS_madvise, address, size, MADV_DODUMP); }

uintptr_t hak__os_borrow(size_t size) { return map_anywhere(size, PROT_READ | PROT_WRITE, 0); }

void hak__os_return(uintptr_t address, size_t size)
{
    hak_assert(address != 0, "the range was borrowed");
    hak__syscall(SYS_munmap, address, size);
}

int hak__os_commit(uintptr_t address, size_t size) { return protect_pages(address, size); }

void hak__os_discard(uintptr_t address, size_t size)
{
    hak_assert(is_whole_pages(address, size), "a range is whole pages");
    hak__syscall(SYS_madvise, address, size, MADV_DONTNEED);
}

int hak__os_unprotect(void *data, size_t size) { return protect_pages((uintptr_t)data, size); }

/* --- resident and readable pages ------------------------------------------------------------------------------------- */

bool hak__os_is_filtered(void) { return hak_load(&resident_filtered, HAK_RELAXED); }
bool hak__os_filter_comes(bool comes) { return hak_exchange(&resident_filtered, comes, HAK_RELAXED); }

size_t hak__os_peak(void)
{
    struct rusage used = { 0 };
    if (hak_load(&resident_filtered, HAK_RELAXED) || hak__syscall(SYS_getrusage, RUSAGE_THREAD, &used) != 0)
        return 0;
    return (size_t)used.ru_maxrss << 10; /* the process's, though no other thread is asked */
}

int hak__os_resident(uintptr_t address, size_t size, unsigned char *pages)
{
    if (hak_load(&resident_filtered, HAK_RELAXED))
        return EPERM;
    hak_assert(address % hak__os_linux.page_size() == 0, "the range begins at a page");
    int code = hak__syscall_code(hak__syscall(SYS_mincore, address, size, pages));
    size_t count = size / hak__os_linux.page_size();
    hak_fetch_add(&hak__os_calls[HAK_OS_LOOK], 1, HAK_RELAXED);
    for (size_t i = 0; i < count && code == 0; i++)
        pages[i] &= 1;
    return code;
}

/* The call reads its set of signals before it rejects the operation (Abseil's idea). A NULL set is not read, so NULL is tested
 * separately. */
int hak__os_readable(uintptr_t address)
{
    enum { NO_SUCH_CHANGE = -1 };
    if (hak_load(&resident_filtered, HAK_RELAXED))
        return EPERM;
    if (address == 0)
        return EFAULT;
    long result = hak__syscall(SYS_rt_sigprocmask, NO_SUCH_CHANGE, address, 0, sizeof(uint64_t));
    return hak__syscall_code(result) == EFAULT ? EFAULT : 0;
}

/* The start of a mapping, from a line like "55d0-55e0 r--p ..."; false for any other line. */
static bool mapping_start(const char *line, uintptr_t *start)
{
    uintptr_t n = 0;
    for (; (*line >= '0' && *line <= '9') || (*line >= 'a' && *line <= 'f'); line++)
        n = n * 16 + (uintptr_t)(*line <= '9' ? *line - '0' : *line - 'a' + 10);
    *start = *line == '-' ? n : *start;
    return *line == '-';
}

/* The bytes given by the rest of a line "Rss: 123 kB", behind the name. */
static size_t read_kilobytes(const char *line)
{
    size_t n = 0;
    for (; *line == ' '; line++)
        continue;
    for (; *line >= '0' && *line <= '9'; line++)
        n = n * 10 + (size_t)(*line - '0');
    return n << 10;
}

bool hak__os_mappings(void (*each)(void *argument, uintptr_t start, size_t resident, size_t huge), void *argument)
{
    static const char rss[] = "Rss:", huge[] = "AnonHugePages:";
    char chunk[1024], line[64];
    size_t used = 0;
    uintptr_t start = 0;
    long got, file = hak__syscall(SYS_openat, AT_FDCWD, "/proc/self/smaps", O_RDONLY | O_CLOEXEC);
    bool any = false;
    while (file >= 0 && ((got = hak__syscall(SYS_read, file, chunk, sizeof chunk)) > 0 || got == -EINTR)) {
        for (const char *at = chunk; got > 0 && at < chunk + got; at++) {
            if (*at != '\n') { /* a long line has a file's name; only its beginning counts */
                if (used < sizeof line - 1)
                    line[used++] = *at;
                continue;
            }
            line[used] = 0;
            used = 0;
            if (!mapping_start(line, &start) && hak_begins(line, rss)) {
                each(argument, start, read_kilobytes(line + sizeof rss - 1), 0);
                any = true;
            } else if (hak_begins(line, huge)) {
                each(argument, start, 0, read_kilobytes(line + sizeof huge - 1));
            }
        }
    }
    if (file >= 0)
        hak__syscall(SYS_close, file);
    return any;
}

/* --- calls through the table, which count them by kind ------------------------------------------------------------------------ */

#if HAK_TESTING
const struct hak_os *hak__os = &hak__os_linux;
#endif

/* On a cache line apart from words that fast paths only read. */
hak_line_aligned _Atomic uint64_t hak__os_calls[HAK_OS_CALLS];
_Atomic uint64_t hak__os_failures;

static int os_counted(enum hak_os_call kind, int code)
{
    hak_assert(code >= 0, "results are errno codes");
    hak_fetch_add(&hak__os_calls[kind], 1, HAK_RELAXED);
    if (code != 0)
        hak_fetch_add(&hak__os_failures, 1, HAK_RELAXED);
    return code;
}

int hak__os_map(uintptr_t address, size_t size) { return os_counted(HAK_OS_MAP, hak__os->map(address, size)); }
int hak__os_extend(uintptr_t address, size_t size) { return os_counted(HAK_OS_MAP, hak__os->extend(address, size)); }
int hak__os_unmap(uintptr_t address, size_t size) { return os_counted(HAK_OS_UNMAP, hak__os->unmap(address, size)); }
int hak__os_purge(uintptr_t address, size_t size) { return os_counted(HAK_OS_PURGE, hak__os->purge(address, size)); }

int hak__os_move(uintptr_t from, size_t size, uintptr_t to, size_t new_size)
{
    return os_counted(HAK_OS_MOVE, hak__os->move(from, size, to, new_size));
}

int hak__os_advise(uintptr_t address, size_t size, enum hak_os_advice what)
{
    return os_counted(HAK_OS_PURGE, hak__os->advise(address, size, what));
}

uintptr_t hak__os_probe(size_t size)
{
    hak_assert(size != 0, "addresses for something");
    uintptr_t found = hak__os->probe(size);
    os_counted(HAK_OS_PROBE, found == 0);
    return found;
}
