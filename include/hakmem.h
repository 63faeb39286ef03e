/* HAKMEM: a general-purpose memory allocator for Linux.
 *
 * A program needs none of this: preloaded or linked, the library replaces malloc and its family. The hak_ functions are the
 * same under names that never clash, and others that the standard does not have.
 *
 * All sizes are bytes. Every result is a multiple of 16 and stays valid until hak_free frees it (or free, when the library
 * replaces malloc). Functions that return memory return NULL with errno = ENOMEM when there is none; nothing is lost then.
 * Misuse (a pointer that is not the start of a block, a second free) ends in one line on stderr and abort() inside the call; a
 * second free by another thread at the latest when the block is collected. docs/security.md has the exact promises. With
 * HAKMEM_MISUSE=report the call reports it and does nothing else: functions that return memory return NULL with errno = EINVAL. */
#ifndef HAKMEM_H
#define HAKMEM_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* What compilers and their analysers know of the C library's functions: the result is a new block, as long as which parameter says, aligned,
 * and must be used; which functions free it (gcc from 11 on, clang --analyze). To them blocks of heaps may be left to their heap's end. */
#if defined(__GNUC__)
#define HAK_ATTRIBUTES(list) __attribute__(list)
#else
#define HAK_ATTRIBUTES(list)
#endif
#if defined(__clang__)
#define HAK_TO_BE_FREED HAK_ATTRIBUTES((ownership_returns(malloc)))
#define HAK_FREES(nth) HAK_ATTRIBUTES((ownership_takes(malloc, nth)))
#elif defined(__GNUC__) && __GNUC__ >= 11
#define HAK_TO_BE_FREED __attribute__((malloc(hak_free, 1), malloc(hak_free_sized, 1), malloc(hak_free_aligned_sized, 1), \
                                       malloc(__builtin_free, 1), malloc(__builtin_realloc, 1)))
#define HAK_FREES(nth)
#else
#define HAK_TO_BE_FREED
#define HAK_FREES(nth)
#endif
#define HAK_USED HAK_ATTRIBUTES((warn_unused_result))
#define HAK_RESIZED(...) HAK_ATTRIBUTES((assume_aligned(16), alloc_size(__VA_ARGS__))) HAK_USED
#define HAK_BLOCK(...) HAK_ATTRIBUTES((malloc)) HAK_RESIZED(__VA_ARGS__)
#define HAK_ALIGNED_BLOCK(align, ...) HAK_ATTRIBUTES((alloc_align(align))) HAK_BLOCK(__VA_ARGS__)

#ifdef __cplusplus
extern "C" {
#endif

/* --- the malloc family ------------------------------------------------------------------------------------------- */

/* Frees the block p; p = NULL does nothing. errno is kept. */
void hak_free(void *p) HAK_FREES(1);

/* C23: the same, with the requested size, or any from half of the usable size to all of it (and the alignment, a power of
 * two). Another size is misuse; of blocks in regions it is not checked. */
void hak_free_sized(void *p, size_t n) HAK_FREES(1);
void hak_free_aligned_sized(void *p, size_t align, size_t n) HAK_FREES(1);

/* n bytes; n = 0 gives a unique pointer. ENOMEM also for n > PTRDIFF_MAX. */
void *hak_malloc(size_t n) HAK_BLOCK(1) HAK_TO_BE_FREED;

/* count * size bytes, all 0. ENOMEM when the product overflows. */
void *hak_calloc(size_t count, size_t size) HAK_BLOCK(1, 2) HAK_TO_BE_FREED;

/* The block p with a new size, its first min(old, n) bytes kept; p = NULL allocates; n = 0 frees p and gives NULL.
 * On failure p is untouched. */
void *hak_realloc(void *p, size_t n) HAK_RESIZED(2);

/* hak_realloc(p, count * size); ENOMEM when the product overflows. */
void *hak_reallocarray(void *p, size_t count, size_t size) HAK_RESIZED(2, 3);

/* n bytes at a multiple of align, a power of two; EINVAL otherwise. hak_memalign rounds align up to a power of two; EINVAL
 * when there is none. */
void *hak_aligned_alloc(size_t align, size_t n) HAK_ALIGNED_BLOCK(1, 2) HAK_TO_BE_FREED;
void *hak_memalign(size_t align, size_t n) HAK_BLOCK(2) HAK_TO_BE_FREED;

/* hak_calloc and hak_realloc with an alignment: the result of hak_aligned_realloc lies at a multiple of align even if p did not.
 * hak_free_aligned_sized takes the blocks. */
void *hak_aligned_calloc(size_t align, size_t count, size_t size) HAK_ALIGNED_BLOCK(1, 2, 3) HAK_TO_BE_FREED;
void *hak_aligned_realloc(void *p, size_t align, size_t n) HAK_ATTRIBUTES((alloc_align(2))) HAK_RESIZED(3);

/* 0, EINVAL (align is not a power of two and multiple of sizeof(void *)) or ENOMEM, in errno too. *out is unchanged on
 * failure, errno in all other cases. */
int hak_posix_memalign(void **out, size_t align, size_t n) HAK_USED;

/* n bytes at a multiple of the page size; hak_pvalloc also rounds n up to whole pages. */
void *hak_valloc(size_t n) HAK_BLOCK(1) HAK_TO_BE_FREED;
void *hak_pvalloc(size_t n) HAK_BLOCK(1) HAK_TO_BE_FREED;

/* --- sizes ------------------------------------------------------------------------------------------------------- */

/* The bytes that may be used at p, at least the requested size; 0 for NULL. */
size_t hak_usable_size(const void *p);

/* The usable size that a request of n bytes gets; above 56 KiB and up to 1 MiB, in hardened mode, and where HAKMEM_SAMPLE_GUARDS puts
 * some blocks before guard pages, the least that it gets. n > PTRDIFF_MAX gives 0. */
size_t hak_good_size(size_t n);

/* --- memory held ------------------------------------------------------------------------------------------------- */

/* Empties the calling thread's cache and returns free memory to the system at once. Returns the number of bytes returned. */
size_t hak_collect(void);

/* For a program that moves its own objects so that memory can go back: whether the block at p, of up to 56 KiB, is worth moving. It is if
 * less than `percent` of its span (a run of memory with blocks of one size) is in use, and more of another one that has room. Then the
 * calling thread's next block of the size comes from there: make the copy and free p at once, or ask about many, make all copies, and
 * then free. Moving ends: a pass over all blocks, repeated, moves fewer and fewer. 0 for any other address, such as NULL or a freed
 * block; in a thread that has not allocated; for blocks of hardened processes, of another thread's part of a user heap, and malloc's of
 * before a fork, or of a thread that has ended. The second stores 1 or 0 for each of `count` blocks, and returns how many are worth moving. */
int hak_is_sparse(const void *p, unsigned percent);
size_t hak_are_sparse(const void *const *blocks, size_t count, unsigned percent, unsigned char *sparse);

/* Checks all invariants of the allocator's data, in every heap that is not in a slow path of another thread. 1: all hold.
 * 0: one line on stderr names the first broken one and its address; the program has overwritten the allocator's data, or the
 * allocator has a defect. Takes about a millisecond per thousand slabs, while other threads run. Not for signal handlers. */
int hak_check_heap(void);

/* Prints the statistics to a file descriptor, as HAKMEM_STATS=1 does to stderr at exit. */
void hak_stats_print(int fd);

/* Called when more than the option soft_limit is mapped for blocks: `mapped` and `limit` are the two. Also called when the process
 * nears another limit, its control group's, RLIMIT_AS or HAKMEM_LIMIT, and giving memory back did not help (from 90 % of it): then they
 * are what counts against that limit, and the limit. The thread whose request crossed it calls, or the next one with a slow request,
 * after that request and outside of all locks, so the callback may allocate and free. Once per crossing: again only below 7/8 of the
 * soft limit, or 80 % of the other, in between; never inside itself. It has to return: after a jump or an exception out of it, it is
 * called no more. Freed memory counts until it is unmapped, as hak_collect does. A call in another thread may still run when this
 * function returns. NULL: no callback. */
void hak_set_pressure_callback(void (*callback)(size_t mapped, size_t limit, void *argument), void *argument);

/* With HAKMEM_MISUSE=report misuse does not end the program, and a callback gets the reports instead of stderr or the file. `report` has
 * several lines, as they would be printed; `block` is the pointer that `function` was called with; `kind` is one of those below. The
 * callback runs in the misusing thread, perhaps inside the allocator: like a signal handler it must not allocate, free, or wait for a
 * thread that does. It is called once per place in the program. NULL: none. */
enum hak_misuse_kinds { HAK_MISUSE_OF_POINTER, HAK_MISUSE_OF_FREED, HAK_MISUSE_OF_SIZE, HAK_MISUSE_OF_MEMORY };
typedef void hak_misuse_function(const char *report, int kind, const char *function, const void *block, void *argument);
void hak_set_misuse_callback(hak_misuse_function *callback, void *argument);

/* The system's limits for the process at the time of the call; UINT64_MAX: no limit, or unknown. The library itself reads them once
 * the process has grown (docs/options.md), and derives the defaults of dirty_limit and process_budget from the least. It follows those of a control group. */
struct hak_system {
    uint64_t memory_max, memory_high;   /* of its control group (v2) and those above it */
    uint64_t address_space;             /* RLIMIT_AS */
    unsigned cpus;                      /* processors it may run on; 0: unknown */
};
void hak_system_seen(struct hak_system *out);

/* --- the heap profiler --------------------------------------------------------------------------------------------- */

/* Starts sampling allocations, about one in `interval` bytes (0: the option profile_interval, 512 KiB; 1: all), or restarts with
 * another interval. Earlier samples at the same interval stay. 0 or an errno code: ENOMEM, EACCES (the system does not let the
 * library write its tables), EBUSY (another thread is starting it). After hak_profile_stop the sampled blocks are still followed, so
 * a dump shows which of them are live. Costs nothing until it is started. */
int hak_profile_start(size_t interval);
void hak_profile_stop(void);

/* Writes the profile to a file: as JSON if the name ends in ".json" (docs/profiling.md), else as the text that jemalloc's tools
 * read. NULL: PREFIX.PID.SEQ.m.heap, where PREFIX is that of HAKMEM_PROFILE=1:PREFIX, or "hakmem". 0 or an errno code: EPERM in a
 * privileged process (AT_SECURE), EBUSY while another dump is written, EINVAL (no profile was started), or the file's error; no
 * file is left then. */
int hak_profile_dump(const char *path);

/* What the calling thread works for, a tenant, a task, a query: its samples carry its labels from then on. hak_label_set sets one,
 * or removes it (value NULL), and returns all former ones, by which hak_label_switch ends a scope: it sets all labels at once, also
 * those of another thread or task (NULL: none), and returns the former ones. What these functions return stays valid for ever. A
 * new thread has no labels. Keys count up to 63 bytes, values up to 255; there are 16 keys, 4,096 values of each and about 65,000
 * combinations; beyond that a value is "(other)". The key "heap" is the library's: the name of the user heap. Costs nothing but
 * these calls themselves. Not for signal handlers. */
typedef struct hak_labels hak_labels_t;
const hak_labels_t *hak_label_set(const char *key, const char *value);
const hak_labels_t *hak_label_switch(const hak_labels_t *labels);
const hak_labels_t *hak_label_get(void);

/* --- user heaps ------------------------------------------------------------------------------------------------- */

/* A heap that the program makes, that any thread may use, and that can end with all its blocks at once: docs/heaps.md. hak_free and
 * free take its blocks, from any thread; realloc and the like keep a block in its heap, or with malloc. As a heap argument NULL means
 * the process's malloc, whatever the thread's default is. */
typedef struct hak_uheap hak_heap_t;

/* Called when a request of `wanted` bytes, to this heap or one below, would take the heap above its limit, or finds no room in its region;
 * `limit` is what the region has for blocks if the heap's own is not less. In the requesting thread, outside all locks, so it may allocate
 * and free. Not 0: try again (it has freed memory, or raised the limit), 16 times a request at most; 0: let the
 * request fail. Callbacks do not nest: requests of the callback beyond a limit fail with ENOMEM. It has to return: a thread that jumps
 * out of it gets no further call. Threads are not cancelled in the library's callbacks. */
typedef int hak_heap_pressure(hak_heap_t *heap, size_t used, size_t limit, size_t wanted, void *argument);

/* Such a callback, by which the limit holds only for blocks of more than a number of bytes, its argument (as a pointer): for smaller ones it
 * raises the limit by a slab. For interpreters that cannot report an error without a small block. In a full region, where no limit would
 * help, it changes none and lets the request fail. */
int hak_heap_limit_large(hak_heap_t *heap, size_t used, size_t limit, size_t wanted, void *most);

enum hak_heap_purge {
    HAK_HEAP_PURGE_LATER,       /* the heap's freed memory goes back to the system like any other */
    HAK_HEAP_PURGE_AT_ONCE,     /* it goes back when the heap is destroyed: none of its contents stay in memory */
};
#define HAK_HEAP_HARDENED 1u    /* ENOTSUP unless the process is hardened (HAKMEM_HARDEN), where all heaps are */
#define HAK_HEAP_SHARED 2u      /* several processes use its region, each at its own address */
#define HAK_HEAP_BUMP 4u        /* hak_heap_malloc cuts blocks of up to 4 KiB off chunks: they end only with the heap or by a reset */

struct hak_heap_options {
    size_t size;                /* sizeof(struct hak_heap_options) */
    const char *name;           /* for statistics, in UTF-8; at most 47 bytes are kept; NULL: none */
    size_t limit;               /* bytes that blocks have ever reached in slabs, and of huge blocks, with heaps below; 0: no limit */
    hak_heap_pressure *pressure;
    void *argument;             /* of the pressure callback */
    uint32_t purge;             /* enum hak_heap_purge */
    uint32_t flags;             /* HAK_HEAP_... */
    void *region;               /* where the heap lives, instead of memory from the system; NULL: none (hakmem_region.h) */
    size_t region_size;         /* at least 64 KiB; a shared one begins at a multiple of 4 KiB */
    hak_heap_t *parent;         /* the heap that this one is part of; NULL: none, as for a heap in a region */
};

/* Makes an empty heap; until its first block it takes only its handle. NULL with errno: ENOMEM, EINVAL, ENOTSUP.
 *
 * A heap with a parent is part of it: what it takes counts against the parent's limit too, it is in the parent's figures, and it ends when
 * the parent is reset or destroyed, or before; its handle then ends too. A heap keeps its parent for life, so there are no cycles. EINVAL:
 * the parent is one in a region, or has 63 heaps above it. A parent that has been destroyed is misuse. */
hak_heap_t *hak_heap_new(const struct hak_heap_options *options) HAK_USED;

/* Ends the heap and all its blocks, in time proportional to its slabs, not its blocks, after the heaps below it. A later free of such a
 * block is misuse and reported until the address is used again. No other thread may be in a call with one of these heaps or blocks; frees of
 * other heaps' blocks may go on. Misuse if one of the heaps is a thread's default; then none ends. NULL does nothing. */
void hak_heap_destroy(hak_heap_t *heap);

/* The same, but the heap itself stays, keeps its memory, and may be a thread's default. The heaps below it end. */
void hak_heap_reset(hak_heap_t *heap);

/* Hands the heap's blocks over to malloc, without those of heaps below; it is empty afterwards, and keeps its cleanups. 0, ENOMEM, or EBUSY:
 * it is another thread's default, or in a forked child, another thread was changing it at the fork. As with hak_heap_destroy, no other thread may be in a call with the heap; frees of its blocks may go on.
 * NULL: 0, nothing to do. */
int hak_heap_merge_into_default(hak_heap_t *heap);

/* Like the functions of the same names without `heap`; ENOMEM also when the heap's limit, or one above, does not allow the bytes, or
 * 131,069 heaps have blocks already (docs/heaps.md). */
void *hak_heap_malloc(hak_heap_t *heap, size_t n) HAK_BLOCK(2);
void *hak_heap_calloc(hak_heap_t *heap, size_t count, size_t size) HAK_BLOCK(2, 3);
void *hak_heap_aligned_alloc(hak_heap_t *heap, size_t align, size_t n) HAK_ALIGNED_BLOCK(2, 3);
void *hak_heap_aligned_calloc(hak_heap_t *heap, size_t align, size_t count, size_t size) HAK_ALIGNED_BLOCK(2, 3, 4);

/* Like hak_realloc, hak_aligned_realloc and hak_free, but a block that is not of this heap (NULL: not malloc's) is misuse. p = NULL
 * allocates, or does nothing. */
void *hak_heap_realloc(hak_heap_t *heap, void *p, size_t n) HAK_RESIZED(3);
void *hak_heap_aligned_realloc(hak_heap_t *heap, void *p, size_t align, size_t n) HAK_ATTRIBUTES((alloc_align(3))) HAK_RESIZED(4);
void hak_heap_free(hak_heap_t *heap, void *p) HAK_FREES(2);

/* Texts in the heap; they stand here so that a program without them has no need of printf. A copy of at most the first `most` bytes of a text,
 * of all, or what printf would write: of the last two `arguments` stay as they are, and NULL is also for what vsnprintf refuses. */
HAK_ATTRIBUTES((nonnull(2), unused)) HAK_USED
static inline char *hak_heap_strndup(hak_heap_t *heap, const char *text, size_t most)
{
    size_t length = 0;
    while (length < most && text[length] != 0)
        length++;
    char *copy = (char *)hak_heap_malloc(heap, length + 1);
    for (size_t i = 0; copy != NULL && i <= length; i++)
        copy[i] = i < length ? text[i] : 0;
    return copy;
}

HAK_ATTRIBUTES((nonnull(2), unused)) HAK_USED
static inline char *hak_heap_strdup(hak_heap_t *heap, const char *text)
{
    return hak_heap_strndup(heap, text, (size_t)-1);
}

HAK_ATTRIBUTES((format(printf, 2, 0), unused)) HAK_USED
static inline char *hak_heap_vasprintf(hak_heap_t *heap, const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    char *text = length < 0 ? NULL : (char *)hak_heap_malloc(heap, (size_t)length + 1);
    va_copy(again, arguments);
    if (text != NULL)
        vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

HAK_ATTRIBUTES((format(printf, 2, 3), unused)) HAK_USED
static inline char *hak_heap_asprintf(hak_heap_t *heap, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = hak_heap_vasprintf(heap, format, arguments);
    va_end(arguments);
    return text;
}

/* The heap that has a live block starting at p, which may be any address; NULL: malloc has it, or there is none. */
hak_heap_t *hak_heap_of(const void *p);

/* The heap's parent; NULL: it has none. */
hak_heap_t *hak_heap_parent(hak_heap_t *heap);

/* Returns to the system what the heap and those below have free: what the calling thread has ready in its bins, what ended threads left, and
 * spans without blocks, which no longer count against the limit. What other threads have ready stays. The result is the number of bytes that
 * the process returned. NULL: hak_collect. 0 for heaps in regions. */
size_t hak_heap_collect(hak_heap_t *heap);

/* Has `cleanup` called with its argument when the heap is next reset or destroyed, before its blocks end: each once, the latest first, and
 * those of heaps below before.
 * It may use the heap and malloc, and add cleanups, which are called too. Takes a block of 24 bytes of the heap. 0, ENOMEM, or EINVAL: no
 * function, NULL as the heap, or a heap in a region. The second forgets the latest one with this function and argument: 0, ENOENT or
 * EINVAL. */
int hak_heap_at_end(hak_heap_t *heap, void (*cleanup)(void *argument), void *argument);
int hak_heap_at_end_cancel(hak_heap_t *heap, void (*cleanup)(void *argument), void *argument);

/* The heap's new name. 0 or EINVAL: NULL, or a heap in a region. */
int hak_heap_set_name(hak_heap_t *heap, const char *name);

/* A pointer of the program's, NULL at first; the first returns the former one. malloc and heaps in regions have none. */
void *hak_heap_set_data(hak_heap_t *heap, void *data);
void *hak_heap_data(hak_heap_t *heap);

/* 0: none. NULL: the option limit. */
void hak_heap_set_limit(hak_heap_t *heap, size_t limit);

/* With those of the heaps below, but for name, serial, limit and refused. */
struct hak_heap_figures {
    const char *name;           /* valid until the heap ends or its name changes; NULL: malloc's figures */
    uint64_t serial;            /* counts heaps as they are made or attached; 0: malloc, or a region beyond the 64th */
    uint64_t used_bytes;        /* what blocks have reached in slabs, huge blocks, samples: counted against the limit */
    uint64_t peak_bytes;        /* its maximum so far; malloc's: the same as used_bytes */
    uint64_t live_blocks, live_bytes;   /* allocated and not freed; bytes by usable size, in hardened mode by class */
    uint64_t limit;             /* 0: none */
    uint64_t refused;           /* times that the limit, or one above, refused memory; malloc's: 0 */
    uint64_t cached_bytes;      /* ready in threads' bins */
    uint64_t slab_bytes, huge_blocks, huge_bytes;
    uint64_t threads, shares;   /* threads that have bins here now; sets of bins */
};

/* Not a snapshot of one moment while other threads use the heap. 0 or EINVAL (size is too small). */
int hak_heap_stats(hak_heap_t *heap, struct hak_heap_figures *out, size_t size);

/* Calls the visitor for each block, not those of heaps below, with its usable size, until it returns something other than 0, which is the result. Meanwhile no
 * thread may use the heap; the visitor may use malloc (unless this heap is the thread's default) and other heaps. NULL: ENOTSUP, since
 * malloc is always in use. */
typedef int hak_heap_visitor(void *block, size_t size, void *argument);
int hak_heap_visit(hak_heap_t *heap, hak_heap_visitor *visit, void *argument);

/* The heap's memory in one piece: slabs with blocks of one size, a chunk of a bump heap, or a single block. */
struct hak_heap_span {
    void *begin;
    void *end;
    size_t size;                /* of each block; 0: they have several */
    size_t blocks;              /* the program's; at least one */
    size_t bytes;               /* their usable size, in hardened mode by class */
    size_t reached;             /* what blocks have ever reached, so what is resident at most, to whole pages */
};

/* The same by spans, without those that have no block of the program. */
typedef int hak_heap_span_visitor(const struct hak_heap_span *span, void *argument);
int hak_heap_visit_spans(hak_heap_t *heap, hak_heap_span_visitor *visit, void *argument);

/* The next heap; those in regions, the first 64, come last. NULL starts the walk and ends it. `heap` must be alive. */
hak_heap_t *hak_heap_next(hak_heap_t *heap);

/* Sets the heap from which the calling thread's malloc and the like take their blocks from now on, as fast as from its own; returns
 * the previous one, which may be NULL, and keeps errno. NULL with errno = ENOMEM: nothing has changed, because there is no memory for the
 * thread's first use of any heap, or because the thread is ending and has given up its part of all; malloc then serves its requests. Not for
 * signal handlers. What the C library allocates for itself, as for a new thread, comes from there too, and it may keep it for good. */
hak_heap_t *hak_heap_set_default(hak_heap_t *heap);
hak_heap_t *hak_heap_get_default(void);

/* The same for threads that make their first request from now on; malloc serves those for which there is no memory for that. */
hak_heap_t *hak_heap_set_default_of_new_threads(hak_heap_t *heap);

/* --- options ----------------------------------------------------------------------------------------------------- */

/* An option of the kind "every", such as profile_every, is a time or bytes. This is added to its value if it is bytes. */
#define HAK_OPTION_IN_BYTES (1ull << 55)

/* An option by name, e.g. "refill_count"; docs/options.md lists them. hak_option_set parses the value as the
 * environment's: 0, ENOENT (no such option), EINVAL (not a value of it), EPERM (it only takes effect at start). */
int hak_option_set(const char *name, const char *value);
int hak_option_get(const char *name, uint64_t *value);

/* The source of the current value, the strongest first: "api" (hak_option_set), "variable", "conf" (HAKMEM_CONF), "symbol"
 * (hak_conf), "preset" (HAKMEM_PRESET), "system" (the system's limits), "default". NULL: no such option. */
const char *hak_option_origin(const char *name);

struct hak_option_info {
    const char *name, *help;
    const char *kind;            /* "count", "bytes", "time" (in ms), "percent", "every" (a time, or bytes with HAK_OPTION_IN_BYTES added),
                                  * "flag", or another kind of docs/options.md */
    const char *takes_effect;    /* "at start", "new threads" or "at once" */
    const char *origin;          /* as from hak_option_origin */
    const char *word;            /* the value as a word if it has one ("exact", "hot_512"), else NULL */
    uint64_t value, standard;    /* the current value; the default */
    uint64_t least, most;        /* the bounds of a value */
};

/* The next option: *cursor is 0 at first, and each call advances it. 1, or 0 when there are no more. */
int hak_option_next(size_t *cursor, struct hak_option_info *info);

/* A program may define this in the form of HAKMEM_CONF: const char *hak_conf = "preset:hot_512,limit:2G"; The environment wins
 * over it, except in privileged programs (AT_SECURE), where the environment is ignored. The library does not define it and has to
 * see the definition: link a program on which the library is preloaded with -rdynamic. */
extern const char *hak_conf;

/* The version, e.g. "0.1.0". */
const char *hak_version(void) HAK_ATTRIBUTES((returns_nonnull));

/* "HAKMEM " and the version, for tools that ask a process or a file which allocator serves it: dlsym, nm or a debugger finds it
 * (examples/which_allocator.c). */
extern const char hakmem_allocator_version[];

#ifdef __cplusplus
}
#endif

#endif
