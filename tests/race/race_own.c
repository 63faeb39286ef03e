/* Heaps of one's own (own/), every schedule within the bounds: a heap is destroyed while a thread takes a share of it, ends, goes on
 * to another heap, frees a block of it, or collects for its share; it is merged while a block is freed; and it becomes, or is no
 * longer, the default of threads while it is destroyed. Of two things that exclude one another just one happens, and the other is
 * reported; each share is in one place afterwards, and no span outlives its heap.
 *
 * Heaps 1 and 3 are threads', heap 2 is a share. */
// test: check timeout=300
#include "heaps_world.h"

#include "base/forked.h"
#include "cache/cache.h"
#include "cache/flush.h"
#include "cache/large_cache.h"
#include "cache/mark.h"
#include "cache/outbox.h"
#include "cache/tune.h"
#include "diag/report.h"
#include "guard/exact.h"
#include "heap/common.h"
#include "heap_slow.h"
#include "own/own.h"
#include "pointer.h"
#include "slab/shield.h"
#include "thread.h"
#include "upkeep/polling.h"
#include "upkeep/step.h"

static struct hak_own *own, *other;
static void *freed;   /* a block of the share */
static unsigned reports;
static bool reported_by[EXPLORE_THREADS];
static jmp_buf reported[EXPLORE_THREADS];

/* --- what lies below and beside ----------------------------------------------------------------------------------------- */

static char own_memory[8][sizeof(struct hak_own)] __attribute__((aligned(64)));
void *hak__meta_alloc(size_t bytes)
{
    static unsigned used;
    EXPLORE_EXPECT(bytes <= sizeof own_memory[0] && used < 8, "more handles than heaps");
    return own_memory[used++];
}

/* Where the program would end, only the thread does, and lets go of what it holds. */
static _Noreturn void report(void)
{
    if (explore_directly())
        explore_violation("a report of what is right");
    if (hak__lock_word_is_mine(&own->lock.held))
        hak__lock_release(&own->lock);
    reported_by[explore_thread()] = true;
    reports++;
    longjmp(reported[explore_thread()], 1);
}
void hak__fatal(const char *format, ...) { (void)format, report(); }
void hak__check_block(const void *p, uint32_t word, const char *function, const char *why)
{
    (void)p, (void)word, (void)function, (void)why;
    report();
}
const char *hak__why_invalid(const void *p, uint32_t word) { return (void)p, (void)word, NULL; }

uint32_t hak__cache_mode(void) { return 0; }
void hak__cache_open(struct hak_heap *heap, uint32_t mode) { (void)heap, (void)mode; }
void hak__cache_park(struct hak_heap *heap) { heap->budget.in_process = false; }
void hak__cache_unpark(struct hak_heap *heap) { heap->budget.in_process = true; }
void hak__cache_redirect(struct hak_heap *heap, bool away)
{
    heap->mode = away ? heap->mode | HAK_MODE_REDIRECTED : heap->mode & ~(uint32_t)HAK_MODE_REDIRECTED;
}
void hak__cache_discharge_large(struct hak_heap *heap) { (void)heap; }
void hak__cache_drop_marks(struct hak_heap *heap, uint32_t class) { (void)heap, (void)class; }
bool hak__cache_grow(struct hak_heap *heap, uint32_t class) { return (void)heap, (void)class, false; }
void hak__cache_absorb_begin(struct hak_heap *heap, uint32_t class) { (void)heap, (void)class; }
void hak__cache_mark(struct hak_heap *heap, uint32_t class) { (void)heap, (void)class; }
uint32_t hak__common_take(struct hak_heap *heap, uint32_t class, void **blocks) { return (void)heap, (void)class, (void)blocks, 0; }
void hak__large_cache_flush(struct hak_heap *heap) { (void)heap; }
bool hak__large_cache_is_valid(const struct hak_heap *heap) { return (void)heap, true; }
void hak__own_huge_end_all(struct hak_own *of, bool keep) { (void)of, (void)keep; }

/* No thread of the cases has a heap by its thread-local word, and no child is forked. */
struct hak_heap_front hak__sentinel = { .mode = HAK_MODE_SENTINEL };
__thread intptr_t hak__thread_word;
void hak__upkeep_poll(struct hak_heap *heap) { (void)heap; }
void hak__closed_free(struct hak_heap *heap, uint32_t class, void *p, const char *function)
{
    (void)heap, (void)class, (void)p, (void)function;
}

/* --- the state in which a schedule begins -------------------------------------------------------------------------------- */

/* Takes the share that waits for a heap out of its list; NULL: there is none. */
static struct hak_heap *spare(void)
{
    struct hak_own *aside = hak__own_new(&(struct hak_heap_options){ .size = sizeof(struct hak_heap_options) });
    struct hak_heap *share = hak__own_borrow(aside, "spare");
    if (share != NULL) {
        aside->shares = NULL;
        hak_owner_store(&share->own, NULL);
        share->share.account = NULL;
        hak__lock_release(&aside->lock);
    }
    hak__own_destroy(aside, "spare");
    return share;
}

static void begin_owns(void)
{
    begin();
    while (spare() != NULL)
        continue;
    for (uint32_t id = 1; id <= WORLD_HEAPS; id++) {
        heap(id)->share = (struct hak_share){ 0 };
        heap(id)->own = NULL;
        heap(id)->mode = 0;
        heap(id)->to_share = 0;
        heap(id)->share_tag = 0;
    }
    heap(2)->tag = hak__owner_word(2, 0) | HAK_CLASS_OFFSET_OWN;
    atomic_store(&heap(2)->state, HAK_HEAP_SHARE);
    hak__share_retire(heap(2));
    own = hak__own_new(&(struct hak_heap_options){ .size = sizeof(struct hak_heap_options) });
    other = hak__own_new(&(struct hak_heap_options){ .size = sizeof(struct hak_heap_options) });
    reports = 0;
    memset(reported_by, 0, sizeof reported_by);
    begin_unused(0, 32);
}

static void attached(void)
{
    begin_owns();
    EXPLORE_EXPECT(hak__own_attach(heap(1), own, "attach") == heap(2), "the share that waits is taken");
    freed = take(2, SMALL);
    take(2, SMALL);
}

static void left(void)
{
    attached();
    hak__own_leave(heap(1));
}

/* --- what threads do ------------------------------------------------------------------------------------------------------ */

#define REPORTED_OR(action) \
    do { \
        if (setjmp(reported[explore_thread()]) == 0) { \
            action; \
        } \
    } while (0)

static void destroy(void) { REPORTED_OR(hak__own_destroy(own, "hak_heap_destroy")); }
static void attach(void) { REPORTED_OR(hak__own_attach(heap(1), own, "hak_heap_malloc")); }
static void attach_3(void) { REPORTED_OR(hak__own_attach(heap(3), own, "hak_heap_malloc")); }
static void attach_other(void) { REPORTED_OR(hak__own_attach(heap(1), other, "hak_heap_malloc")); }
static void leave(void) { hak__own_leave(heap(1)); }

static void collect_for_share(void)
{
    if (hak__enter_foreign(heap(2), 1)) {
        hak__heap_collect(heap(2));
        hak__heap_unlock(heap(2));
    }
}

/* By a thread without a heap; the word was read while the block was live. Whoever is told that it is no block of the
 * share any more looks again. */
static void free_one(void)
{
    if (setjmp(reported[explore_thread()]) != 0)
        return;
    note_given(freed);
    if (hak__own_free(freed, hak__owner_word(2, SMALL) | HAK_CLASS_OFFSET_OWN, "free"))
        return;
    uint32_t word = hak__owner_of(freed);
    if (word == 0)
        report();
    hak__remote_publish(hak__span_at(hak__slab_of(freed)), 0, 1ull << index_of(freed), "free");
}

static void merge(void)
{
    EXPLORE_EXPECT(hak__heap_lock(heap(3)), "nobody has given the heap up");
    REPORTED_OR(hak__own_merge(own, heap(3), "hak_heap_merge_into_default"));
    hak__heap_unlock(heap(3));
}

static void set_default(void) { REPORTED_OR(hak__own_set_standard(heap(1), own, "hak_heap_set_default")); }
static void set_none(void) { hak__own_set_standard(heap(1), NULL, "hak_heap_set_default"); }
static void inherit(void) { hak__own_inherit(heap(1)); }
static void inherit_3(void) { hak__own_inherit(heap(3)); }
static void new_threads_none(void) { hak__own_set_inherited(NULL, "inherited"); }
static void new_threads_other(void) { hak__own_set_inherited(other, "inherited"); }
static void new_threads_none_and_destroy(void)
{
    new_threads_none();
    destroy();
}

static void is_default(void)
{
    begin_owns();
    hak__own_set_standard(heap(1), own, "hak_heap_set_default");
}

static void is_inherited(void)
{
    begin_owns();
    hak__own_set_inherited(own, "inherited");
}

/* --- what holds at the end -------------------------------------------------------------------------------------------------- */

static unsigned in_list(struct hak_heap *const *link)
{
    unsigned found = 0, steps = 0;
    for (const struct hak_heap *share = *link; share != NULL; share = share->share.attached) {
        EXPLORE_EXPECT(++steps <= WORLD_HEAPS, "a thread's list of shares has a cycle");
        found += share == heap(2);
    }
    return found;
}

static unsigned in_heap(const struct hak_own *of)
{
    unsigned found = 0, steps = 0;
    for (const struct hak_heap *share = of->shares; share != NULL; share = share->share.next) {
        EXPLORE_EXPECT(++steps <= WORLD_HEAPS, "a heap's list of shares has a cycle");
        found += share == heap(2);
    }
    return found;
}

/* The share waits for a heap, is its thread's, or lies in a heap; never two of these but the last two. */
static void check_share(void)
{
    unsigned of_heaps = in_heap(own) + in_heap(other);
    unsigned of_threads = in_list(&heap(1)->share.attached) + in_list(&heap(3)->share.attached);
    struct hak_heap *user = atomic_load(&heap(2)->share.user);
    const struct hak_own *is_of = heap(2)->own;
    EXPLORE_EXPECT((is_of == NULL) == (of_heaps == 0) && of_heaps <= 1, "a share is in a heap that it is not of");
    EXPLORE_EXPECT(is_of == NULL || (hak__own_is_alive(is_of) && in_heap(is_of) == 1), "a share is of a heap that has ended");
    EXPLORE_EXPECT(of_threads <= 1 && (of_threads == 1) == (user != NULL), "a share is another thread's than it says");
    struct hak_heap *waits = spare(), *again = spare();
    EXPLORE_EXPECT((waits != NULL) == (of_heaps + of_threads == 0), "a share that is in use waits for a heap, or is lost");
    EXPLORE_EXPECT(again == NULL, "a share waits twice");
    if (waits != NULL)
        hak__share_retire(waits);
}

static void check_defaults(void)
{
    const struct hak_own *inherited = hak__own_set_inherited(NULL, "check");
    const struct hak_own *both[] = { own, other };
    for (unsigned i = 0; i < 2; i++) {
        unsigned of_threads = (heap(1)->share.standard == both[i]) + (heap(3)->share.standard == both[i]);
        EXPLORE_EXPECT(atomic_load(&both[i]->standards) == of_threads, "a heap does not know whose default it is");
        EXPLORE_EXPECT(hak__own_is_alive(both[i]) || of_threads + (inherited == both[i]) == 0, "a default is a heap that has ended");
    }
    for (uint32_t id = 1; id <= WORLD_HEAPS; id++)
        EXPLORE_EXPECT(((heap(id)->mode & HAK_MODE_REDIRECTED) != 0) == (heap(id)->share.standard != NULL),
                       "a thread's bins are open though its default is a heap, or the other way round");
    if (heap(1)->share.standard != NULL)
        hak__own_set_standard(heap(1), NULL, "check");
    if (heap(3)->share.standard != NULL)
        hak__own_set_standard(heap(3), NULL, "check");
}

/* For the next schedule, and to see that a heap that is left can end. */
static void end_owns(void)
{
    if (hak__own_is_alive(own))
        hak__own_destroy(own, "check");
    if (hak__own_is_alive(other))
        hak__own_destroy(other, "check");
    for (size_t slab = 0; slab < SLABS; slab++)
        EXPLORE_EXPECT(owner_of(slab) != 2, "a span is left of heaps that have ended");
}

/* What the program still had of a heap that has ended is nothing. */
static void forget_blocks(void)
{
    for (size_t slab = 0; slab < SLABS; slab++)
        if (owner_of(slab) == 0)
            atomic_store_explicit(&out[slab], 0, HAK_RELAXED);
}

static void check_owns(void)
{
    check_share();
    check_defaults();
    if (!hak__own_is_alive(own))
        forget_blocks();
    check();
    end_owns();
}

static void check_ended(void)
{
    EXPLORE_EXPECT(!hak__own_is_alive(own) && !reported_by[0], "the heap has not ended");
    check_owns();
}

static void check_just_one(void)
{
    EXPLORE_EXPECT(reports == 1, "of two that exclude one another both went well, or none");
    check_owns();
}

static void check_no_report(void)
{
    EXPLORE_EXPECT(reports == 0, "a report of what is right");
    check_owns();
}

static const struct explore_case cases[] = {
    { "a thread takes a share", 2, 2, begin_owns, { destroy, attach }, check_ended, 1, 1 },
    { "a thread takes an idle share with blocks", 2, 2, left, { destroy, attach }, check_ended, 1, 1 },
    { "two threads want the only share", 2, 2, begin_owns, { attach, attach_3 }, check_no_report, 1, 1 },
    { "a thread ends", 2, 2, attached, { destroy, leave }, check_ended, 1, 1 },
    { "a thread goes on to another heap", 2, 2, attached, { destroy, attach_other }, check_ended, 1, 1 },
    { "a step collects for the share", 2, 2, attached, { destroy, collect_for_share }, check_ended, 1, 1 },
    { "a thread without a heap frees", 2, 2, attached, { destroy, free_one }, check_ended, 1, 1 },
    { "a thread ends, another frees", 1, 3, attached, { destroy, leave, free_one }, check_ended, 1, 1 },
    { "two destroy", 2, 2, attached, { destroy, destroy }, check_just_one, 1, 1 },
    { "a heap is merged, a block is freed", 3, 2, attached, { merge, free_one }, check_no_report },
    { "it becomes a thread's default", EXPLORE_ALL, 2, begin_owns, { destroy, set_default }, check_just_one },
    { "it is a default no longer", EXPLORE_ALL, 2, is_default, { destroy, set_none }, check_owns },
    { "a new thread begins with it", 4, 2, is_inherited, { inherit, new_threads_none_and_destroy }, check_owns },
    { "new threads begin with another", 3, 3, is_inherited, { inherit, new_threads_other, inherit_3 }, check_no_report, 1, 1 },
    { "two change what new threads begin with", 3, 3, is_inherited, { inherit, new_threads_other, new_threads_none }, check_no_report,
      1, 1 },
};

int main(int argc, char **argv) { return explore_main(cases, sizeof cases / sizeof cases[0], argc, argv); }
