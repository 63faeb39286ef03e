/* Parked heaps: those whose thread has ended, waiting for a new one. A lock-free stack of heap ids; the head carries a
 * count of changes, because single elements are popped (ABA). Heaps are never unmapped, so reading the link of one
 * that another thread has just taken is safe, and the count makes the exchange fail then. */
#include "heap/park.h"

#include "heap/heap.h"
#include "span/hardened.h"

static _Atomic uint64_t parked;   /* changes << 32 | id of the first; id 0: none */
static _Atomic uint32_t borrowers;

enum { BORROW_TRIES = 128 };

static uint64_t head_with(uint64_t before, uint32_t id) { return ((before >> 32) + 1) << 32 | id; }

void hak__heap_park(struct hak_heap *heap)
{
    hak_store(&heap->state, HAK_HEAP_PARKED, HAK_RELAXED);
    uint64_t head = hak_load(&parked, HAK_RELAXED);
    do
        hak_store(&heap->parked_next, (uint32_t)head, HAK_RELAXED);
    /* release: pairs with the acquire in hak__heap_unpark; the next thread sees the heap as this one left it. */
    while (!hak_cas_weak(&parked, &head, head_with(head, heap->id), HAK_RELEASE, HAK_RELAXED));
}

static struct hak_heap *first_parked(void)
{
    uint64_t head = hak_load(&parked, HAK_ACQUIRE);
    while ((uint32_t)head != 0) {
        struct hak_heap *heap = hak__heap_by_id((uint32_t)head);
        uint32_t next = hak_load(&heap->parked_next, HAK_RELAXED);
        /* acquire: the heap as it was left. release: a thread that finds it gone sees that it is borrowed (hak__heap_take_up). */
        if (hak_cas_weak(&parked, &head, head_with(head, next), HAK_ACQ_REL, HAK_ACQUIRE))
            return heap;
    }
    return NULL;
}

/* Locks a heap that was taken off the list when so many children had been repaired. False: the heap is not the caller's. In a child that
 * was forked while it waited, the heap was in no list and not locked, so the repair has parked it; or it is lost. */
static bool park_lock(struct hak_heap *heap, enum hak_heap_user user, uint32_t repairs)
{
    if (hak__lock_word_is_mine(&heap->lock))   /* as a sweeper; a child has parked it meanwhile, and lets it be from now on */
        return false;
    if (hak_unlikely(!hak__lock_word_take(&heap->lock, user, hak__heap_rank(heap, user))))
        return false;
    if (hak_unlikely(hak__fork_repairs() != repairs)) {
        hak__heap_unlock(heap);
        return false;
    }
    if (hak_likely(!hak__hardened.on || (heap->mode & HAK_MODE_HARDENED) != 0))
        return true;
    hak__heap_lose(heap);   /* opened before the options could be read: it serves no more */
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

/* Heaps are never unmapped, so reading one that another thread has taken off the list is safe; the walk then ends sooner or goes on
 * elsewhere. */
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
    else if (hak_load(&borrowers, HAK_RELAXED) != 0)   /* 0: a signal handler has forked in between, and this is the child */
        hak_fetch_sub(&borrowers, 1, HAK_RELEASE);     /* what was borrowed is parked again */
}

/* Waits for a borrowed heap, since one heap more would have its own slab of each class for good. Not for long: the borrower may be
 * interrupted. */
struct hak_heap *hak__heap_take_up(void)
{
    for (unsigned tries = 0;; tries++) {
        struct hak_heap *heap = hak__heap_unpark();
        if (heap != NULL || tries == BORROW_TRIES)
            return heap;
        if (hak_load(&borrowers, HAK_ACQUIRE) == 0)   /* maybe no more, since just now */
            return hak__heap_unpark();
        hak__yield(tries);
    }
}

/* The list is made anew: a thread that does not exist here may have had a heap of it in its hands, or been about to put one back. What
 * the calling thread has locked it goes on with: it has interrupted itself to fork. Only a sweeper gives back a heap that has another
 * owner, so that is parked before. */
void hak__heaps_fork_child(const struct hak_heap *mine, const struct hak_heap *shared)
{
    hak_store(&borrowers, 0, HAK_RELAXED);   /* their heaps are among those that are parked here */
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
