/* User heaps: made by the program, used by any thread, ended at once. Called by entry/heap_*.c, thread.c and upkeep/.
 *
 * A user heap is a set of shares. A share is a hak_heap like a thread's, with bins, spans and an id in the owner map; each thread
 * that uses the heap has its own share, so neither malloc nor free waits for another thread. It finds the share by a hash of the
 * handle, and keeps at most HAK_OWN_ATTACHED; one too many is emptied and stays idle in its heap for the next thread. Where the heap's
 * limit is too small for more shares, a thread without one takes blocks out of other threads' spans, under their locks, not their bins.
 *
 *   hak_uheap ── shares ──> share ──> share ──> ...      user: the thread's heap that has it, or NULL (idle)
 *   thread's heap ── table ──> bucket ──> share ──> ...  to_share: the share used last
 *
 * No block of a share is ever in another heap's bin, outbox or span: a free puts it into the bin of the thread's own share, or
 * under the share's lock into its span. So a heap that ends knows all its memory: its spans and huge blocks, each in a list.
 *
 * Samples lie elsewhere and have their own list (sample/sample.h). A heap's parent counts its memory too, and ends it.
 *
 * Locks: the list's (HAK_RANK_OWNS), the heap's (HAK_RANK_OWN), then a share's like any heap's. After waiting for a share's lock a
 * thread checks again which heap has the block, or the share. A handle's memory is never reused for anything else.
 *
 * Invariants: share.own == own <=> the share is in own's list;  own's lock covers the list and `first_huge`;
 * a share's `user` goes from NULL to a thread's heap under own's lock, and back by that thread. */
#pragma once

#include "base/lock.h"
#include "hakmem.h"
#include "heap/heap.h"
#include "profile/profile.h"
#include "sample/sample.h"

enum { HAK_OWN_ATTACHED = 4096, HAK_OWN_NAME = 48, HAK_OWN_DEPTH = 64 };

/* The values of a handle's first word. */
#define HAK_OWN_ALIVE 0x6b61686e776f0001ull
#define HAK_OWN_GONE 0x6b61686e776f0002ull
#define HAK_OWN_IN_REGION 0x6b61686e776f0003ull

struct hak_uheap {
    _Atomic uint64_t magic;
    struct hak_account account;
    struct hak_samples samples;
    struct hak_lock lock;
    _Atomic uint32_t standards; /* the number of threads whose standard heap it is */
    uint32_t first_huge; /* the slab of its first huge block, plus one */
    struct hak_heap *shares;
    _Atomic(struct hak_uheap *) next; /* in the list of all heaps ever made */
    struct hak_uheap *next_gone;
    struct hak_uheap *first_child, *next_child,
        *before_child; /* its youngest child; the next older and younger one of its parent */
    hak_heap_pressure *pressure;
    void *argument;
    uint32_t purge; /* enum hak_heap_purge */
    uint32_t flags, depth; /* heaps from it up to the root */
    _Atomic uint64_t huge_bytes, huge_count;
    struct hak_cleanup *cleanups; /* the latest first; under `lock` */
    _Atomic(void *) data;
    uint64_t serial;
    char name[HAK_OWN_NAME];
};

hak_inline struct hak_uheap *hak__uheap_of_account(struct hak_account *account)
{
    return account == NULL ? NULL : (struct hak_uheap *)(void *)((char *)account - offsetof(struct hak_uheap, account));
}

/* A block of its heap. */
struct hak_cleanup {
    struct hak_cleanup *next;
    void (*function)(void *argument);
    void *argument;
};

/* --- heaps (userheap.c) --------------------------------------------------------------------------------------------------- */

/* A heap without blocks or shares; NULL, with errno: the system refuses, or its parent cannot have it. The library has started. */
struct hak_uheap *hak__uheap_new(const struct hak_heap_options *options);
hak_inline struct hak_uheap *hak__uheap_parent(const struct hak_uheap *own) { return hak__uheap_of_account(own->account.above); }

/* The first word behind a handle, which may be any address; 0: nothing can be read there. */
uint64_t hak__uheap_magic(const struct hak_uheap *own);

/* Reports the handle and returns false unless it is a live heap's. Functions below that are given a dead one do nothing further. */
bool hak__uheap_expect(const struct hak_uheap *own, const char *function);
hak_for_region hak_cold void hak__uheap_misuse(const struct hak_uheap *own, const char *function);
hak_inline bool hak__uheap_is_alive(const struct hak_uheap *own) { return hak_load(&own->magic, HAK_ACQUIRE) == HAK_OWN_ALIVE; }

void hak__uheap_rename(struct hak_uheap *own, const char *name);

/* Puts a cleanup before the others; takes off the first with that function and argument, or any if NULL (NULL: there is none). */
void hak__cleanup_push(struct hak_uheap *own, struct hak_cleanup *cleanup);
struct hak_cleanup *hak__cleanup_pop(struct hak_uheap *own, void (*function)(void *), const void *argument);

/* Ends the heap, which has no children, and all its blocks. False: misuse, which has been reported; nothing has ended. */
bool hak__uheap_destroy(struct hak_uheap *own, const char *function);
hak_cold bool hak__uheap_misuse_default(const struct hak_uheap *own, const char *function);

/* Ends all its blocks and keeps its memory. */
void hak__uheap_reset(struct hak_uheap *own, const char *function);

/* Gives its blocks to the calling thread's own heap; false: it is another thread's default. */
bool hak__uheap_merge(struct hak_uheap *own, struct hak_heap *into, const char *function);

/* The user heap of the block at p, which is in the window; or NULL. */
struct hak_uheap *hak__uheap_of(const void *p);

/* Iterates in no order; NULL stands before the first and after the last. */
struct hak_uheap *hak__uheap_next(struct hak_uheap *own);
extern _Atomic bool hak__uheap_any; /* there has been one */
extern _Atomic(struct hak_uheap *) hak__owns_first; /* the list of all heaps ever made, linked by `next` */
extern struct hak_lock hak__owns_lock;

/* Calls the program's callback to make room, and returns its answer; false: it has none, or the thread is already inside one. */
hak_for_region hak_cold bool hak__uheap_ask(hak_heap_pressure *callback, struct hak_uheap *heap, size_t used, size_t limit,
                                            size_t wanted, void *argument);

/* A number for a new heap, in a region or not: 1 is the first that the process has made or attached. */
hak_for_region uint64_t hak__uheap_serial(void);

void hak__uheap_fork_child(void);
void hak__standards_fork_child(struct hak_heap *mine);

/* --- trees (userheap.c) --------------------------------------------------------------------------------------------------- */

/* The heap after `at` in a walk over a tree, parents first, or NULL. Under the list's lock. */
struct hak_uheap *hak__tree_next(const struct hak_uheap *root, struct hak_uheap *at);

/* The heap that ends next if this one is to end: one below it without children, or itself; one below that is a thread's default and so
 * cannot end, or NULL. */
struct hak_uheap *hak__tree_leaf(struct hak_uheap *own);
struct hak_uheap *hak__tree_default(struct hak_uheap *root);

/* --- shares (shares.c) ----------------------------------------------------------------------------------------------- */

hak_inline size_t hak__share_bucket(const struct hak_share_table *table, const struct hak_uheap *own)
{
    return (uint64_t)(uintptr_t)own * 0x9e3779b97f4a7c15u >> table->shift;
}

/* The thread's share of the heap, which it has used already; NULL: it has none. */
hak_inline struct hak_heap *hak__share_find(const struct hak_heap *mine, const struct hak_uheap *own)
{
    const struct hak_share_table *table = &mine->shares;
    hak_assert(own != NULL, "shares whose heaps have ended are no heap's");
    struct hak_heap *share = table->buckets == NULL ? NULL : table->buckets[hak__share_bucket(table, own)];
    while (share != NULL && hak_peek(&share->own) != own)
        share = share->share.chained;
    return share;
}

/* Makes a share the last used one; NULL: none is. */
hak_inline void hak__share_choose(struct hak_heap *mine, const struct hak_heap *share)
{
    mine->to_share = share == NULL ? 0 : (const char *)share - (const char *)mine;
    mine->share_tag = share == NULL ? 0 : share->tag ^ mine->tag;
}

/* The thread's share of the heap, a handle that has been validated; found or made, it becomes the last used one. NULL: the system
 * refuses, the heap's limit is too small for as many shares, or the heap has just ended, which is reported. */
struct hak_heap *hak__uheap_attach(struct hak_heap *mine, struct hak_uheap *own, const char *function);

/* For a thread that has no share: the first one, whoever has it, with own's lock held. NULL: there is none, and own is not locked. */
struct hak_heap *hak__uheap_borrow(struct hak_uheap *own, const char *function);

/* The thread with this heap ends, or will use no shares for a while. */
void hak__uheap_leave(struct hak_heap *mine);

/* Returns all memory of idle shares, and of those of this thread (NULL: it has no heap), except the program's blocks, and the empty spans of
 * the other shares: of the heap and all below. */
hak_cold void hak__uheap_squeeze(struct hak_heap *mine, struct hak_uheap *root);

/* Retires a share whose heap has ended and that no thread holds. The second: one that the calling thread has. */
void hak__share_retire(struct hak_heap *share);
void hak__share_retire_mine(struct hak_heap *mine, struct hak_heap *share, const struct hak_uheap *own);
void hak__shares_fork_child(void);

/* Gives up a spare share for a thread that needs its id or memory; false: there is none. */
hak_cold bool hak__shares_spare_id(void);

/* The bits of a bump heap's chunk (bump.h). The second: whether the share's is one that a reset has left, without blocks and not counted. */
enum { HAK_BUMP_BITS = HAK_SLAB_SIZE / HAK_ALIGN };
hak_inline bool hak__bump_is_kept(const struct hak_heap *share)
{
    return share->share.bump != NULL && (uintptr_t)share->share.bump % HAK_SLAB_SIZE == 0;
}

/* Ends the blocks of a share, and with DESTROYED its spans. Caller holds its heap's lock. */
enum hak_share_end { HAK_SHARE_DESTROYED, HAK_SHARE_EMPTIED };
void hak__share_end_blocks(struct hak_heap *share, enum hak_share_end end, bool purge);

/* --- huge blocks (userheap.c) ------------------------------------------------------------------------------------------ */

/* The user heap of the huge block that begins at the slab, or NULL. */
hak_inline struct hak_uheap *hak__uheap_of_huge(size_t slab)
{
    void *own = hak_unlikely(hak_load(&hak__uheap_any, HAK_RELAXED)) ? hak_read_mostly(&hak__spans[slab].account) : NULL;
    return own == HAK_SPAN_DESTROYED ? NULL : own; /* a mark from earlier spans there */
}

void *hak__uheap_huge_alloc(struct hak_uheap *own, size_t n, size_t align, bool *zero);
void hak__uheap_huge_free(struct hak_uheap *own, void *p, const char *function);
void *hak__uheap_huge_resize(struct hak_uheap *own, void *p, size_t n);
void hak__uheap_huge_end_all(struct hak_uheap *own, bool keep); /* frees them, or makes them the process's; under own's lock */

/* --- a thread's standard heap (defaults.c) ------------------------------------------------------------------------------ */

/* Redirects the requests of the calling thread, whose own heap is `mine`; NULL: back to that. Returns the previous heap. */
struct hak_uheap *hak__uheap_set_standard(struct hak_heap *mine, struct hak_uheap *own, const char *function);

/* Makes the calling thread's word follow the default heap of `mine`, its own heap. The second: a thread that ends has none. */
void hak__uheap_lead(struct hak_heap *mine);
void hak__uheap_drop_standard(struct hak_heap *ending);

/* The same for threads that get their heaps later: they begin with it. */
extern _Atomic(struct hak_uheap *) hak__uheap_inherited;
struct hak_uheap *hak__uheap_set_inherited(struct hak_uheap *own, const char *function);
void hak__uheap_inherit(struct hak_heap *mine);

/* In a forked child, before standards are counted: its only thread has lost this heap, and begins its next one with the same default. */
void hak__uheap_carry(const struct hak_heap *lost);

/* --- figures (figures.c) ----------------------------------------------------------------------------------------------- */

/* `whole`: waits for locks, and adds the heaps below; otherwise, if its lock is held, the figures leave the shares out. */
void hak__uheap_figures(struct hak_uheap *own, struct hak_heap_figures *out, bool whole);

/* Who visits a heap: one of both functions. */
struct hak_visit {
    hak_heap_visitor *block;
    hak_heap_span_visitor *span;
    void *argument;
    const char *function; /* which of them, for reports */
};
hak_inline int hak__visit_single(const struct hak_visit *visit, void *block, size_t size)
{
    const struct hak_heap_span span = { block, (char *)block + size, size, 1, size, size };
    return visit->span == NULL ? visit->block(block, size, visit->argument) : visit->span(&span, visit->argument);
}

int hak__uheap_visit(struct hak_uheap *own, const struct hak_visit *visit);

/* --- heaps in memory that the program provides --------------------------------------------------------------------------- */

/* The work of libhakmem-region (src/region/), which registers these functions when it is loaded (hak__regions_join); NULL: it is
 * not. Its heaps begin with HAK_OWN_IN_REGION. A `function` is for reports. */
struct hak_region;
struct hak_kind;
struct hak_region_row;
struct hak_regions {
    const struct hak_kind *kind; /* of their blocks */
    bool (*has)(const void *p); /* whether the address lies in the region of such a heap, as far as they are known */
    struct hak_region *(*make)(const struct hak_heap_options *options); /* NULL, here and in the two below: errno says why */
    void *(*alloc)(struct hak_region *region, size_t align, size_t n, const char *function);
    void *(*realloc)(struct hak_region *region, void *p, size_t n, const char *function);
    void (*free)(struct hak_region *region, void *p, const char *function);
    void (*destroy)(struct hak_region *region, const char *function);
    void (*reset)(struct hak_region *region, const char *function);
    void (*set_limit)(struct hak_region *region, size_t limit, const char *function);
    size_t (*room)(const struct hak_region *region); /* the bytes that it has for blocks, whatever the limit */
    void (*figures)(struct hak_region *region, struct hak_heap_figures *out, const char *function); /* NULL: without its lock */
    int (*visit)(struct hak_region *region, const struct hak_visit *visit);
    struct hak_region *(*next)(const struct hak_region *region); /* NULL stands before the first and after the last */
    void (*fork_child)(void);
    hak_heap_t *(*attach)(void *start, size_t size); /* for a second copy of libhakmem-region */
    void (*detach)(hak_heap_t *heap);
    const struct hak_region_row *rows; /* for readers of hak_live, as `numbers` says; the lab has their names */
    uint32_t numbers[15];
};
extern _Atomic(const struct hak_regions *) hak__regions;

/* The functions for this heap, which may be any address; NULL: it lies in no region, or is none. */
hak_inline const struct hak_regions *hak__regions_of(const struct hak_uheap *heap)
{
    bool inside = heap != NULL && hak__uheap_magic(heap) == HAK_OWN_IN_REGION;
    return hak_unlikely(inside) ? hak_load(&hak__regions, HAK_ACQUIRE) : NULL;
}
hak_inline struct hak_region *hak__region_handle(struct hak_uheap *heap) { return (struct hak_region *)(void *)heap; }
