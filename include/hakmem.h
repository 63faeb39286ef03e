/* HAKMEM: a general-purpose memory allocator for Linux.
 *
 * A program needs none of this: preloaded or linked, the library takes the place of malloc and its family. The hak_
 * names are the same functions under names that never clash, and what the standard ones do not offer.
 *
 * All sizes are bytes. Every result is a multiple of 16 and stays valid until it is freed by hak_free (or free, when
 * the library has taken malloc's place). Functions that return memory return NULL with errno = ENOMEM when there is
 * none; nothing is lost then. Misuse (a pointer that is not the start of a block, a second free) ends in one line on
 * stderr and abort(), inside of the call; a second free that runs at the same time as the first, on another thread, at
 * the latest when the block is collected. docs/security.md says it exactly. */
#ifndef HAKMEM_H
#define HAKMEM_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- the malloc family ------------------------------------------------------------------------------------------- */

/* n bytes; n = 0 gives a unique pointer. ENOMEM also for n > PTRDIFF_MAX. */
void *hak_malloc(size_t n);

/* count * size bytes, all 0. ENOMEM when the product overflows. */
void *hak_calloc(size_t count, size_t size);

/* The block p with a new size, its first min(old, n) bytes kept; p = NULL allocates; n = 0 frees p and gives NULL.
 * On failure p is untouched. */
void *hak_realloc(void *p, size_t n);

/* hak_realloc(p, count * size); ENOMEM when the product overflows. */
void *hak_reallocarray(void *p, size_t count, size_t size);

/* Ends the block p; p = NULL does nothing. errno is kept. */
void hak_free(void *p);

/* C23: the same, for a caller who knows the size that was asked for, or any from half of the usable size to all of it (and
 * the alignment, a power of two). Another size is misuse. */
void hak_free_sized(void *p, size_t n);
void hak_free_aligned_sized(void *p, size_t align, size_t n);

/* n bytes at a multiple of align, a power of two; EINVAL otherwise. hak_memalign rounds align up to one; EINVAL when
 * there is none. */
void *hak_aligned_alloc(size_t align, size_t n);
void *hak_memalign(size_t align, size_t n);

/* The same with all bytes 0, and a block that gets a new size and lies at a multiple of align afterwards, whatever it was before.
 * Otherwise as hak_calloc and hak_realloc; hak_free_aligned_sized takes the block. */
void *hak_aligned_calloc(size_t align, size_t count, size_t size);
void *hak_aligned_realloc(void *p, size_t align, size_t n);

/* 0, EINVAL (align is not a power of two multiple of sizeof(void *)) or ENOMEM, which errno says as well; *out is kept on
 * failure, and errno otherwise. */
int hak_posix_memalign(void **out, size_t align, size_t n);

/* n bytes at a multiple of the page size; hak_pvalloc also rounds n up to whole pages. */
void *hak_valloc(size_t n);
void *hak_pvalloc(size_t n);

/* --- sizes ------------------------------------------------------------------------------------------------------- */

/* The bytes that may be used at p, at least what was asked for; 0 for NULL. */
size_t hak_usable_size(const void *p);

/* The usable size that a request of n bytes gets, where it is more than 56 KiB and at most 1 MiB the least that it gets;
 * n > PTRDIFF_MAX gives 0. */
size_t hak_good_size(size_t n);

/* --- memory held ------------------------------------------------------------------------------------------------- */

/* Empties the calling thread's cache and returns free memory to the system at once. The bytes returned. */
size_t hak_collect(void);

/* Checks all invariants of the allocator's data, of every heap that is not in a slow path of another thread. 1: all
 * hold. 0: one line on stderr names the first that does not, and the address of what is broken; something has written
 * over the allocator's data, or the allocator is wrong. Takes time in proportion to the heap, a millisecond for some
 * thousand slabs; other threads go on meanwhile. Not for signal handlers. */
int hak_check_heap(void);

/* Prints the statistics on a file descriptor, as HAKMEM_STATS=1 does on stderr at exit. */
void hak_stats_print(int fd);

/* The soft limit's callback (option soft_limit; HAKMEM_SOFT_LIMIT): called when more than the limit is mapped for
 * blocks, by the thread whose request crossed it or by the next one with a slow request, after that request and outside
 * of all locks, so it may allocate and free. Once per crossing: again only after less than 7/8 of the limit was mapped
 * in between; never inside itself. Freed memory counts until it is unmapped, for which hak_collect is good. NULL: no
 * callback. A call that has begun in another thread may still run when this function returns. */
void hak_set_pressure_callback(void (*callback)(size_t mapped, size_t limit, void *argument), void *argument);

/* What the system allows the process at the time of the call; UINT64_MAX where it sets no limit or does not say. The
 * library asks once by itself, when 32 MiB are mapped for blocks, and then derives the defaults of dirty_limit and
 * process_budget from the least of them. */
struct hak_system {
    uint64_t memory_max, memory_high;   /* of its control group (v2) and those above it */
    uint64_t address_space;             /* RLIMIT_AS */
    unsigned cpus;                      /* processors it may run on; 0: unknown */
};
void hak_system_seen(struct hak_system *out);

/* --- the heap profiler --------------------------------------------------------------------------------------------- */

/* Begins to sample allocations, about one in `interval` bytes (0: the option profile_interval says it, 512 KiB; 1: all), or
 * begins anew with another interval. What has been sampled before at the same interval stays. 0 or an errno code: ENOMEM, EACCES
 * (the system does not let the library write what it has to), EBUSY (another thread is starting it). hak_profile_stop ends it:
 * blocks that have been sampled are still followed, so a dump says at any time what is live of them. Costs nothing while it has not
 * begun. */
int hak_profile_start(size_t interval);
void hak_profile_stop(void);

/* Writes all that is known into a file: as JSON if the name ends in ".json" (docs/profiling.md), else as the text that
 * jemalloc's tools read. NULL: PREFIX.PID.SEQ.m.heap, where PREFIX is that of HAKMEM_PROFILE=1:PREFIX, or "hakmem". 0 or an
 * errno code: EPERM in a privileged process (AT_SECURE), EBUSY while another dump is written, EINVAL (no profile has begun),
 * or that of the file, which is left away then. */
int hak_profile_dump(const char *path);
/* --- user heaps ------------------------------------------------------------------------------------------------- */

/* A heap that the program makes, any thread may use, and that ends at once: docs/heaps.md. hak_free and free take its blocks, from
 * any thread; realloc and its kin keep a block where it is, one of malloc's too. Where a heap is asked for, NULL is the process's own
 * malloc, whatever the thread's default is. */
typedef struct hak_own hak_heap_t;

/* A request of `wanted` bytes would bring what the heap has from the system above its limit. Called in the requesting thread,
 * outside of all locks, so it may allocate and free. Not 0: try again (it has freed, or raised the limit); 0: let it fail. No
 * heap's callback is called inside of one: what its thread requests there beyond a limit fails with ENOMEM. */
typedef int hak_heap_pressure(hak_heap_t *heap, size_t used, size_t limit, size_t wanted, void *argument);

enum hak_heap_purge {
    HAK_HEAP_PURGE_LATER,       /* memory that the heap gives back goes to the system as any other does */
    HAK_HEAP_PURGE_AT_ONCE,     /* ... when the heap is destroyed: nothing that was in it stays in memory */
};
#define HAK_HEAP_HARDENED 1u    /* ENOTSUP unless the process is hardened (HAKMEM_HARDEN); all its heaps are then */
#define HAK_HEAP_SHARED 2u      /* several processes use its region, which each may have mapped elsewhere */

struct hak_heap_options {
    size_t size;                /* sizeof(struct hak_heap_options) */
    const char *name;           /* for statistics; the first 47 bytes are kept; NULL: none */
    size_t limit;               /* bytes of slabs (64 KiB each) and of huge blocks; 0: no limit */
    hak_heap_pressure *pressure;
    void *argument;             /* of the pressure callback */
    uint32_t purge;             /* enum hak_heap_purge */
    uint32_t flags;             /* HAK_HEAP_... */
    void *region;               /* where the heap lives, instead of memory of the system's; NULL: none */
    size_t region_size;         /* at least 64 KiB; a shared one begins at a multiple of 4 KiB */
};

/* A heap without blocks; it takes no memory but its handle until the first. NULL with errno: ENOMEM, EINVAL, ENOTSUP. */
hak_heap_t *hak_heap_new(const struct hak_heap_options *options);

/* A heap in a region has all that it is there, the handle too: it takes no memory from the system, and writes nowhere else. What was in
 * the region is lost. A full region is ENOMEM. A shared one cannot have a callback, and no block aligned to more than 4 KiB.
 *
 * hak_heap_attach: the heap that another process has made in a shared region. NULL with errno EINVAL: there is none. A process that
 * has attached a heap, or made it, detaches it before it unmaps the region; other processes, and the blocks, stay as they are. */
hak_heap_t *hak_heap_attach(void *region, size_t size);
void hak_heap_detach(hak_heap_t *heap);

/* Ends the heap and all its blocks, in time that depends on its slabs, not on its blocks. A later free of such a block is reported
 * misuse, until its address is used again. No other thread may be in a call with the heap or a block of it, but for a free that has
 * to do with another heap; misuse if it is a thread's default. NULL does nothing. */
void hak_heap_destroy(hak_heap_t *heap);

/* The same, but the heap goes on with the memory that it has, and may be a thread's default. */
void hak_heap_reset(hak_heap_t *heap);

/* Its blocks become the process's, as if malloc had given them; the heap is empty then. 0 or ENOMEM. As with hak_heap_destroy, no
 * other thread may be in a call with the heap; frees of its blocks may go on. NULL: 0, since they are. */
int hak_heap_merge_into_default(hak_heap_t *heap);

void *hak_heap_malloc(hak_heap_t *heap, size_t n);
void *hak_heap_calloc(hak_heap_t *heap, size_t count, size_t size);
void *hak_heap_aligned_alloc(hak_heap_t *heap, size_t align, size_t n);

/* A block of just this heap, with NULL one of malloc's, else misuse; hak_realloc and hak_free do the same without asking. p = NULL
 * allocates one, or does nothing. */
void *hak_heap_realloc(hak_heap_t *heap, void *p, size_t n);
void hak_heap_free(hak_heap_t *heap, void *p);

/* The heap whose block in use begins at p, any address; NULL: it is malloc's, or none. */
hak_heap_t *hak_heap_of(const void *p);

/* 0: none. NULL: the option limit. */
void hak_heap_set_limit(hak_heap_t *heap, size_t limit);

struct hak_heap_figures {
    const char *name;           /* valid until the heap ends; NULL: malloc's figures */
    uint64_t serial;            /* counts the heaps that the process has made or attached; 0: malloc, or a region beyond the 64th */
    uint64_t used_bytes;        /* slabs, huge blocks, samples: what counts against the limit */
    uint64_t peak_bytes;        /* the most of that; malloc's: the same as used_bytes */
    uint64_t live_blocks, live_bytes;   /* in the program's hands; bytes by usable size, which in hardened mode is less: there by class */
    uint64_t limit;             /* 0: none */
    uint64_t refused;           /* times that it has refused memory; malloc's: 0 */
    uint64_t cached_bytes;      /* ready in threads' bins */
    uint64_t slab_bytes, huge_blocks, huge_bytes;
    uint64_t threads, shares;   /* threads that have bins here now; sets of bins */
};

/* As of no single moment while other threads use the heap. 0 or EINVAL (size is too small). */
int hak_heap_stats(hak_heap_t *heap, struct hak_heap_figures *out, size_t size);

/* Calls for each block with its usable size, until that gives something else than 0, which is the result. No thread may use the heap
 * meanwhile, the visitor included, which may use malloc and other heaps (and must not where this heap is the thread's default). NULL:
 * ENOTSUP, as no thread could know that none uses malloc. */
typedef int hak_heap_visitor(void *block, size_t size, void *argument);
int hak_heap_visit(hak_heap_t *heap, hak_heap_visitor *visit, void *argument);

/* One heap after another, at last the first 64 in regions; NULL before the first and after the last. The heap lives. */
hak_heap_t *hak_heap_next(hak_heap_t *heap);

/* Where the calling thread's malloc and its kin take their blocks from now on; gives what it was. */
hak_heap_t *hak_heap_set_default(hak_heap_t *heap);
hak_heap_t *hak_heap_get_default(void);

/* The same for threads that make their first request from now on. */
hak_heap_t *hak_heap_set_default_of_new_threads(hak_heap_t *heap);

/* --- options ----------------------------------------------------------------------------------------------------- */

/* An option of the kind "every", such as profile_every, is a time or bytes. This is added to its value where that is bytes. */
#define HAK_OPTION_IN_BYTES (1ull << 55)

/* An option by name, e.g. "refill_count"; docs/options.md lists them. hak_option_set parses the value as the
 * environment's: 0, ENOENT (no such option), EINVAL (not a value of it), EPERM (it only takes effect at start). */
int hak_option_set(const char *name, const char *value);
int hak_option_get(const char *name, uint64_t *value);

/* Where the value in force comes from, the strongest source first: "api" (hak_option_set), "variable", "conf"
 * (HAKMEM_CONF), "symbol" (hak_conf), "preset" (HAKMEM_PRESET), "system" (what the system allows the process),
 * "default". NULL: no such option. */
const char *hak_option_origin(const char *name);

struct hak_option_info {
    const char *name, *help;
    const char *kind;            /* "count", "bytes", "time" (in ms), "every" (a time, or bytes with HAK_OPTION_IN_BYTES added),
                                  * "flag", or what docs/options.md has besides */
    const char *takes_effect;    /* "at start", "new threads" or "at once" */
    const char *origin;          /* as hak_option_origin says it */
    const char *word;            /* the value as a word if it has one ("exact", "hot_512"), else NULL */
    uint64_t value, standard;    /* in force; the default */
    uint64_t least, most;        /* the bounds of a value */
};

/* One option after another: *cursor is 0 at first and moves on with each call. 1, or 0 when there are no more. */
int hak_option_next(size_t *cursor, struct hak_option_info *info);

/* A program may define this, with what HAKMEM_CONF would say: const char *hak_conf = "preset:hot_512,limit:2G"; The
 * environment wins over it, except in privileged programs (AT_SECURE), where the environment is not looked at. The
 * library does not define it. Only a definition that the library can see counts: a program that is not linked with the
 * library but has it preloaded is to be linked with -rdynamic. */
extern const char *hak_conf;

/* The version, e.g. "0.1.0". */
const char *hak_version(void);

#ifdef __cplusplus
}
#endif

#endif
