/* Parked heaps: those whose thread has ended, waiting for a new one. A lock-free stack of heap ids; the head carries a
 * count of changes, because single elements are popped (ABA). Heaps are never unmapped, so reading the link of one
 * that another thread has just taken is safe, and the count makes the exchange fail then. */
#include "heap/park.h"

#include "heap/heap.h"
#include "slab/hardened.h"

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

/* A heap opened before the options could be read serves no more if the process is hardened. */
static bool is_usable(struct hak_heap *heap)
{
    if (hak_unlikely(hak__hardened.on && (heap->mode & HAK_MODE_HARDENED) == 0))
        hak_store(&heap->state, HAK_HEAP_UNUSABLE, HAK_RELAXED);
    return hak_load(&heap->state, HAK_RELAXED) != HAK_HEAP_UNUSABLE;
}

struct hak_heap *hak__heap_unpark(void)
{
    struct hak_heap *heap = first_parked();
    while (heap != NULL && !is_usable(heap))
        heap = first_parked();
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

/* A parked heap that a sweeper had locked becomes unusable, but stays in the list, because those above it may be sound; threads that
 * take heaps off pass it over. */
void hak__heaps_fork_child(const struct hak_heap *mine, const struct hak_heap *shared)
{
    hak_store(&borrowers, 0, HAK_RELAXED);   /* their heaps are among those that are parked here */
    for (uint32_t id = 1; id <= hak__heap_last_id(); id++) {
        struct hak_heap *heap = hak__heap_by_id(id);
        uint32_t state = hak_load(&heap->state, HAK_RELAXED);
        if (heap == mine || heap == shared || !hak__heap_is_open(state))
            continue;
        bool in_large_cache = (hak_load(&heap->large_cache.owner_turns, HAK_RELAXED) & 1) != 0;   /* its owner; needs no lock there */
        if (hak_load(&heap->lock, HAK_RELAXED) != 0 || in_large_cache)
            hak_store(&heap->state, HAK_HEAP_UNUSABLE, HAK_RELAXED);
        else if (state == HAK_HEAP_ACTIVE)
            hak__heap_park(heap);
    }
}

bool hak__heaps_fork_further(void)
{
    bool known = true;
    hak_store(&borrowers, 0, HAK_RELAXED);
    for (uint32_t id = 1; id <= hak__heap_last_id(); id++) {
        struct hak_heap *heap = hak__heap_by_id(id);
        uint32_t state = hak_load(&heap->state, HAK_RELAXED), user = hak_load(&heap->lock, HAK_RELAXED);
        bool active = state == HAK_HEAP_ACTIVE && user == HAK_SWEEPER;
        if (active || ((state == HAK_HEAP_PARKED || state == HAK_HEAP_SHARE) && user != HAK_NOBODY))
            hak_store(&heap->state, HAK_HEAP_UNUSABLE, HAK_RELAXED);
        known &= !active;
    }
    return known;
}
