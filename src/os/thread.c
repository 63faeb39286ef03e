/* A thread that only the kernel knows, and waiting: see os.h. Waiting uses bare system calls.
 *
 * The C library's threads cannot be used here. Making one takes locks that the caller's caller may hold (the loader's, those of a
 * wrapper of pthread_create), and calls malloc; and it counts among the program's threads: the last thread to end runs exit(). A
 * thread made by clone(2) alone takes no lock, needs no memory but its region, and is not counted.
 *
 * It has no thread-local memory of the C library's. Its thread pointer points into zeros that reach on both sides as far as they
 * are used here: by this library's thread-local words and errno. To this library, zeros mean "no heap". So the thread may call
 * functions of this library that work without a heap, and functions of the C library that touch nothing thread-local but errno.
 *
 *   region:   guard page | stack | zeros below the thread pointer | thread pointer, zeros above it */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/syscall.h"
#include "os/os.h"

enum { STACK_BYTES = 64 << 10, SIGNAL_BITS = 64, MASK_WORDS = 64, NAP_MS = 10 };

/* The scheduling with which the process was started; threads may change their own. */
static struct thread_schedule {
    int policy, priority, nice;
    long mask_bytes; /* of mask; 0: not known */
    unsigned long mask[MASK_WORDS]; /* the processors on which it may run */
} thread_first;

static void (*thread_body)(void);
static size_t thread_reach; /* distance from the thread pointer to this library's thread-local words */

bool hak__os_can_change_user(void)
{
    uid_t real = 0, effective = 0, saved = 0;
    return hak__syscall(SYS_getresuid, &real, &effective, &saved) != 0 || real == 0 || real != effective || real != saved;
}

/* --- signals -------------------------------------------------------------------------------------------------------- */

uint64_t hak__os_block_signals(void)
{
    static const uint64_t all = ~(uint64_t)0;
    uint64_t before = 0;
    hak__syscall(SYS_rt_sigprocmask, 2 /* SIG_SETMASK of the kernel */, &all, &before, SIGNAL_BITS / 8);
    return before;
}

void hak__os_restore_signals(uint64_t before) { hak__syscall(SYS_rt_sigprocmask, 2, &before, NULL, SIGNAL_BITS / 8); }

/* --- scheduling ----------------------------------------------------------------------------------------------------- */

static void thread_look(struct thread_schedule *out)
{
    int parameter = 0;
    out->policy = (int)hak__syscall(SYS_sched_getscheduler, 0);
    hak__syscall(SYS_sched_getparam, 0, &parameter);
    out->priority = parameter;
    out->nice = (int)hak__syscall(SYS_getpriority, PRIO_PROCESS, 0);
    long bytes = hak__syscall(SYS_sched_getaffinity, 0, sizeof out->mask, out->mask);
    out->mask_bytes = bytes > 0 ? bytes : 0;
}

static bool thread_same_mask(const struct thread_schedule *now)
{
    for (long i = 0; i < thread_first.mask_bytes / (long)sizeof now->mask[0]; i++)
        if (now->mask[i] != thread_first.mask[i])
            return false;
    return now->mask_bytes == thread_first.mask_bytes;
}

/* The kernel's getpriority returns 20 - nice. */
static void thread_reset(const struct thread_schedule *now)
{
    if (now->policy != thread_first.policy || now->priority != thread_first.priority)
        hak__syscall(SYS_sched_setscheduler, 0, thread_first.policy, &thread_first.priority);
    if (now->nice != thread_first.nice)
        hak__syscall(SYS_setpriority, PRIO_PROCESS, 0, 20 - thread_first.nice);
    if (!thread_same_mask(now) && thread_first.mask_bytes != 0)
        hak__syscall(SYS_sched_setaffinity, 0, thread_first.mask_bytes, thread_first.mask);
}

/* The thread inherits its creator's scheduling and returns to that of the process's start. A process that filters its system calls
 * may be killed for the calls that change it; there, the creator must have changed nothing. */
bool hak__os_thread_settle(void)
{
    struct thread_schedule now;
    thread_look(&now);
    bool same = now.policy == thread_first.policy && now.priority == thread_first.priority && now.nice == thread_first.nice
             && thread_same_mask(&now);
    if (!same && hak__syscall(SYS_prctl, PR_GET_SECCOMP, 0, 0, 0, 0) != 0)
        return false;
    if (!same)
        thread_reset(&now);
    hak__syscall(SYS_prctl, PR_SET_NAME, "hakmem", 0, 0, 0);
    return true;
}

/* --- the thread ----------------------------------------------------------------------------------------------------- */

#if (defined(__x86_64__) || defined(HAK_SYSCALL_TRAP)) && !HAK_ASAN && !HAK_TSAN

#if defined(__x86_64__)
/* The architecture requires that the word at the thread pointer is its own address. glibc has another such word. */
static void thread_init_pointer(char *pointer)
{
    ((void **)(void *)pointer)[0] = pointer;
    ((void **)(void *)pointer)[2] = pointer;
}
#else
static void thread_init_pointer(char *pointer) { (void)pointer; }
#endif

/* Other thread-local data of the modules that hold these two words, and the C library's own at the thread pointer, lie within this
 * distance of them. */
#define THREAD_MARGIN ((size_t)16 << 10)

static size_t thread_distance(const void *word)
{
    const char *pointer = hak__os_thread_pointer(), *there = word;
    return there < pointer ? (size_t)(pointer - there) : (size_t)(there - pointer);
}

struct thread_region {
    char *start, *stack_top, *pointer, *end;
    long process; /* in which the region was made or cleared */
};
static struct thread_region thread_region;

/* A forked child has the region as the fork found it, with the thread-local words of a thread in the middle of its work. */
static void thread_clear_region(void)
{
    struct thread_region *region = &thread_region;
    size_t bytes = (size_t)(region->end - region->stack_top);
    hak_assert(region->start != NULL, "there is a region");
    if (hak__syscall(SYS_madvise, region->stack_top, bytes, MADV_DONTNEED) != 0) /* locked memory */
        memset(region->stack_top, 0, bytes);
    thread_init_pointer(region->pointer);
    region->process = hak__syscall(SYS_getpid);
}

/* Made once per process and kept, so that the next thread finds it warm. */
static bool thread_make_region(void)
{
    size_t page = hak__os->page_size(), to_errno = thread_distance(&errno);
    size_t reach = hak_align_up(hak_max(thread_reach, to_errno) + THREAD_MARGIN, page);
    size_t stack = hak_align_up(STACK_BYTES, page), bytes = page + stack + 2 * reach;
    long got = hak__syscall(SYS_mmap, 0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (hak__syscall_code(got) != 0)
        return false;
    if (hak__syscall(SYS_mprotect, got, page, PROT_NONE) != 0) {
        hak__syscall(SYS_munmap, got, bytes);
        return false;
    }
    char *start = (char *)got;
    char *zeros = start + page + stack;
    thread_region = (struct thread_region){ start, zeros, zeros + reach, start + bytes, hak__syscall(SYS_getpid) };
    hak_assert(hak_align_down((uintptr_t)thread_region.pointer, page) == (uintptr_t)thread_region.pointer,
               "the pointer is aligned");
    hak_assert(thread_region.stack_top < thread_region.pointer && thread_region.pointer < thread_region.end,
               "zeros lie on both sides");
    thread_init_pointer(thread_region.pointer);
    return true;
}

static void thread_entry(void)
{
    thread_body();
    for (;;)
        hak__syscall(SYS_exit, 0);
}

static bool thread_create(_Atomic uint32_t *alive)
{
    static const long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS
                            | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
    if (thread_region.start == NULL && !thread_make_region())
        return false;
    if (thread_region.process != hak__syscall(SYS_getpid))
        thread_clear_region();
    return hak__syscall_clone(flags, thread_region.stack_top, alive, thread_region.pointer, thread_entry) > 0;
}

#else

/* Elsewhere, and under sanitizers, which must know every thread, the thread is one of the C library's. It has to answer that
 * library's own signals: in a process with threads, setuid() waits for an answer of each. */
static const uint64_t thread_library_signals = 7ull << 31;

static size_t thread_distance(const void *word)
{
    (void)word;
    return 0;
}

static void *thread_entry(void *argument)
{
    _Atomic uint32_t *alive = argument;
    hak__os_restore_signals(~thread_library_signals);
    thread_body();
    /* release: pairs with the acquire of the thread that waits for its end. */
    hak_store(alive, 0, HAK_RELEASE);
    hak__syscall(SYS_futex, alive, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    return NULL;
}

static bool thread_create(_Atomic uint32_t *alive)
{
    pthread_attr_t attributes;
    pthread_t thread;
    if (pthread_attr_init(&attributes) != 0)
        return false;
    hak_store(alive, 1, HAK_RELAXED);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    bool made = pthread_create(&thread, &attributes, thread_entry, alive) == 0;
    pthread_attr_destroy(&attributes);
    return made;
}

#endif

void hak__os_thread_init(const void *thread_local_word)
{
    thread_reach = thread_distance(thread_local_word);
    thread_look(&thread_first);
}

bool hak__os_thread_start(void (*body)(void), _Atomic uint32_t *alive)
{
    hak_assert(body != NULL && hak_load(alive, HAK_RELAXED) == 0, "one thread at a time");
    int saved = errno;
    thread_body = body;
    bool made = thread_create(alive);
    if (!made)
        hak_store(alive, 0, HAK_RELAXED);
    errno = saved;
    return made;
}

/* The kernel clears the word when the thread has left its memory, and wakes one waiter; others notice by their time limit. */
void hak__os_thread_wait(_Atomic uint32_t *alive)
{
    static const struct timespec time = { 0, NAP_MS * 1000000 };
    uint32_t value;
    /* acquire: a thread that has waited for the end sees everything that the ended thread did. */
    while ((value = hak_load(alive, HAK_ACQUIRE)) != 0)
        hak__syscall(SYS_futex, alive, FUTEX_WAIT, value, &time, NULL, 0);
}

/* --- waiting -------------------------------------------------------------------------------------------------------- */

void hak__os_sleep(_Atomic uint32_t *word, uint32_t value, uint64_t ms)
{
    struct timespec time = { (time_t)(ms / 1000), (long)(ms % 1000) * 1000000 };
    hak__syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, ms == HAK_OS_UNLIMITED ? NULL : &time, NULL, 0);
}

void hak__os_wake(_Atomic uint32_t *word) { hak__syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0); }

/* On x86-64 the compilers' builtin for it came later than elsewhere; there, the pointer is also the first word that it points
 * to. */
#if defined(__x86_64__)
const char *hak__os_thread_pointer(void)
{
    const char *pointer;
    __asm__("movq %%fs:0, %0" : "=r"(pointer));
    return pointer;
}
#else
const char *hak__os_thread_pointer(void) { return __builtin_thread_pointer(); }
#endif
