/* The slow parts of request.h. */
#include "process/request.h"

#include <errno.h>
#include <limits.h>

#include "arena/arena.h"
#include "arena/limit.h"
#include "cache/cache.h"
#include "cache/large_cache.h"
#include "guard/check.h"
#include "harden/harden.h"
#include "harden/mode.h"
#include "huge/huge.h"
#include "os/os.h"
#include "process/process.h"
#include "profile/profile.h"
#include "stats/stats.h"
#include "upkeep/upkeep.h"
#include "userheap/userheap.h"

/* Counts the huge blocks that the first thread freed before it had a heap. */
static hak_noinline void note_freed_before(struct hak_heap *heap)
{
    hak__heap_idle_more(heap, hak_counted(&hak__arena_published.dirty));
    hak__polling_hurry(heap);
}

struct hak_heap *hak__request_heap_slow(void)
{
    struct hak_heap *heap = !hak__thread_has_exited() && hak__start() ? hak__thread_attach() : NULL;
    if (heap != NULL && heap->id == 1 && hak_counted(&hak__arena_published.dirty) != 0)
        note_freed_before(heap);
    return heap;
}

/* Whether a refill has left this request to a guarded sample: the calling thread's heap, or its share of the user heap. */
static bool guard_is_due(struct hak_heap *heap, struct hak_uheap *own, uint32_t class)
{
    if (!hak__guarded_wanted() || hak__sample.bytes == 0 || class > HAK_CLASS_MID_LAST)
        return false;
    if (own != NULL)
        heap = hak__uheap_attach(heap, own, "malloc");
    if (heap == NULL || !hak__heap_lock(heap))
        return false;
    bool due = hak_peek(&heap->own) == own && hak__cache_sample_due(heap, class);
    hak__heap_unlock(heap);
    return due;
}

void *hak__request_sample(struct hak_uheap *own, size_t align, size_t n)
{
    bool counting = hak__profile_counts();
    struct hak_heap *heap = counting || hak__guarded_wanted() ? hak__request_heap() : NULL;
    bool without = n == 0 && hak__hardened.on; /* blocks of no bytes stay inaccessible (harden/zero_size.c) */
    if (heap == NULL || without)
        return NULL;
    if (own == NULL && heap != hak__heap_current())
        own = heap->share.standard;
    bool counts = counting && hak__profile_due(heap, n);
    bool guarded = guard_is_due(heap, own, hak__hardened.on ? hak__harden_class(align, n) : hak__aligned_class(align, n));
    if (!counts && !guarded)
        return NULL;
    void *block = hak__sample_take(align, n, guarded, counts, own != NULL ? &own->samples : NULL);
    if (counts)
        hak__profile_poll(heap, hak__os->now_ms()); /* every other poll may be 63 samples away */
    hak__request_end(heap); /* the only occasion for a thread whose requests all hit */
    return block;
}

void hak__request_note(void *block, size_t n)
{
    struct hak_heap *heap = block != NULL && hak__profile_counts() ? hak__request_heap() : NULL;
    struct hak_uheap *own = heap != NULL ? hak__uheap_of(block) : NULL;
    if (heap != NULL)
        hak__profile_note(heap, block, n, own != NULL ? &own->samples : NULL);
}

static size_t collect(void flush(struct hak_heap *))
{
    struct hak_heap *heap = hak__heap_mine();
    if ((heap->mode & HAK_MODE_SENTINEL) == 0 && hak__heap_lock(heap)) {
        hak__uheap_leave(heap);
        hak__heap_collect(heap);
        flush(heap);
        hak__heap_unlock(heap);
    }
    return hak__upkeep_step(hak__os->now_ms(), HAK_UPKEEP_ALL);
}

size_t hak__request_collect(void) { return collect(hak__cache_flush); }

static void flush_most(struct hak_heap *heap)
{
    hak__cache_leave(heap, HAK_LEFT_WITHOUT_MEMORY);
    hak__cache_take_up(heap); /* the blocks are still this thread's */
}

/* Only a part of what is mapped can be released: too little for a request RELIEF_SHARE times as long. */
enum { RELIEF_SHARE = 16, RELIEF_TURNS = 32, RELIEF_MS = 100, ANSWER_NAPS = 4 };

/* Changes when this thread has freed memory, or any other has in larger steps or has ended. */
static uint64_t relief_state(void)
{
    struct hak_heap *heap = hak__heap_mine();
    bool has = (heap->mode & HAK_MODE_SENTINEL) == 0;
    return hak__heap_parkings() + hak_counted(&hak__arena_published.mapped)
         + (has ? hak_counted(&heap->polling.idle_bytes) + hak__cache_bytes(heap) : 0);
}

/* A program that keeps asking in vain is mostly spared the walk, and of threads that ask at once one walks. */
bool hak__request_relieve(size_t n)
{
    static hak_rare_data _Atomic uint64_t state_then, then_ms;
    static hak_rare_data _Atomic uint32_t turns;
    uint64_t now = hak__os->now_ms(), mapped = hak_counted(&hak__arena_published.mapped);
    hak__upkeep_await();
    if (mapped < n / RELIEF_SHARE || hak_counted(&hak__arena_published.mapped) < mapped)
        return false;
    if (relief_state() == hak_load(&state_then, HAK_RELAXED) && now - hak_load(&then_ms, HAK_RELAXED) < RELIEF_MS
        && hak_fetch_add(&turns, 1, HAK_RELAXED) % RELIEF_TURNS != 0)
        return false;
    /* For a long request SuperSlabs have to become whole; in what then stays unused there is room for a report. */
    collect(n > HAK_MID_MAX ? hak__cache_flush : flush_most);
    hak_store(&then_ms, now, HAK_RELAXED);
    hak_store(&state_then, relief_state(), HAK_RELAXED);
    return hak__bins_want();
}

struct hak_heap *hak__request_apart(void)
{
    struct hak_heap *heap = hak__request_heap();
    if (hak_likely(heap == NULL || heap == hak__heap_current()))
        return NULL;
    hak__heap_set_current(heap);
    return heap;
}

void hak__request_apart_end(struct hak_heap *heap)
{
    if (heap != NULL && heap == hak__heap_current())
        hak__uheap_lead(heap);
}

void *hak__fail(int code)
{
    errno = code;
    return NULL;
}

void *hak__no_memory(void) { return hak__fail(ENOMEM); }

/* Huge blocks need no heap, but a thread that has one polls upkeep for them. */
void hak__poll_huge(size_t given, size_t taken)
{
    struct hak_heap *heap = hak__heap_mine();
    hak__background_poll();
    if ((heap->mode & HAK_MODE_SENTINEL) != 0)
        return;
    hak__heap_idle_more(heap, given);
    hak__heap_idle_less(heap, taken);
    hak__upkeep_poll_now(heap);
}

/* A program may end small heaps all the time, so only much is looked at at once. */
void hak__poll_ended(size_t bytes)
{
    struct hak_heap *heap = hak__heap_mine();
    if ((heap->mode & HAK_MODE_SENTINEL) != 0) {
        hak__background_poll();
        return;
    }
    hak__heap_idle_more(heap, bytes);
    if (hak_counted(&heap->polling.idle_bytes) >= HAK_POLLING_MUCH)
        hak__polling_hurry(heap);
    hak__upkeep_poll(heap);
}

void hak__request_end(struct hak_heap *heap)
{
    if (hak_likely(heap != NULL))
        hak__upkeep_poll(heap);
    if (hak_unlikely(hak_load(&hak__limit_notices, HAK_RELAXED) != 0))
        hak__limit_deliver_slow();
    if (hak_unlikely(hak__option(HAK_OPTION_check) > 1))
        hak__check_count();
}

/* --- a block -------------------------------------------------------------------------------------------------------------- */

/* For a thread that has returned its heap or finds none: the system refuses memory for a new one, or there are too many. */
static hak_cold void *alloc_late(uint32_t class, size_t n)
{
    struct hak_heap *heap = hak__exit_heap_lock();
    if (heap == NULL)
        return NULL;
    void *block = hak__heap_malloc(heap, class, n);
    hak__exit_heap_unlock();
    return block;
}

hak_inline void *alloc_class(uint32_t class, size_t n)
{
    struct hak_heap *heap = hak__request_enter();
    void *block = NULL;
    if (hak_unlikely(heap != hak__heap_current()) && heap != NULL) { /* a user heap is the thread's default */
        hak__heap_unlock(heap);
        return hak__uheap_alloc_class(heap->share.standard, class, n, "malloc");
    }
    if (hak_likely(heap != NULL)) {
        block = hak__heap_malloc(heap, class, n);
        if (hak_unlikely(block == NULL) && !hak__hardened.on)
            block = hak__heap_take_last(heap, class, n);
        hak__heap_unlock(heap);
    } else if (hak__has_started()) {
        block = alloc_late(class, n);
    }
    hak__request_end(heap);
    return block;
}

/* Requests for small aligned blocks come here as plain ones; entry/aligned.c has passed them on. */
static void *alloc_aside(const struct hak_os_malloc *aside, size_t align, size_t n)
{
    return n > HAK_MID_MAX ? aside->memalign(align, n) : aside->malloc(n);
}

static hak_cold void *alloc_class_again(uint32_t class, size_t n)
{
    const struct hak_os_malloc *aside = hak__os_aside();
    size_t size = hak__classes[class].size;
    if (aside != NULL)
        return alloc_aside(aside, hak_min(size & -size, HAK_SLAB_SIZE), n);
    if (hak__heap_current() != hak__heap_mine()) /* a default heap has done so already */
        return NULL;
    bool asked = hak__request_relieve(size);
    void *block = alloc_class(class, n);
    for (unsigned naps = 0; asked && block == NULL && naps < ANSWER_NAPS; naps++) {
        hak__nap(UINT_MAX);
        block = alloc_class(class, n);
    }
    return block != NULL ? block : hak__no_memory();
}

static hak_noinline void *alloc_huge(size_t n, size_t align, bool *zero)
{
    if (hak_unlikely(n > PTRDIFF_MAX || align > PTRDIFF_MAX || !hak__start())) {
        const struct hak_os_malloc *aside = hak__os_aside();
        return aside != NULL ? alloc_aside(aside, align, n) : hak__no_memory();
    }
    struct hak_uheap *standard = hak__request_standard();
    if (hak_unlikely(standard != NULL))
        return hak__uheap_alloc_huge(standard, n, align, zero, "malloc");
    void *block = hak__huge_alloc(n, align, zero);
    if (hak_unlikely(block == NULL)) {
        hak__request_relieve(n);
        block = hak__huge_alloc(n, align, zero);
    }
    hak__poll_huge(0, block != NULL ? n : 0);
    return hak_likely(block != NULL) ? block : hak__no_memory();
}

/* Under HAKMEM_LATENCY: one of the two functions below; HAK_CLASSES: the huge one. */
static hak_cold void *alloc_timed(uint32_t class, size_t n, size_t align, bool *zero)
{
    uint64_t started = hak__latency_now();
    void *block = class < HAK_CLASSES ? alloc_class(class, n) : alloc_huge(n, align, zero);
    if (block == NULL && class < HAK_CLASSES)
        block = alloc_class_again(class, n);
    hak__latency_add(HAK_LATENCY_MALLOC, started);
    return block;
}

void *hak__alloc_class(uint32_t class, size_t n)
{
    if (hak_unlikely(hak__option(HAK_OPTION_latency) != 0))
        return alloc_timed(class, n, HAK_ALIGN, NULL);
    void *block = alloc_class(class, n);
    return hak_likely(block != NULL) ? block : alloc_class_again(class, n);
}

void *hak__alloc_huge(size_t n, size_t align, bool *zero)
{
    if (hak_unlikely(hak__option(HAK_OPTION_latency) != 0))
        return alloc_timed(HAK_CLASSES, n, align, zero);
    return alloc_huge(n, align, zero);
}

void *hak__alloc_class_zeroed(uint32_t class, bool *zero)
{
    struct hak_heap *heap = hak__heap_current();
    *zero = false;
    if (heap->closed_reasons[class] != 0)
        return hak__alloc_class(class, hak__classes[class].size);
    void *block = hak__cache_pop(&heap->bins[class]);
    if (block != NULL) {
        hak__mark_live(block);
        return block;
    }
    if (hak__heap_lock(heap)) {
        block = hak__heap_take_zeroed(heap, class);
        hak__heap_unlock(heap);
        hak__request_end(NULL);
    }
    *zero = block != NULL;
    return *zero ? block : hak__alloc_class(class, hak__classes[class].size);
}

/* --- bins, closed or not ---------------------------------------------------------------------------------------------- */

/* Opens the class if nothing has used it so far; returns whether its bin is open now. */
hak_inline bool is_open_now(struct hak_heap *heap, uint32_t index)
{
    if ((heap->closed_reasons[index] & HAK_CLOSED_UNCACHED) != 0 && heap->classes[index].bottom == NULL)
        hak__cache_open_class(heap, index);
    return heap->closed_reasons[index] == 0;
}

void *hak__closed_malloc(struct hak_heap *heap, uint32_t index, size_t n)
{
    if (is_open_now(heap, index) && !hak__hardened.on)
        return hak__heap_malloc(heap, index, n);
    struct hak_heap_class *class = &heap->classes[index];
    uint32_t reasons = heap->closed_reasons[index] | (hak__hardened.on ? HAK_CLOSED_HARDENED : 0);
    if ((reasons & (HAK_CLOSED_EXACT | HAK_CLOSED_HARDENED)) != HAK_CLOSED_HARDENED)
        hak_count(&class->mallocs, 1);
    if ((reasons & HAK_CLOSED_HARDENED) != 0)
        return hak__harden_take(heap, index, n);
    void *block = NULL;
    if ((reasons & HAK_CLOSED_LARGE) != 0)
        block = hak__large_cache_refill(heap, index);
    else if ((reasons & HAK_CLOSED_UNCACHED) != 0 || (block = hak__cache_pop(&class->hidden)) == NULL)
        block = hak__cache_refill(heap, index);
    if (block != NULL)
        hak__mark_live(block);
    return block;
}

void hak__closed_free(struct hak_heap *heap, uint32_t index, void *block, const char *function)
{
    if (is_open_now(heap, index)) {
        hak__heap_free(heap, index, block, function);
        return;
    }
    struct hak_heap_class *class = &heap->classes[index];
    uint32_t reasons = heap->closed_reasons[index];
    hak_count(&class->frees, 1);
    if ((reasons & HAK_CLOSED_LARGE) != 0)
        hak__large_cache_push(heap, index, block, function);
    else if ((reasons & HAK_CLOSED_UNCACHED) != 0 || !hak__cache_push(&class->hidden, block))
        hak__cache_overflow(heap, index, block, function);
}
