/* Heaps of one's own (own/), every schedule within the bounds: a heap is destroyed while a thread takes a share of it, ends, goes on
 * to another heap, frees a block of it, or collects for its share; it is merged while a block is freed; and it becomes, or is no
 * longer, the default of threads while it is destroyed. Of two things that exclude one another just one happens, and the other is
 * reported; each share is in one place afterwards, and no span outlives its heap. Threads also free and allocate by the real
 * hak_free and hak_heap_malloc, fast paths and all, while their heap is merged, squeezed or swept, or their huge block's heap ends;
 * and ids of shares are given back and taken.
 *
 * Heaps 1 and 3 are threads', heap 2 is a share. */
// test: check timeout=300
#include <errno.h>
#include <string.h>

#include "heaps_world.h"

#include "base/lock.h"
#include "cache/cache.h"
#include "cache/large_cache.h"
#include "diag/report.h"
#include "guard/check.h"
#include "heap/heap.h"
#include "huge/huge.h"
#include "kinds/kind.h"
#include "process/process.h"
#include "process/request.h"
#include "profile/profile.h"
#include "sample/sample.h"
#include "span/shield.h"
#include "upkeep/upkeep.h"
#include "userheap/userheap.h"

/* Not for the model of weak orders, which would take the word of all threads for one. */
#define OUTSIDE __attribute__((no_sanitize("thread")))

__attribute__((weak)) void weak_begin(unsigned stale);
static struct hak_uheap *own, *other;
static void *freed, *large; /* blocks of the share */
static unsigned reports;
static _Atomic bool merged;
static bool reported_by[EXPLORE_THREADS], may_report[EXPLORE_THREADS];
static jmp_buf reported[EXPLORE_THREADS];

/* --- what lies below and beside ----------------------------------------------------------------------------------------- */

static char own_memory[8][sizeof(struct hak_uheap)] __attribute__((aligned(64)));
void *hak__meta_alloc(size_t bytes)
{
    static unsigned used;
    static _Atomic uint32_t words[HAK_HEAPS_MAX]; /* of ids */
    if (bytes == sizeof words)
        return words;
    EXPLORE_EXPECT(bytes <= sizeof own_memory[0] && used < 8, "more handles than heaps");
    return own_memory[used++];
}
bool hak__meta_has(const void *p) { return (uintptr_t)p - (uintptr_t)own_memory < sizeof own_memory; }

OUTSIDE static void note_report(void)
{
    reported_by[explore_thread()] = true;
    reports++;
}

/* Where the program would end, only the thread does, and lets go of what it holds. */
static _Noreturn void report(void)
{
    if (explore_directly() || !may_report[explore_thread()])
        explore_violation("a report of what is right");
    if (hak__lock_word_is_mine(&own->lock.held))
        hak__lock_release(&own->lock);
    note_report();
    longjmp(reported[explore_thread()], 1);
}
void hak__misuse(const struct hak_mistake *mistake, const char *format, ...) { (void)mistake, (void)format, report(); }
bool hak__check_block(const void *p, uint32_t word, const char *function, const char *why)
{
    (void)p, (void)word, (void)function, (void)why; /* blocks without memory bear no key, and look right */
    return true;
}
const char *hak__why_invalid(const void *p, uint32_t word) { return (void)p, (void)word, NULL; }

_Atomic bool hak__shields; /* the program changes no rights */
bool hak__shield_lift_slow(const void *p) { return p != NULL; }
bool hak__shield_lift_range_slow(uintptr_t start, size_t bytes) { return start != 0 && bytes != 0; }

uint32_t hak__cache_mode(void) { return 0; }
void hak__cache_open(struct hak_heap *heap, uint32_t mode) { (void)heap, (void)mode; }

/* Slots may move meanwhile. */
static void count_in_process(struct hak_heap *heap, bool in)
{
    EXPLORE_EXPECT(hak__lock_word_is_mine(&heap->lock), "the heap is locked while its bins join or leave the process's sum");
    heap->budget.in_process = in;
}
void hak__cache_park(struct hak_heap *heap) { count_in_process(heap, false); }
void hak__cache_unpark(struct hak_heap *heap) { count_in_process(heap, true); }
void hak__cache_discharge_large(struct hak_heap *heap) { (void)heap; }
bool hak__cache_grow(struct hak_heap *heap, uint32_t class) { return (void)heap, (void)class, false; }
void hak__cache_absorb_begin(struct hak_heap *heap, uint32_t class) { (void)heap, (void)class; }
void hak__cache_first_end(struct hak_heap *heap, uint32_t class) { (void)heap, (void)class; }
void hak__large_cache_flush(struct hak_heap *heap) { (void)heap; }
bool hak__large_cache_is_valid(const struct hak_heap *heap) { return (void)heap, true; }

/* Huge blocks: the one that SuperSlab 1 can be. */
static char *huge_start(void) { return hak__slab_start(HAK_SUPER_SLABS); }
size_t hak__huge_usable(const void *p) { return hak__owner_of(p) == hak__owner_huge() ? HAK_SUPER_SIZE : 0; }
void *hak__huge_alloc(size_t n, size_t align, bool *zero)
{
    (void)n, (void)align, (void)zero;
    hak__owner_set(HAK_SUPER_SLABS, hak__owner_huge());
    return huge_start();
}
void hak__huge_free(void *p, const char *function)
{
    (void)p, (void)function;
    EXPLORE_EXPECT(hak_exchange(&hak__window.map[HAK_SUPER_SLABS].owner, 0, HAK_RELAXED) == hak__owner_huge(),
                   "a huge block is freed twice");
}
bool hak__huge_free_quickly(struct hak_heap *heap, void *p) { return (void)heap, (void)p, false; }
void *hak__huge_resize(void *p, size_t n) { return (void)p, (void)n, NULL; }
void hak__poll_huge(size_t given, size_t taken) { (void)given, (void)taken; }

/* A thread of the cases whose body says so has a heap by its thread-local word, others have the sentinel; no child is forked. */
OUTSIDE int *__errno_location(void)
{
    static int codes[EXPLORE_THREADS + 1];
    return &codes[explore_directly() ? EXPLORE_THREADS : explore_thread()];
}
static intptr_t words[EXPLORE_THREADS + 1]; /* and of the harness */
static struct hak_heap *homes[EXPLORE_THREADS + 1];
static unsigned running = EXPLORE_THREADS;
/* To ThreadSanitizer's run-time library, if there is one: each thread of a case has its own of these. */
__attribute__((weak)) void AnnotateBenignRaceSized(const char *file, int line, const volatile void *at, size_t size, const char *why);
static void share_locals(void)
{
    if (AnnotateBenignRaceSized == NULL)
        return;
    AnnotateBenignRaceSized(__FILE__, __LINE__, &hak__thread_word, sizeof hak__thread_word, "exchanged by explore_resumed");
    AnnotateBenignRaceSized(__FILE__, __LINE__, &hak__thread_notes, sizeof hak__thread_notes, "exchanged by explore_resumed");
}

bool explore_is_local(const void *at)
{
    return (uintptr_t)at - (uintptr_t)&hak__thread_notes < sizeof hak__thread_notes
        || (uintptr_t)at - (uintptr_t)&hak__thread_word < sizeof hak__thread_word;
}
OUTSIDE void explore_resumed(void)
{
    words[running] = hak__thread_word;
    homes[running] = hak__thread_notes.home;
    running = explore_directly() ? EXPLORE_THREADS : explore_thread();
    hak__thread_word = words[running];
    hak__thread_notes.home = homes[running];
}
OUTSIDE static void be_thread_of(uint32_t id)
{
    explore_resumed();
    hak__thread_notes.home = NULL;
    hak__thread_word = id == 0 ? 0 : (intptr_t)((uintptr_t)heap(id) - (uintptr_t)&hak__sentinel);
}
void hak__upkeep_poll(struct hak_heap *heap) { (void)heap; }
void hak__polling_hurry(struct hak_heap *heap) { (void)heap; }
void hak__poll_ended(size_t bytes) { (void)bytes; }
void hak__closed_free(struct hak_heap *heap, uint32_t class, void *p, const char *function)
{
    (void)heap, (void)class, (void)p, (void)function;
}

/* The rest of what the real paths of malloc and free ask (own_beside.c has what they do not come to). */
bool hak__start(void) { return true; }
bool hak__thread_has_exited(void) { return false; }
struct hak_heap *hak__request_heap_slow(void) { return NULL; }
void hak__request_end(struct hak_heap *heap) { (void)heap; }
void *hak__fail(int code) { return (void)code, NULL; }
void *hak__no_memory(void) { return NULL; }
_Atomic uint32_t hak__limit_notices;
void hak__profile_forget(const void *p) { (void)p; }
bool hak__profile_answer(void) { return false; }
struct hak_sample hak__sample;
_Atomic bool hak__shields;
bool hak__shield_covers_slow(const void *p) { return (void)p, false; }
static bool has_none(const void *p) { return (void)p, false; }
const struct hak_kind hak__kind_hardened, hak__kind_sealed, hak__kind_bump;
bool hak__bump_is(uint32_t word) { return (void)word, false; }
void *hak__bump_malloc(struct hak_uheap *heap, size_t n, const char *function) { return (void)heap, (void)n, (void)function, NULL; }
#define X(name) const struct hak_kind hak__kind_##name = { .has = has_none };
HAK_KINDS_BESIDE(X)
#undef X
const struct hak_kind hak__kind_foreign = { .has = has_none };

/* --- the state in which a schedule begins -------------------------------------------------------------------------------- */

/* Takes the share that waits for a heap out of its list; NULL: there is none. */
static struct hak_heap *spare(void)
{
    struct hak_uheap *aside = hak__uheap_new(&(struct hak_heap_options){ .size = sizeof(struct hak_heap_options) });
    struct hak_heap *share = hak__uheap_borrow(aside, "spare");
    if (share != NULL) {
        aside->shares = NULL;
        hak_owner_store(&share->own, NULL);
        share->share.account = NULL;
        hak__lock_release(&aside->lock);
    }
    hak__uheap_destroy(aside, "spare");
    return share;
}

static struct hak_uheap *new_handle(void)
{
    return hak__uheap_new(&(struct hak_heap_options){ .size = sizeof(struct hak_heap_options) });
}

/* Always the same ones in the same order, whichever have ended last: where a share is in a thread's table goes by the handle's address. */
static void make_handles(void)
{
    struct hak_uheap *made[] = { new_handle(), new_handle(), new_handle() }, *swap;
    for (unsigned i = 0; i < 3; i++)
        for (unsigned j = i + 1; j < 3; j++)
            if ((uintptr_t)made[i] > (uintptr_t)made[j])
                swap = made[i], made[i] = made[j], made[j] = swap;
    own = made[0], other = made[1];
    hak__uheap_destroy(made[2], "begin");
}

static void begin_owns(void)
{
    begin();
    while (spare() != NULL)
        continue;
    for (uint32_t id = 1; id <= WORLD_HEAPS; id++) {
        heap(id)->share = (struct hak_share){ 0 };
        heap(id)->shares = (struct hak_share_table){ 0 };
        heap(id)->own = NULL;
        heap(id)->user = NULL;
        heap(id)->mode = id == 2 ? HAK_MODE_SHARE : 0;
        heap(id)->to_share = 0;
        heap(id)->outbox.misses = 0; /* each schedule begins alike */
        heap(id)->share_tag = 0;
    }
    heap(2)->tag = hak__owner_word(2, 0) | HAK_CLASS_OFFSET_OWN;
    atomic_store(&heap(2)->state, HAK_HEAP_SHARE);
    hak__share_retire(heap(2));
    make_handles();
    share_locals();
    reports = 0;
    memset(reported_by, 0, sizeof reported_by);
    memset(may_report, 0, sizeof may_report);
    be_thread_of(0);
    memset(words, 0, sizeof words);
    memset(homes, 0, sizeof homes);
    begin_unused(0, 32);
}

static void attached(void)
{
    begin_owns();
    EXPLORE_EXPECT(hak__uheap_attach(heap(1), own, "attach") == heap(2), "the share that waits is taken");
    freed = take(2, SMALL);
    take(2, SMALL);
}

static void left(void)
{
    attached();
    hak__uheap_leave(heap(1));
}

/* --- what threads do ------------------------------------------------------------------------------------------------------ */

#define REPORTED_OR(action) \
    do { \
        may_report[explore_thread()] = true; \
        if (setjmp(reported[explore_thread()]) == 0) { \
            action; \
        } \
        may_report[explore_thread()] = false; \
    } while (0)

static void destroy(void) { REPORTED_OR(hak__uheap_destroy(own, "hak_heap_destroy")); }
static void attach(void) { REPORTED_OR(hak__uheap_attach(heap(1), own, "hak_heap_malloc")); }
static void attach_3(void) { REPORTED_OR(hak__uheap_attach(heap(3), own, "hak_heap_malloc")); }
static void attach_other(void) { REPORTED_OR(hak__uheap_attach(heap(1), other, "hak_heap_malloc")); }
static void leave(void) { hak__uheap_leave(heap(1)); }

static void collect_for_share(void)
{
    if (hak__enter_foreign(heap(2), 1)) {
        EXPLORE_EXPECT(hak__heap_is_open(hak_load(&heap(2)->state, HAK_RELAXED)), "a step is in a heap that was given back");
        hak__heap_collect(heap(2));
        hak__heap_unlock(heap(2));
    }
}

/* By a thread without a heap; the word was read while the block was live. Whoever is told that it is no block of the
 * share any more looks again. */
static void free_one(void)
{
    may_report[explore_thread()] = true;
    if (setjmp(reported[explore_thread()]) != 0)
        return;
    note_given(freed);
    if (hak__uheap_free(freed, hak__owner_word(2, SMALL) | HAK_CLASS_OFFSET_OWN, "free"))
        return;
    uint32_t word = hak__owner_of(freed);
    if (word == 0)
        report();
    hak__remote_publish(hak__span_at(hak__slab_of(freed)), 0, 1ull << index_of(freed), "free");
}

static void merge(void)
{
    EXPLORE_EXPECT(hak__heap_lock(heap(3)), "nobody has given the heap up");
    REPORTED_OR(hak__uheap_merge(own, heap(3), "hak_heap_merge_into_default"));
    hak__heap_unlock(heap(3));
}

/* --- the paths of malloc and free as they are ------------------------------------------------------------------------------- */

/* The share has a bin of the class, with room for so many blocks; heap 1's thread used it last. */
static void open_bin(uint32_t room)
{
    static void *slots[1 + 4];
    struct hak_heap_class *class = &heap(2)->classes[SMALL];
    class->bottom = slots + 1;
    class->capacity = class->ceiling = (uint16_t)room;
    heap(2)->bins[SMALL] = (struct hak_bin){ class->bottom, class->bottom + room };
    heap(2)->foreign[SMALL] = false;
}

static void *block_of(size_t i) { return block_at(hak__slab_of(freed), (uint32_t)i); }

static void with_bin(uint32_t room)
{
    attached(); /* blocks 0 and 1 */
    open_bin(room);
    take(2, SMALL);
    merged = false;
}
static void with_bin_of_1(void) { with_bin(1); }
static void with_bin_of_2(void) { with_bin(2); }

static void free_block(size_t i)
{
    note_given(block_of(i));
    hak_free(block_of(i));
}

static void merge_and_say(void)
{
    merge();
    atomic_store(&merged, true);
}

static void free_own(void)
{
    be_thread_of(1);
    free_block(0);
}

static void free_two(void)
{
    free_own();
    free_block(1);
}

/* What the heap gives after the merge is its own. */
static void free_then_allocate(void)
{
    free_own();
    while (!atomic_load(&merged))
        explore_yield();
    for (int i = 0; i < 2; i++) {
        void *p = hak_heap_malloc(own, hak__classes[SMALL].size);
        note_taken(p);
        EXPLORE_EXPECT(hak__uheap_of(p) == own, "a block that the heap gives is not its own");
    }
}

/* With blocks of the heap. */
static void allocate_and_free(void)
{
    be_thread_of(1);
    void *p = hak_heap_malloc(own, hak__classes[SMALL].size);
    note_taken(p);
    free_block(0);
    note_given(p);
    hak_free(p);
}

/* The heap's limit allows no share but heap 1's, so heap 3's thread takes from that. */
static void with_the_only_share(void)
{
    with_bin_of_2();
    hak_store(&own->account.limit, HAK_SLAB_SIZE, HAK_RELAXED);
}
static void allocate_beside(void)
{
    be_thread_of(3);
    void *p = hak_heap_malloc(own, hak__classes[SMALL].size);
    note_taken(p);
    EXPLORE_EXPECT(hak__owner_id(hak__owner_of(p)) == 2, "the thread has a share of its own");
    note_given(p);
    hak_free(p);
}

static void squeeze(void) { hak__uheap_squeeze(NULL, own); }

static void allocate_and_leave(void)
{
    allocate_and_free();
    leave();
}

/* By a thread without a heap. */
void hak__free_unattached(void *p, uint32_t word, const char *function)
{
    if (hak__owner_class(word) == LARGE)
        hak__heap_end_foreign(NULL, p, word, function);
    else
        hak__remote_publish(hak__span_at(hak__slab_of(p)), 0, 1ull << index_of(p), function);
}
static void free_elsewhere(void)
{
    be_thread_of(0);
    free_block(1);
}

static void with_large(void)
{
    with_bin_of_2();
    large = take(2, LARGE);
}
static void free_large(void)
{
    be_thread_of(0);
    note_given(large);
    hak_free(large);
}

/* --- ids that come back ------------------------------------------------------------------------------------------------------- */

static uint32_t got[EXPLORE_THREADS][2];

static void give_back(uint32_t id)
{
    EXPLORE_EXPECT(hak__heap_lock(heap(id)) && hak__heap_lock(heap(1)), "a heap is lost");
    EXPLORE_EXPECT(hak__heap_give_back(heap(id), heap(1)), "there is memory for its number");
    hak__heap_unlock(heap(1));
}

/* Opens it as its next thread would. */
static void take_id(unsigned nth)
{
    struct hak_heap *taken = hak__heap_new();
    if (taken == NULL)
        return;
    got[explore_thread()][nth] = taken->id;
    EXPLORE_EXPECT(hak_load(&taken->state, HAK_RELAXED) == HAK_HEAP_NEW, "a heap is in two hands");
    taken->classes[SMALL].capacity++;
    hak_store(&taken->state, HAK_HEAP_SHARE, HAK_RELEASE);
}

static void with_spare(void)
{
    begin_owns();
    EXPLORE_EXPECT(spare() == heap(2), "the share waits");
    memset(got, 0, sizeof got);
}
static void with_ids(void)
{
    with_spare();
    give_back(2);
    give_back(3);
}

static void give_back_2(void) { give_back(2); }
static void take_one(void) { take_id(0); }
static void take_two(void) { take_id(0), take_id(1); }
static void take_and_give_back(void)
{
    take_two();
    uint32_t id = got[explore_thread()][0];
    if (id != 0) {
        got[explore_thread()][0] = 0;
        give_back(id);
    }
}

static void check_ids(void)
{
    unsigned times[WORLD_HEAPS + 1] = { 0 }, out_there = 0;
    for (unsigned thread = 0; thread < EXPLORE_THREADS; thread++)
        for (unsigned i = 0; i < 2; i++)
            times[got[thread][i]]++;
    for (struct hak_heap *left; (left = hak__heap_new()) != NULL; out_there++)
        times[left->id]++;
    EXPLORE_EXPECT(times[1] == 0 && times[2] == 1 && times[3] <= 1, "an id is lost, or two have it");
    for (uint32_t id = 2; id <= WORLD_HEAPS; id++)
        EXPLORE_EXPECT(hak_load(&heap(id)->lock, HAK_RELAXED) == HAK_LOCK_FREE, "a heap that was given back is locked");
    hak__uheap_destroy(own, "check");
    hak__uheap_destroy(other, "check");
}

static void with_huge(void)
{
    begin_owns();
    atomic_store(&merged, false);
    EXPLORE_EXPECT(hak__uheap_huge_alloc(own, HAK_SUPER_SIZE, HAK_SUPER_SIZE, NULL) == huge_start(), "there is a huge block");
}

static void free_huge_block(void)
{
    be_thread_of(1);
    hak_free(huge_start());
}

/* A heap that begins with the handle of one that has ended while its block is freed. */
static void merge_and_begin_anew(void)
{
    merge();
    destroy();
    own = hak__uheap_new(&(struct hak_heap_options){ .size = sizeof(struct hak_heap_options) });
}

static void set_default(void)
{
    be_thread_of(1);
    REPORTED_OR(hak__uheap_set_standard(heap(1), own, "hak_heap_set_default"));
}
static void set_none(void)
{
    be_thread_of(1);
    hak__uheap_set_standard(heap(1), NULL, "hak_heap_set_default");
    EXPLORE_EXPECT(hak__heap_current() == heap(1), "a thread without a default is not led to its own heap");
}
static void inherit(void)
{
    be_thread_of(1);
    hak__uheap_inherit(heap(1));
}
static void inherit_3(void)
{
    be_thread_of(3);
    hak__uheap_inherit(heap(3));
}

/* As malloc does: by the word, else as request.c does for a default. */
static void *malloc_by_default(void)
{
    size_t n = hak__classes[SMALL].size;
    void *p = hak__pop_from(hak__heap_current(), hak__bin_of_mid(n));
    p = p != NULL ? p : hak__uheap_alloc_class(heap(1)->share.standard, SMALL, n, "malloc");
    note_taken(p);
    EXPLORE_EXPECT(hak__uheap_of(p) == own, "a default heap has not served");
    EXPLORE_EXPECT(hak__heap_current() == heap(2) && hak__heap_mine() == heap(1), "the word does not lead to the share");
    return p;
}

/* One block comes back, one stays, and one is of the thread's own heap. */
static void *homely;
static void work_by_default(void)
{
    set_default();
    void *p = malloc_by_default(), *q = malloc_by_default();
    note_given(p);
    hak_free(p);
    free_block(0);
    note_given(homely);
    hak_free(homely);
    note_given(q);
    hak_free(q);
}
static void work_by_default_and_leave(void)
{
    set_default();
    void *p = malloc_by_default();
    leave(); /* as hak_collect does */
    EXPLORE_EXPECT(hak__heap_current() != heap(2), "the word leads to a share that the thread has left");
    note_given(p);
    hak_free(p);
    p = malloc_by_default();
    note_given(p);
    hak_free(p);
}
static void with_home(void)
{
    with_bin_of_2();
    homely = take(1, SMALL);
}
static void new_threads_none(void) { hak__uheap_set_inherited(NULL, "inherited"); }
static void new_threads_other(void) { hak__uheap_set_inherited(other, "inherited"); }
static void new_threads_none_and_destroy(void)
{
    new_threads_none();
    destroy();
}

static void is_default(void)
{
    begin_owns();
    hak__uheap_set_standard(heap(1), own, "hak_heap_set_default");
}

static void is_inherited(void)
{
    begin_owns();
    hak__uheap_set_inherited(own, "inherited");
}

/* --- what holds at the end -------------------------------------------------------------------------------------------------- */

static unsigned in_chain(const struct hak_heap *share)
{
    unsigned found = 0, steps = 0;
    for (; share != NULL; share = share->share.chained) {
        EXPLORE_EXPECT(++steps <= WORLD_HEAPS, "a thread's shares are chained in a cycle");
        found += share == heap(2);
    }
    return found;
}

static unsigned in_table(uint32_t id)
{
    const struct hak_share_table *table = &heap(id)->shares;
    unsigned found = 0;
    for (size_t i = 0; i < HAK_SHARE_BUCKETS && table->buckets != NULL; i++)
        found += in_chain(table->buckets[i]);
    EXPLORE_EXPECT(table->count == found, "a thread does not know how many shares it has");
    return found;
}

static unsigned in_heap(const struct hak_uheap *of)
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
    unsigned of_threads = in_table(1) + in_table(3);
    struct hak_heap *user = atomic_load(&heap(2)->user);
    const struct hak_uheap *is_of = heap(2)->own;
    EXPLORE_EXPECT((is_of == NULL) == (of_heaps == 0) && of_heaps <= 1, "a share is in a heap that it is not of");
    EXPLORE_EXPECT(is_of == NULL || (hak__uheap_is_alive(is_of) && in_heap(is_of) == 1), "a share is of a heap that has ended");
    EXPLORE_EXPECT(of_threads <= 1 && (of_threads == 1) == (user != NULL), "a share is another thread's than it says");
    struct hak_heap *waits = spare(), *again = spare();
    EXPLORE_EXPECT((waits != NULL) == (of_heaps + of_threads == 0), "a share that is in use waits for a heap, or is lost");
    EXPLORE_EXPECT(again == NULL, "a share waits twice");
    if (waits != NULL)
        hak__share_retire(waits);
}

static void check_defaults(void)
{
    const struct hak_uheap *inherited = hak__uheap_set_inherited(NULL, "check");
    const struct hak_uheap *both[] = { own, other };
    for (unsigned i = 0; i < 2; i++) {
        unsigned of_threads = (heap(1)->share.standard == both[i]) + (heap(3)->share.standard == both[i]);
        EXPLORE_EXPECT(atomic_load(&both[i]->standards) == of_threads, "a heap does not know whose default it is");
        EXPLORE_EXPECT(hak__uheap_is_alive(both[i]) || of_threads + (inherited == both[i]) == 0,
                       "a default is a heap that has ended");
    }
    hak__uheap_drop_standard(heap(1));
    hak__uheap_drop_standard(heap(3));
}

/* For the next schedule, and to see that a heap that is left can end. */
static void end_owns(void)
{
    if (hak__uheap_is_alive(own))
        hak__uheap_destroy(own, "check");
    if (hak__uheap_is_alive(other))
        hak__uheap_destroy(other, "check");
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
    if (!hak__uheap_is_alive(own))
        forget_blocks();
    check();
    end_owns();
}

static void check_ended(void)
{
    EXPLORE_EXPECT(!hak__uheap_is_alive(own) && !reported_by[0], "the heap has not ended");
    check_owns();
}

static void check_just_one(void)
{
    EXPLORE_EXPECT(reports == 1, "of two that exclude one another both went well, or none");
    check_owns();
}

/* Either may see the other; the first to end the program ends both. */
static void check_one_at_least(void)
{
    EXPLORE_EXPECT(reports != 0, "of two that exclude one another both went well");
    check_owns();
}

static void check_no_report(void)
{
    EXPLORE_EXPECT(reports == 0, "a report of what is right");
    check_owns();
}

/* No thread caches or holds back anything of the heap's any more. */
static void check_fast(void)
{
    explore_resumed();
    leave();
    hak__uheap_leave(heap(3));
    if (!explore_directly())
        return;
    for (uint32_t id = 1; id <= WORLD_HEAPS; id++) {
        EXPLORE_EXPECT(hak__heap_lock(heap(id)), "a heap is lost");
        hak__outbox_flush(heap(id), "free");
        hak__heap_unlock(heap(id));
    }
    check_no_report();
}

static void check_huge(void)
{
    EXPLORE_EXPECT(atomic_load(&own->account.used) == 0, "a new heap has used something, or less than nothing");
    EXPLORE_EXPECT(hak__huge_usable(huge_start()) == 0 && own->first_huge == 0, "the block is still there");
    EXPLORE_EXPECT(hak__uheap_of_huge(HAK_SUPER_SLABS) == NULL, "a heap has a huge block that has ended");
    check_no_report();
}

static const struct explore_case cases[] = {
    { "a heap is merged, another thread frees", 3, 2, with_bin_of_2, { merge_and_say, free_elsewhere }, check_fast, 2, 2 },
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
    { "a heap is merged, its thread frees", 3, 2, with_bin_of_2, { merge_and_say, free_own }, check_fast, 1, 1 },
    { "a heap is merged, its thread's bin overflows", 2, 2, with_bin_of_1, { merge_and_say, free_two }, check_fast, 1, 1 },
    { "a heap is merged, its thread goes on", 2, 2, with_bin_of_2, { merge_and_say, free_then_allocate }, check_fast, 1, 1 },
    { "a heap is merged, two free", 1, 3, with_bin_of_2, { merge_and_say, free_own, free_elsewhere }, check_fast, 1, 1 },
    { "a heap is merged, its large block is freed", 3, 2, with_large, { merge_and_say, free_large }, check_fast, 2, 1 },
    { "a thread takes from another's share", 2, 2, with_the_only_share, { allocate_beside, allocate_and_free }, check_fast, 1, 1 },
    { "a thread takes from a share that is left", 2, 2, with_the_only_share, { allocate_beside, allocate_and_leave }, check_fast, 1, 1 },
    { "a heap is squeezed, its thread goes on", 2, 2, with_bin_of_2, { squeeze, allocate_and_free }, check_fast, 1, 1 },
    { "a heap is squeezed, its thread ends", 2, 2, with_bin_of_2, { squeeze, allocate_and_leave }, check_fast, 1, 1 },
    { "a step collects, its thread goes on", 2, 2, with_bin_of_2, { collect_for_share, allocate_and_free }, check_fast, 1, 1 },
    { "a heap ends, its huge block is freed", 2, 2, with_huge, { merge_and_begin_anew, free_huge_block }, check_huge, 1, 1 },
    { "it becomes a thread's default", 6, 2, begin_owns, { destroy, set_default }, check_one_at_least },
    { "a default heap is squeezed", 2, 2, with_home, { squeeze, work_by_default }, check_fast, 1, 1 },
    { "a step collects for a default heap", 2, 2, with_home, { collect_for_share, work_by_default }, check_fast, 1, 1 },
    { "a default heap's block is freed elsewhere", 2, 2, with_home, { free_elsewhere, work_by_default }, check_fast, 1, 1 },
    { "a thread leaves its default heap's share", 2, 2, with_home, { squeeze, work_by_default_and_leave }, check_fast, 1, 1 },
    { "it is a default no longer", EXPLORE_ALL, 2, is_default, { destroy, set_none }, check_owns },
    { "a new thread begins with it", 4, 2, is_inherited, { inherit, new_threads_none_and_destroy }, check_owns },
    { "new threads begin with another", 3, 3, is_inherited, { inherit, new_threads_other, inherit_3 }, check_no_report, 1, 1 },
    { "two change what new threads begin with", 3, 3, is_inherited, { inherit, new_threads_other, new_threads_none }, check_no_report,
      1, 1 },
    /* These count for the model of weak orders more words than it has room for; the stack of ids is that of race_park.c. */
    { "an id comes back while one is taken", 4, 2, with_spare, { give_back_2, take_one }, check_ids },
    { "an id comes back beside a step", 4, 2, with_spare, { give_back_2, collect_for_share }, check_ids },
    { "ids are taken and come back", 3, 2, with_ids, { take_and_give_back, take_one }, check_ids },
    { "two take an id, a step looks", 2, 3, with_ids, { take_one, take_two, collect_for_share }, check_ids, 1, 1 },
};
enum { CASES = sizeof cases / sizeof cases[0], CASES_OF_IDS = 4 };

int main(int argc, char **argv) { return explore_main(cases, weak_begin != NULL ? CASES - CASES_OF_IDS : CASES, argc, argv); }
