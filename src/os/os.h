/* The operating system as a contract. Only arena/ calls the memory functions.
 *
 * Every memory function takes page-aligned ranges, returns 0 or an errno code (never sets errno for the caller to
 * keep), and on failure has changed nothing. Tests replace the whole table by a fake that counts, fails or
 * simulates; release builds have it read-only.
 *
 *   map(address, size)        fresh zeroed read-write memory exactly there; EEXIST if anything is mapped in the
 *                             range (nothing is replaced), ENOMEM if the system refuses
 *   extend(address, size)     as map, by making a mapping of ours longer that ends at the address: works even in a process that
 *                             has as many mappings as it may; ENOMEM also if anything is mapped in the range
 *   unmap(address, size)      the range is no longer mapped
 *   purge(address, size)      the range stays mapped, its pages go back at once, it reads as zeros; EINVAL for locked pages where
 *                             the kernel has no call for them (before 5.18); ENOSYS where such calls do nothing
 *   move(from, size, to, new_size)   a mapping moves and grows without copying; [to, to + new_size) must be mapped by
 *                             us and is replaced; afterwards [from, from + size) is unmapped
 *   advise(address, size, what)      huge pages for the range: wanted, unwanted, or made now from present pages (the
 *                             range is then a SuperSlab): hints, and only COLLAPSE's result is worth knowing.
 *                             WIPE_ON_FORK: the range is zero in forked children, DONT_FORK: it is not mapped there; a
 *                             promise when it succeeds. GUARD:
 *                             any access to the range faults, and its pages are gone, until UNGUARD or unmap; no mapping
 *                             is split. EINVAL if the kernel lacks guards (before 6.13) or a filter forbids them. FORBID, ALLOW: the same
 *                             by protection, which keeps the pages and splits mappings.
 *                             RESTORE: undoes all rights, keys, guards and advice for forks that the program has
 *                             given it; the content stays. ENOMEM if some may remain
 *   fixed()                   the process was started without random addresses
 *   probe(size)               an address at which `size` bytes were unmapped a moment ago, or 0 */
#pragma once

#include <pthread.h>

#include "base/assert.h"
#include "base/atomic.h"

enum hak_os_call {
    HAK_OS_MAP,
    HAK_OS_UNMAP,
    HAK_OS_PURGE,
    HAK_OS_MOVE,
    HAK_OS_PROBE,
    HAK_OS_LOOK,
    HAK_OS_CALLS
}; /* advice counts with purges */
enum hak_os_advice {
    HAK_OS_HUGE,
    HAK_OS_NO_HUGE,
    HAK_OS_COLLAPSE,
    HAK_OS_WIPE_ON_FORK,
    HAK_OS_DONT_FORK,
    HAK_OS_GUARD,
    HAK_OS_UNGUARD,
    HAK_OS_FORBID,
    HAK_OS_ALLOW,
    HAK_OS_RESTORE,
    HAK_OS_ADVICES
};

/* The system's setting for huge pages by fault; UNKNOWN also if it has none. */
enum hak_os_huge_setting { HAK_OS_HUGE_UNKNOWN, HAK_OS_HUGE_NEVER, HAK_OS_HUGE_MADVISE, HAK_OS_HUGE_ALWAYS };

#define HAK_OS_UNLIMITED UINT64_MAX

/* The system's limits for the process; HAK_OS_UNLIMITED if there is none or it is not known. */
struct hak_os_seen {
    uint64_t memory_max, memory_high; /* of its control group and those above it */
    uint64_t address_space; /* RLIMIT_AS */
    uint64_t data; /* RLIMIT_DATA */
    uint64_t mappings; /* the most that it may have (vm.max_map_count); 0: unknown */
    bool group_unseen; /* its control group may have a limit that is asked for later (os/groups.h) */
    bool strict; /* the system promises no more memory than it has (overcommit_memory=2) */
};

struct hak_os {
    int (*map)(uintptr_t address, size_t size);
    int (*extend)(uintptr_t address, size_t size);
    int (*unmap)(uintptr_t address, size_t size);
    int (*purge)(uintptr_t address, size_t size);
    int (*move)(uintptr_t from, size_t size, uintptr_t to, size_t new_size);
    int (*advise)(uintptr_t address, size_t size, enum hak_os_advice what);
    enum hak_os_huge_setting (*huge_setting)(void); /* reads a file */
    uintptr_t (*probe)(size_t size);
    uint64_t (*now_ms)(void); /* monotonic, coarse (a few ms) */
    uint64_t (*now_ns)(void); /* the same clock, exact */
    uint64_t (*random)(void); /* unpredictable if the system can provide that, else merely varied */
    bool (*fixed)(void); /* whether addresses should be the same in each run (ADDR_NO_RANDOMIZE) */
    size_t (*page_size)(void);
    void (*room)(struct hak_os_seen *out); /* address_space and data; leaves the rest */
    uint32_t (*processors)(void); /* on which it may run; 0: unknown. Takes a KiB of stack */
    void (*seen)(struct hak_os_seen *out); /* reads files: call it rarely, and without locks */
};

extern const struct hak_os hak__os_linux;

#if HAK_TESTING
extern const struct hak_os *hak__os; /* tests point it at a fake */
#else
#define hak__os (&hak__os_linux)
#endif

/* Calls made so far and failures among them, by kind; counted by the arena's wrappers of the table. */
extern _Atomic uint64_t hak__os_calls[HAK_OS_CALLS];
extern _Atomic uint64_t hak__os_failures;

int hak__os_map(uintptr_t address, size_t size);
int hak__os_extend(uintptr_t address, size_t size);
int hak__os_unmap(uintptr_t address, size_t size);
int hak__os_purge(uintptr_t address, size_t size);
int hak__os_move(uintptr_t from, size_t size, uintptr_t to, size_t new_size);
int hak__os_advise(uintptr_t address, size_t size, enum hak_os_advice what);
uintptr_t hak__os_probe(size_t size);

/* A thread of the library, and waiting (thread.c). Real in tests as well, so not part of the table.
 *
 * hak__os_thread_init: once, when the process has just started: notes the scheduling that the thread is to have, and
 *   the place of thread-local words.
 * hak__os_thread_start: may be called anywhere with all signals blocked, as they then stay in the thread; takes no lock and
 *   allocates nothing. One thread at a time. *alive is not 0 from before it runs until it has left its memory, and 0 if
 *   the system refuses it (false). The thread has no heap, and may use only what thread.c lists.
 * hak__os_thread_settle: the thread's first call; names it "hakmem". False if it cannot have the scheduling that it should.
 * hak__os_thread_wait: returns when *alive is 0.
 * hak__os_sleep: returns at once unless *word is `value`, else when it is woken, interrupted, or `ms` have passed;
 *   HAK_OS_UNLIMITED: no limit. */
hak_at_start void hak__os_thread_init(const void *thread_local_word);
hak_cold bool hak__os_thread_start(void (*body)(void), _Atomic uint32_t *alive);
hak_cold bool hak__os_thread_settle(void);
hak_cold void hak__os_thread_wait(_Atomic uint32_t *alive);
hak_cold bool hak__os_can_change_user(void); /* whether the process is root, or has two different users */
hak_cold uint64_t hak__os_block_signals(void);
hak_cold void hak__os_restore_signals(uint64_t before);
hak_cold void hak__os_sleep(_Atomic uint32_t *word, uint32_t value, uint64_t ms);
hak_cold void hak__os_wake(_Atomic uint32_t *word);

/* The C library's destructors of threads (keys.c). hak__os_keys: whether it has them: before glibc 2.34, once libpthread is loaded.
 * Its call may take the loader's lock, as long as the answer was never yes. The others are pthread's, and only after a yes. */
bool hak__os_keys(void);
int hak__os_key_create(pthread_key_t *key, void (*ends)(void *));
int hak__os_key_set(pthread_key_t key, const void *value);

/* PTHREAD_CANCEL_DISABLE or the calling thread's former state; returns that. No call here is a cancellation point, so callbacks of the
 * program's run without cancellation. */
hak_cold int hak__os_cancel_state(int state);

/* The next definition of a name behind this library's, or NULL. For interpose/: libhakmem.a has no such function. */
hak_cold void *hak__os_next(const char *name);

/* In a program with a sanitizer whose malloc this library, preloaded, would replace: the runtime's functions, else NULL. The library then
 * never starts, and passes requests on. Without its malloc a sanitizer finds little, and two of them end a process that has memory where
 * the window lies. */
struct hak_os_malloc {
    void *(*malloc)(size_t n);
    void *(*memalign)(size_t align, size_t n);
    void *(*realloc)(void *p, size_t n);
    void (*free)(void *p);
    size_t (*usable)(const void *p);
};
hak_cold const struct hak_os_malloc *hak__os_aside(void);

/* The calling thread's thread pointer; its thread-local variables are at the same distance from it in every thread. */
const char *hak__os_thread_pointer(void);

/* What the kernel knows of memory, for the ledger of the statistics. These functions change nothing, so they are not part of the
 * table. Signal handlers may call all of them.
 *
 * hak__os_resident: pages[i] is 1 if the i-th page of the range is in memory (a page that was only ever read is the
 * kernel's page of zeros: in memory by this call, not in the process's resident size). 0 or an errno code: ENOMEM if
 * a part of the range is not mapped, EPERM after hak__os_filter_comes(true); `pages` is undefined then.
 * hak__os_readable: 0 if the eight bytes there can be read, EFAULT if not, EPERM after hak__os_filter_comes(true).
 * hak__os_names_begin: names the mappings of the range, and those made from now on, for readers of /proc/PID/maps, where the kernel has
 * names. Only for a process that has called prctl(2) already: a filter that was there before the start may end it at the call.
 * hak__os_filter_comes: from now on system calls may be forbidden, so these make none (interpose/libc.c);
 * false: they may again, since the filter was not installed. Returns the previous state.
 * hak__os_peak: the most bytes that the process has ever had in memory, also before an exec, so that of a larger program that
 * executed this one; 0 after hak__os_filter_comes(true), or if the kernel does not tell.
 * hak__os_mappings: calls `each` with the start of every mapping of the process and its resident bytes, and once more with
 * its bytes in huge pages; false if the kernel does not tell. */
hak_cold bool hak__os_filter_comes(bool comes);
hak_cold void hak__os_names_begin(uintptr_t start, uintptr_t end);
hak_cold bool hak__os_is_filtered(void);
hak_at_start int hak__os_resident(uintptr_t address, size_t size, unsigned char *pages);
hak_for_region hak_cold int hak__os_readable(uintptr_t address);
size_t hak__os_peak(void);
hak_cold bool hak__os_mappings(void (*each)(void *argument, uintptr_t start, size_t resident, size_t huge), void *argument);

/* Address ranges that the library reserves before they have memory, for data that must not move and grows to an unknown size. Real
 * in tests too, so not part of the table. Any thread may call these functions, also in signal handlers. */

/* Reserves `size` bytes of inaccessible addresses, which cost no memory; 0 if the system refuses. Core dumps leave them out (gcore
 * would write zeros), but for whole pages that the second function names. */
hak_cold uintptr_t hak__os_reserve(size_t size);
hak_cold void hak__os_dump(uintptr_t address, size_t size);

/* Makes a part of a reserved range memory: new pages are zeroed, existing ones keep their contents. 0 or an errno code. */
hak_cold int hak__os_commit(uintptr_t address, size_t size);

/* Returns the pages to the system; they then read as zeros. */
hak_cold void hak__os_discard(uintptr_t address, size_t size);

/* Zeroed memory for a short time, apart from the heap; 0 if the system refuses. */
hak_cold uintptr_t hak__os_borrow(size_t size);
hak_cold void hak__os_return(uintptr_t address, size_t size);

/* Makes data writable that the loader has made read-only. 0 or an errno code. */
hak_cold int hak__os_unprotect(void *data, size_t size);
