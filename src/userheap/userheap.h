/* Heaps of one's own: made by the program, used by any thread, ended at once. Called by src/heap_*.c, thread.c and upkeep/.
 *
 * Such a heap is a set of shares. A share is a hak_heap like a thread's, with bins, spans and an id in the owner map; each
 * thread that uses the heap has one of its own, so that neither malloc nor free waits for another thread. A thread has at most
 * HAK_OWN_ATTACHED shares, of the heaps that it used last; one that falls behind is emptied and lies idle in its heap, for the
 * next thread that comes.
 *
 *   hak_uheap ── shares ──> share ──> share ──> ...      share.user: the thread's heap that has it, or NULL (idle)
 *   thread's heap ── attached ──> share (used last) ──> share ──> ...
 *
 * No block of a share is ever in another heap's bin, outbox or span: it goes to the bin of the thread's own share, or under the
 * share's lock into its span. So what ends with the heap is known: its spans and huge blocks, each in a list.
 *
 * Samples, which lie elsewhere, are in a list of their own (sample/record.h).
 *
 * Locks: the list's (HAK_RANK_OWNS), the heap's (HAK_RANK_OWN), then a share's as any heap's. A thread that has waited for a share's
 * lock checks again whose the block is, or which heap has the share. A handle's memory is never used for anything else.
 *
 * Invariants: share.own == own <=> the share is in own's list;  own's lock covers the list and `first_huge`;
 * a share's `user` goes from NULL to a thread's heap under own's lock, and back by that thread. */
#pragma once

#include "base/lock.h"
#include "hakmem.h"
#include "heap/heap.h"
#include "profile/profile.h"
#include "sample/sample.h"

enum { HAK_OWN_ATTACHED = 8, HAK_OWN_NAME = 48 };

/* The values of a handle's first word. */
#define HAK_OWN_ALIVE 0x6b61686e776f0001ull
#define HAK_OWN_GONE 0x6b61686e776f0002ull

struct hak_uheap {
    _Atomic uint64_t magic;
    struct hak_account account;
    struct hak_samples samples;
    struct hak_lock lock;
    _Atomic uint32_t standards; /* threads whose standard heap it is */
    uint32_t first_huge; /* its huge blocks: the first one's slab, plus one */
    struct hak_heap *shares;
    _Atomic(struct hak_uheap *) next; /* in the list of all that there have ever been */
    struct hak_uheap *next_gone;
    hak_heap_pressure *pressure;
    void *argument;
    uint32_t purge; /* enum hak_heap_purge */
    uint32_t flags;
    _Atomic uint64_t huge_bytes, huge_count;
    uint64_t serial;
    char name[HAK_OWN_NAME];
};

/* --- heaps (userheap.c) --------------------------------------------------------------------------------------------------- */

/* A heap without blocks and without shares; NULL: the system refuses. The library has started. */
struct hak_uheap *hak__uheap_new(const struct hak_heap_options *options);

/* Ends the program unless the handle is that of a heap. */
void hak__uheap_expect(const struct hak_uheap *own, const char *function);
hak_noreturn hak_cold void hak__uheap_misuse(const struct hak_uheap *own, const char *function);
hak_inline bool hak__uheap_is_alive(const struct hak_uheap *own) { return hak_load(&own->magic, HAK_ACQUIRE) == HAK_OWN_ALIVE; }

/* Ends it with all its blocks. */
void hak__uheap_destroy(struct hak_uheap *own, const char *function);

/* Ends all its blocks and keeps its memory. */
void hak__uheap_reset(struct hak_uheap *own, const char *function);

/* Gives its blocks to a thread's heap. */
void hak__uheap_merge(struct hak_uheap *own, struct hak_heap *into, const char *function);

/* The heap that the block at p is of, one in the window; or NULL. */
struct hak_uheap *hak__uheap_of(const void *p);

/* One after another, in no order; NULL is before the first and after the last. */
struct hak_uheap *hak__uheap_next(struct hak_uheap *own);
extern _Atomic bool hak__uheap_any; /* there has been one */
extern _Atomic(struct hak_uheap *) hak__owns_first; /* of all that there have ever been; `next` links them */

/* Asks the program for room: its callback's answer; false: it has none, or the thread is inside of one, which is not called again. */
hak_cold bool hak__uheap_ask(hak_heap_pressure *callback, struct hak_uheap *heap, size_t used, size_t limit, size_t wanted,
                             void *argument);

/* A number for a new heap, also one in a region: 1 is the first that the process has made or attached. */
uint64_t hak__uheap_serial(void);

void hak__uheap_fork_child(void);
void hak__standards_fork_child(struct hak_heap *mine);

/* --- shares (shares.c) ----------------------------------------------------------------------------------------------- */

/* The thread's share of the heap, which is its last used one then; NULL: the system refuses. */
struct hak_heap *hak__uheap_attach(struct hak_heap *mine, struct hak_uheap *own, const char *function);

/* For a thread without a heap: an idle share, with the own's lock held until hak__uheap_let. */
struct hak_heap *hak__uheap_borrow(struct hak_uheap *own, const char *function);
void hak__uheap_let(struct hak_uheap *own, struct hak_heap *share);

/* The thread whose heap this is ends, or will not use any for a while. */
void hak__uheap_leave(struct hak_heap *mine);

/* Returns all memory of idle shares but the program's blocks. For a heap at its limit. */
hak_cold void hak__uheap_squeeze(struct hak_uheap *own);

/* The share's heap has ended, and no thread has it. (A thread that has one keeps it for the next heap that it uses.) */
void hak__share_retire(struct hak_heap *share);
void hak__shares_fork_child(void);

/* Gives one of the spare shares back, for a thread that needs its id or its memory; false: there is none to spare. */
hak_cold bool hak__shares_spare_id(void);

/* A share whose heap's lock is held: its blocks end, and with them its spans, or not. */
enum hak_share_end { HAK_SHARE_DESTROYED, HAK_SHARE_EMPTIED };
void hak__share_end_blocks(struct hak_heap *share, enum hak_share_end end, bool purge);

/* Moves its blocks to `into`, whose lock is held too. False: it is no share of the heap any more, because another thread has it. */
bool hak__share_merge(struct hak_heap *share, struct hak_heap *into);

/* --- huge blocks (own_huge.c) ------------------------------------------------------------------------------------------ */

/* Whether the block that begins at p, a huge one, is of a heap of one's own. */
hak_inline struct hak_uheap *hak__uheap_of_huge(size_t slab)
{
    void *own = hak_unlikely(hak_load(&hak__uheap_any, HAK_RELAXED)) ? hak_read_mostly(&hak__spans[slab].account) : NULL;
    return own == HAK_SPAN_DESTROYED ? NULL : own; /* a mark from before, when there were spans */
}

void *hak__uheap_huge_alloc(struct hak_uheap *own, size_t n, size_t align, bool *zero);
void hak__uheap_huge_free(struct hak_uheap *own, void *p, const char *function);
void *hak__uheap_huge_resize(struct hak_uheap *own, void *p, size_t n);
void hak__uheap_huge_end_all(struct hak_uheap *own, bool keep); /* frees them, or makes them the process's; own's lock is held */

/* --- a thread's standard heap (standard.c) ------------------------------------------------------------------------------ */

/* From now on the requests of the thread whose heap this is go to that one; NULL: to its own again. Gives what it was. */
struct hak_uheap *hak__uheap_set_standard(struct hak_heap *mine, struct hak_uheap *own, const char *function);

/* The same for threads that come by their heaps later: what they begin with. */
extern _Atomic(struct hak_uheap *) hak__uheap_inherited;
struct hak_uheap *hak__uheap_set_inherited(struct hak_uheap *own, const char *function);
void hak__uheap_inherit(struct hak_heap *mine);

/* --- figures (figures.c) ----------------------------------------------------------------------------------------------- */

/* `wait`: for its lock; otherwise, while that is held, the shares are left out. */
void hak__uheap_figures(struct hak_uheap *own, struct hak_heap_figures *out, bool wait);
int hak__uheap_visit(struct hak_uheap *own, hak_heap_visitor *visit, void *argument);
