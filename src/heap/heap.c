/* Heaps as a whole: ids, memory, and the list of parked heaps, whose threads have ended. See heap.h.
 *
 * The list is a stack with a count of changes, so that a heap taken and put back meanwhile is noticed (ABA). */
#include "heap/heap.h"

#include "base/assert.h"
#include "harden/mode.h"
#include "os/os.h"

_Atomic uint32_t hak__heap_last;
bool hak__heaps_are_shared;

/* --- ids and their memory -------------------------------------------------------------------------------------------- */

static struct hak_heap *heap_begin(uint32_t id, size_t mapped)
{
    struct hak_heap *heap = hak__heap_by_id(id);
    heap->id = id;
    heap->slots.mapped = (uint32_t)mapped;
    heap->tag = hak__owner_word(id, 0);
    heap->generation = hak_read_mostly(&hak__window.generation);
    return heap;
}

void hak__heap_renew(struct hak_heap *heap)
{
    hak_assert(!hak__heap_is_share(heap), "a share's words have no generation");
    uint32_t tag = hak__owner_word(heap->id, 0), change = tag ^ heap->tag;
    if (heap->to_share != 0)
        heap->share_tag ^= change;
    heap->tag = tag;
}

/* The ids of heaps that were given back: a stack like that of the parked ones, pushes << 32 | the id given back last. A word per id
 * holds its number of pages and the next id on the stack; the heap's own memory is gone. */
_Static_assert(HAK_HEAP_STRIDE / 4096 < 1u << (32 - HAK_HEAP_ID_BITS), "an id and a number of pages fit");
static _Atomic uint64_t given_back;
static _Atomic(_Atomic uint32_t *) given_back_words;

static struct hak_heap *heap_again(void)
{
    uint64_t head = hak_load(&given_back, HAK_ACQUIRE);
    while ((uint32_t)head != 0) {
        uint32_t id = (uint32_t)head, word = hak_load(&hak_load(&given_back_words, HAK_RELAXED)[id], HAK_RELAXED);
        uint64_t after = head >> 32 << 32 | (word & (HAK_HEAPS_MAX - 1)); /* a push in between makes the exchange fail (ABA) */
        /* acquire: pairs with the release in hak__heap_give_back; the memory is zero. */
        if (hak_cas_weak(&given_back, &head, after, HAK_ACQUIRE, HAK_ACQUIRE))
            return heap_begin(id, (size_t)(word >> HAK_HEAP_ID_BITS) * hak__page_size());
    }
    return NULL;
}

static _Atomic uint32_t *words_for_ids(void)
{
    _Atomic uint32_t *words = hak_load(&given_back_words, HAK_ACQUIRE), *none = NULL;
    if (words != NULL || (words = hak__meta_alloc(HAK_HEAPS_MAX * sizeof *words)) == NULL)
        return words;
    return hak_cas_strong(&given_back_words, &none, words, HAK_ACQ_REL, HAK_ACQUIRE) ? words : none;
}

static void counters_add(hak_counter *to, const hak_counter *from, size_t bytes)
{
    for (size_t i = 0; i < bytes / sizeof *to; i++)
        hak_count(&to[i], hak_counted(&from[i]));
}

/* The figures are sums over all heaps, so any heap's counters will do. */
static void count_for(struct hak_heap *heir, struct hak_heap *heap)
{
    size_t from = offsetof(struct hak_heap_class, refilled), bytes = sizeof(struct hak_heap_class) - from;
    counters_add((hak_counter *)&heir->counts, (hak_counter *)&heap->counts, sizeof heap->counts);
    for (uint32_t c = 0; c < HAK_CLASSES; c++)
        counters_add((hak_counter *)((char *)&heir->classes[c] + from), (hak_counter *)((char *)&heap->classes[c] + from), bytes);
}
_Static_assert(offsetof(struct hak_heap_class, warm_prefilled) + sizeof(hak_counter) == sizeof(struct hak_heap_class),
               "a class ends with its counters");
_Static_assert(sizeof(struct hak_heap_counts) % sizeof(hak_counter) == 0, "all of them are counters");

static _Atomic(void *) bitmaps_left[HAK_BITMAP_SIZES]; /* by heaps that were given back or had enough, by size */

/* Takes all that are left of the size and puts the unneeded ones back, unless others have come meanwhile. It never pops a single
 * one, so there is no ABA. acquire and release: the heaps that left them no longer use them. */
static void *bitmaps_take_left(void **head, _Atomic(void *) *left)
{
    void *memory = hak_load(left, HAK_RELAXED) == NULL ? NULL : hak_exchange(left, NULL, HAK_ACQUIRE), *none = NULL;
    void *rest = memory == NULL ? NULL : *(void **)memory;
    if (rest != NULL && !hak_cas_strong(left, &none, rest, HAK_RELEASE, HAK_RELAXED))
        *head = rest;
    return memory;
}

void *hak__bitmaps_take(struct hak_heap *heap, size_t bytes)
{
    hak_assert(bytes != 0 && bytes % HAK_BITMAP_UNIT == 0 && bytes / HAK_BITMAP_UNIT <= HAK_BITMAP_SIZES, "a size of bitmaps");
    size_t size = bytes / HAK_BITMAP_UNIT - 1;
    void **head = &heap->sources.bitmaps[size], *memory = *head;
    if (memory != NULL)
        *head = *(void **)memory;
    else if ((memory = bitmaps_take_left(head, &bitmaps_left[size])) == NULL)
        memory = hak__meta_alloc(bytes);
    return memory;
}

static void bitmaps_put(_Atomic(void *) *left, void *memory)
{
    void *head = hak_load(left, HAK_RELAXED);
    do
        *(void **)memory = head;
    while (!hak_cas_weak(left, &head, memory, HAK_RELEASE, HAK_RELAXED));
}

static void bitmaps_leave(struct hak_heap *heap)
{
    for (size_t size = 0; size < HAK_BITMAP_SIZES; size++)
        for (void *memory = heap->sources.bitmaps[size], *next; memory != NULL; memory = next) {
            next = *(void **)memory;
            bitmaps_put(&bitmaps_left[size], memory);
        }
}

/* A heap keeps a few of a size: it may end the spans of others, by adoption or a merge, and need none itself. The word behind the link
 * counts those that follow, at least. */
void hak__bitmaps_give(struct hak_heap *heap, void *memory, size_t bytes)
{
    enum { KEPT = 16 };
    size_t size = bytes / HAK_BITMAP_UNIT - 1;
    hak_assert(memory != NULL && size < HAK_BITMAP_SIZES, "bitmaps of a span that has ended");
    void **head = &heap->sources.bitmaps[size];
    uintptr_t follow = *head == NULL ? 0 : ((const uintptr_t *)*head)[1] + 1;
    ((uintptr_t *)memory)[1] = follow < KEPT ? follow : 0;
    if (follow >= KEPT) {
        bitmaps_put(&bitmaps_left[size], memory);
        return;
    }
    *(void **)memory = *head;
    *head = memory;
}

bool hak__heap_give_back(struct hak_heap *heap, struct hak_heap *heir)
{
    hak_assert(hak__lock_word_is_mine(&heap->lock) && hak__lock_word_is_mine(&heir->lock), "both are locked");
    hak_assert(heap->own == NULL && heap->share.first_span == 0 && hak_load(&heap->pending, HAK_RELAXED) == NULL
                   && heap->quarantine == NULL && !heap->budget.in_process,
               "nothing is left of a heap that is given back");
    uint32_t id = heap->id, pages = (uint32_t)(heap->slots.mapped / hak__page_size());
    _Atomic uint32_t *words = words_for_ids();
    if (words == NULL)
        return false;
    count_for(heir, heap);
    bitmaps_leave(heap);
    hak__lock_note(hak__heap_rank(heap, HAK_OWNER), -1);
    /* release: a thread that sees the old state may still lock the heap, but then sees this one and leaves (hak__enter_foreign). */
    hak_store(&heap->state, HAK_HEAP_NEW, HAK_RELEASE);
    hak__heap_forget(heap, heap->slots.mapped); /* the lock too */
    uint64_t head = hak_load(&given_back, HAK_RELAXED);
    do
        hak_store(&words[id], pages << HAK_HEAP_ID_BITS | (uint32_t)head, HAK_RELAXED);
    while (!hak_cas_weak(&given_back, &head, ((head >> 32) + 1) << 32 | id, HAK_RELEASE, HAK_RELAXED));
    return true;
}

/* A heap that was given back, or a new one with an id below `end`. */
static struct hak_heap *heap_new_below(uint32_t end)
{
    struct hak_heap *again = heap_again();
    if (again != NULL)
        return again;
    uint32_t id = hak_load(&hak__heap_last, HAK_RELAXED);
    size_t bytes;
    do {
        if (id + 1 >= end || hak__heap_memory(id + 1, &bytes) == NULL)
            return NULL;
        /* release: pairs with hak__heap_last_id; the memory below the new id exists. */
    } while (!hak_cas_weak(&hak__heap_last, &id, id + 1, HAK_RELEASE, HAK_RELAXED));
    return heap_begin(id + 1, bytes);
}

struct hak_heap *hak__heap_new(void) { return heap_new_below(HAK_HEAPS_MAX - 1); }
struct hak_heap *hak__heap_new_last(void) { return heap_new_below(HAK_HEAPS_MAX); }

/* --- parked heaps ----------------------------------------------------------------------------------------------------- */

static _Atomic uint64_t parked; /* changes << 32 | id of the first; id 0: none */
static _Atomic uint32_t borrowers;

enum { BORROW_TRIES = 128 };

static uint64_t head_with(uint64_t before, uint32_t id) { return ((before >> 32) + 1) << 32 | id; }

void hak__heap_park(struct hak_heap *heap)
{
    hak_assert(heap->id != 0 && hak__heap_is_open(hak_load(&heap->state, HAK_RELAXED)), "a heap that serves");
    hak_store(&heap->state, HAK_HEAP_PARKED, HAK_RELAXED);
    uint64_t head = hak_load(&parked, HAK_RELAXED);
    do
        hak_store(&heap->parked_next, (uint32_t)head, HAK_RELAXED);
    /* release: pairs with the acquire in hak__heap_unpark; the next thread sees the heap as this one left it. */
    while (!hak_cas_weak(&parked, &head, head_with(head, heap->id), HAK_RELEASE, HAK_RELAXED));
}

uint64_t hak__heap_parkings(void) { return hak_load(&parked, HAK_RELAXED); }

static struct hak_heap *first_parked(void)
{
    uint64_t head = hak_load(&parked, HAK_ACQUIRE);
    while ((uint32_t)head != 0) {
        struct hak_heap *heap = hak__heap_by_id((uint32_t)head);
        uint32_t next = hak_load(&heap->parked_next, HAK_RELAXED);
        /* acquire: the heap as it was left. release: a thread that misses it in the list sees that it is borrowed
         * (hak__heap_take_up). */
        if (hak_cas_weak(&parked, &head, head_with(head, next), HAK_ACQ_REL, HAK_ACQUIRE))
            return heap;
    }
    return NULL;
}

/* Locks a heap taken off the list when hak__fork_repairs() was `repairs`. False: the heap is not the caller's. In a child forked
 * while the caller waited, the heap was in no list and not locked, so the repair has parked it; or it is unusable. */
static bool park_lock(struct hak_heap *heap, enum hak_heap_user user, uint32_t repairs)
{
    if (hak__lock_word_is_mine(&heap->lock)) /* as a sweeper; a child has parked the heap meanwhile, so it no longer touches it */
        return false;
    if (hak_unlikely(!hak__lock_word_take(&heap->lock, user, hak__heap_rank(heap, user))))
        return false;
    if (hak_unlikely(hak__fork_repairs() != repairs)) {
        hak__heap_unlock(heap);
        return false;
    }
    if (hak_likely(!hak__hardened.on || (heap->mode & HAK_MODE_HARDENED) != 0))
        return true;
    hak__heap_lose(heap); /* opened before the options could be read: it serves no more requests */
    return false;
}

static struct hak_heap *take_parked(enum hak_heap_user user)
{
    for (;;) {
        uint32_t repairs = hak__fork_repairs();
        struct hak_heap *heap = first_parked();
        if (heap == NULL || hak_likely(park_lock(heap, user, repairs)))
            return heap;
    }
}

struct hak_heap *hak__heap_borrow(void) { return take_parked(HAK_SWEEPER); }

struct hak_heap *hak__heap_unpark(void)
{
    struct hak_heap *heap = take_parked(HAK_OWNER);
    if (heap != NULL)
        hak_store(&heap->state, HAK_HEAP_ACTIVE, HAK_RELAXED);
    return heap;
}

/* Heaps are never unmapped, so it is safe to read one that another thread has taken off the list; the walk then ends sooner or goes
 * on elsewhere. */
bool hak__heap_any_parked(bool (*wanted)(struct hak_heap *, uint32_t), uint32_t class, unsigned most)
{
    uint32_t id = (uint32_t)hak_load(&parked, HAK_ACQUIRE);
    for (; id != 0 && most > 0; most--) {
        struct hak_heap *heap = hak__heap_by_id(id);
        if (wanted(heap, class))
            return true;
        id = hak_load(&heap->parked_next, HAK_RELAXED);
    }
    return false;
}

void hak__heaps_borrow(bool begin)
{
    if (begin)
        hak_fetch_add(&borrowers, 1, HAK_RELAXED);
    else if (hak_load(&borrowers, HAK_RELAXED) != 0) /* 0: a signal handler has forked in between, and this is the child */
        hak_fetch_sub(&borrowers, 1, HAK_RELEASE); /* what was borrowed is parked again */
}

/* Waits for a borrowed heap, since another new heap would have its own slab of each class for good. Not for long: the borrower may
 * be interrupted. */
struct hak_heap *hak__heap_take_up(void)
{
    for (unsigned tries = 0;; tries++) {
        struct hak_heap *heap = hak__heap_unpark();
        if (heap != NULL || tries == BORROW_TRIES)
            return heap;
        if (hak_load(&borrowers, HAK_ACQUIRE) == 0) /* maybe none since just now */
            return hak__heap_unpark();
        hak__yield(tries);
    }
}

/* Makes the list anew: a thread absent here may have held one of its heaps, or been about to put one back. The calling thread keeps
 * the heaps that it has locked: it has interrupted itself to fork. Only a sweeper gives back a heap that has another owner, so that
 * one is parked first. */
void hak__heaps_fork_child(const struct hak_heap *mine, const struct hak_heap *shared)
{
    hak_store(&borrowers, 0, HAK_RELAXED); /* the heaps of absent borrowers are among those parked here */
    hak_store(&parked, head_with(hak_load(&parked, HAK_RELAXED), 0), HAK_RELAXED);
    for (uint32_t id = 1; id <= hak__heap_last_id(); id++) {
        struct hak_heap *heap = hak__heap_by_id(id);
        uint32_t state = hak_load(&heap->state, HAK_RELAXED), word = hak_load(&heap->lock, HAK_RELAXED);
        if (heap == mine || heap == shared || !hak__heap_is_open(state))
            continue;
        bool my_own = hak__lock_word_is_mine(&heap->lock), swept = (word & HAK_LOCK_MARK) != 0;
        if (hak__heap_is_left(heap))
            hak__heap_lose(heap);
        else if (my_own ? state == HAK_HEAP_ACTIVE && swept : state != HAK_HEAP_SHARE)
            hak__heap_park(heap);
    }
}

bool hak__heaps_fork_further(void)
{
    bool known = true;
    hak_store(&borrowers, 0, HAK_RELAXED);
    for (uint32_t id = 1; id <= hak__heap_last_id(); id++) {
        struct hak_heap *heap = hak__heap_by_id(id);
        uint32_t state = hak_load(&heap->state, HAK_RELAXED), word = hak_load(&heap->lock, HAK_RELAXED);
        bool active = state == HAK_HEAP_ACTIVE && word != HAK_LOCK_LOST && (word & HAK_LOCK_MARK) != 0;
        if (active || ((state == HAK_HEAP_PARKED || state == HAK_HEAP_SHARE) && word != HAK_LOCK_FREE))
            hak__heap_lose(heap);
        known &= !active;
    }
    return known;
}
