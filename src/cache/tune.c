/* Capacities of the bins: first sizes, growth with use, the byte budgets of thread and process, and where their slots lie.
 *
 * Large classes have all their slots from the start; large_cache.c counts their blocks.
 *
 * Invariants, of the other classes: budget.bytes = sum of (capacity - first capacity) * size <= the thread's budget, unless that
 * was lowered; budget.process_bytes = sum of capacity * size, and large_cache.charged; the process's sum is that of the heaps
 * with budget.in_process. */
#include "cache/cache.h"

#include <string.h>

#include "arena/limit.h"
#include "arena/returned.h"
#include "arena/window.h"
#include "base/assert.h"
#include "base/bits.h"
#include "cache/experiments.h"
#include "diag/options.h"
#include "diag/report.h"
#include "harden/spans.h"
#include "heap/heap.h"

enum { FIRST_BYTES = 32 << 10, GROW_PAUSE = 256, YOUNG_BYTES = 256 };

/* The process is charged for cached large blocks in steps of this size. */
enum { CHARGE_STEP = 2 << 20 };

/* --- slots ---------------------------------------------------------------------------------------------------------------
 *
 * Slot areas are carved from the memory behind the heap's struct only as bins grow, so a thread touches no more of it than it
 * uses. */

/* An area has 16, 32, 64, ... slots and the guard word below them; returned areas are kept apart by size. A capacity between two
 * sizes gets the larger area and never touches the rest. */
static unsigned slots_order(uint32_t slots) { return slots <= HAK_SLOTS_LEAST ? 0 : hak_msb64((slots - 1) / HAK_SLOTS_LEAST) + 1; }

static bool any_slots_local(void)
{
    bool any = false;
    for (uint32_t class = HAK_CLASS_LOCAL_FIRST; class <= HAK_CLASS_LOCAL_LAST; class++)
        any |= hak__slots_are_local(class);
    return any;
}

static void slots_open(struct hak_heap *heap)
{
    heap->slots.next = heap->slots.first;
    heap->slots.end = heap->slots.first + sizeof heap->slots.first / sizeof(void *);
    heap->slots.local = any_slots_local();
    memset(heap->slots.free, 0, sizeof heap->slots.free);
}

static void **slots_end(struct hak_heap *heap) { return (void **)((char *)heap + heap->slots.mapped); }

/* Maps more of the heap's stride: doubles it, or maps only what is needed in a thrifty process. */
static bool slots_extend(struct hak_heap *heap, size_t need)
{
    size_t left = HAK_HEAP_STRIDE - heap->slots.mapped, bytes = hak_align_up(need * sizeof(void *), hak__page_size());
    if (bytes > left)
        return false;
    if (!hak__is_thrifty())
        bytes = hak_min(hak_max(bytes, heap->slots.mapped), left);
    if (!hak__heap_extend(heap->id, heap->slots.mapped, bytes))
        return false;
    heap->slots.mapped += (uint32_t)bytes;
    return true;
}

/* After the struct's own slots come the local ones, unless classes use them as such, and then what lies behind the struct. */
static bool slots_find(struct hak_heap *heap, size_t need)
{
    void **local = heap->local_slots[0], **local_end = local + sizeof heap->local_slots / sizeof(void *);
    if (heap->slots.end < local && need <= (size_t)(local_end - local) && !heap->slots.local) {
        heap->slots.next = local;
        heap->slots.end = local_end;
        return true;
    }
    void **behind = (void **)hak_align_up((uintptr_t)(heap + 1), 64);
    void **next = heap->slots.end < behind ? behind : heap->slots.next;
    if ((size_t)(slots_end(heap) - next) < need && !slots_extend(heap, need))
        return false;
    heap->slots.next = next;
    heap->slots.end = slots_end(heap);
    return true;
}

static void **slots_take(struct hak_heap *heap, uint32_t slots)
{
    hak_assert(slots <= UINT16_MAX, "a capacity, or twice a large class's");
    unsigned order = slots_order(slots);
    size_t need = ((size_t)HAK_SLOTS_LEAST << order) + 1;
    void **area = heap->slots.free[order];
    if (area != NULL) {
        heap->slots.free[order] = *area;
    } else {
        if ((size_t)(heap->slots.end - heap->slots.next) < need && !slots_find(heap, need))
            return NULL;
        area = heap->slots.next;
        heap->slots.next = area + need;
    }
    if (*area != NULL) /* fresh memory is zero and stays untouched */
        *area = NULL;
    return area + 1;
}

static void slots_give(struct hak_heap *heap, void **bottom, uint32_t slots)
{
    hak_assert(bottom[-1] == NULL, "the word below the bottom stays NULL");
    unsigned order = slots_order(slots);
    bottom[-1] = heap->slots.free[order];
    heap->slots.free[order] = bottom - 1;
}

/* --- first capacities -------------------------------------------------------------------------------------------------- */

/* Blocks above FIRST_BYTES start without capacity: the thread's budget pays for all of it. */
static uint32_t first_capacity(uint32_t class, uint32_t ceiling)
{
    if (hak__is_large(class))
        return ceiling;
    size_t by_bytes = FIRST_BYTES / hak__classes[class].size;
    return (uint32_t)hak_min(hak_min(by_bytes, HAK_SLOTS_LEAST), ceiling);
}

static uint32_t reasons_to_close(const struct hak_heap *heap, uint32_t index, bool cached)
{
    uint32_t large = hak__is_large(index) ? HAK_CLOSED_LARGE | (heap->mode & HAK_MODE_PROFILED) : 0;
    return (heap->mode & HAK_CLOSED_BY_MODE) | large | (cached ? 0 : HAK_CLOSED_UNCACHED);
}

/* Others look at bins meanwhile, for figures alone (hak__cache_count). */
static void bin_set(struct hak_bin *bin, void **top, void **end)
{
    hak_slot_store(&bin->top, top);
    hak_slot_store(&bin->end, end);
}

/* A closed bin: the visible one looks empty to a pop and full to a push, the real one is hidden. */
static void open_or_close(struct hak_heap *heap, uint32_t index)
{
    struct hak_heap_class *class = &heap->classes[index];
    uint32_t reasons = reasons_to_close(heap, index, class->capacity != 0), before = heap->closed_reasons[index];
    hak_slot_store(&heap->closed_reasons[index], (uint8_t)reasons);
    if ((reasons != 0) == (before != 0))
        return;
    if (reasons != 0) {
        bin_set(&class->hidden, heap->bins[index].top, heap->bins[index].end);
        class->absorbs = heap->absorb[index] != 0;
        heap->absorb[index] = 0; /* a limit would not say where the closed bin's top lies */
    }
    bin_set(&heap->bins[index], reasons != 0 ? HAK_CLOSED_TOP : class->hidden.top,
            reasons != 0 ? HAK_CLOSED_TOP : class->hidden.end);
}

void hak__cache_profile(struct hak_heap *heap)
{
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    heap->mode |= HAK_MODE_PROFILED;
    for (uint32_t index = HAK_CLASS_FIRST_LARGE; index < HAK_CLASSES; index++)
        open_or_close(heap, index);
}

/* --- the process's sum -------------------------------------------------------------------------------------------- */

/* Touched when a bin grows or shrinks and when a heap is opened, parked or unparked: rarely enough to be shared. It guards no
 * other memory, so its operations are relaxed. */
static hak_line_aligned _Atomic size_t all_bytes; /* away from the data that every thread reads */

size_t hak__cache_process_bytes(void) { return hak_load(&all_bytes, HAK_RELAXED); }

/* Adds to the sum if the process's budget allows. */
static bool budget_charge(struct hak_heap *heap, size_t bytes)
{
    size_t budget = hak__option(HAK_OPTION_process_budget);
    size_t before = hak_fetch_add(&all_bytes, bytes, HAK_RELAXED);
    if (budget != 0 && before + bytes > budget) {
        hak_fetch_sub(&all_bytes, bytes, HAK_RELAXED);
        return false;
    }
    heap->budget.process_bytes += bytes;
    return true;
}

static void budget_discharge(struct hak_heap *heap, size_t bytes)
{
    hak_assert(heap->budget.process_bytes >= bytes, "no more goes back than was charged");
    hak_fetch_sub(&all_bytes, bytes, HAK_RELAXED);
    heap->budget.process_bytes -= bytes;
}

bool hak__cache_charge_large(struct hak_heap *heap)
{
    if (!budget_charge(heap, CHARGE_STEP))
        return false;
    heap->large_cache.charged += CHARGE_STEP;
    return true;
}

void hak__cache_discharge_large(struct hak_heap *heap)
{
    size_t need = hak_align_up(heap->large_cache.bytes, CHARGE_STEP);
    if (heap->large_cache.charged == need)
        return; /* writes nothing: a parked heap, which charges nothing, may be unparked now */
    budget_discharge(heap, heap->large_cache.charged - need);
    heap->large_cache.charged = need;
    heap->large_cache.sure = 0;
}

/* Local slots are fixed: the class has all of them from the start and is never resized. */
static void place_locally(struct hak_heap *heap, uint32_t index)
{
    struct hak_heap_class *class = &heap->classes[index];
    void **area = heap->local_slots[index - HAK_CLASS_LOCAL_FIRST];
    *area = NULL;
    class->bottom = area + 1;
    class->ceiling = class->capacity = (uint16_t)hak_min(class->ceiling, HAK_LOCAL_SLOTS);
}

/* Every class gets its first capacity; only growth asks the budgets. */
static void count_first_capacity(struct hak_heap *heap, uint32_t index)
{
    size_t bytes = hak__is_large(index) ? 0 : (size_t)heap->classes[index].capacity * hak__classes[index].size;
    if (heap->budget.in_process)
        hak_fetch_add(&all_bytes, bytes, HAK_RELAXED);
    heap->budget.process_bytes += bytes;
}

void hak__cache_open_class(struct hak_heap *heap, uint32_t index)
{
    struct hak_heap_class *class = &heap->classes[index];
    hak_assert(hak__heap_is_mine(heap) || hak_load(&heap->state, HAK_RELAXED) == HAK_HEAP_NEW, "the caller holds the heap's lock");
    hak_assert(class->bottom == NULL && heap->closed_reasons[index] != 0, "a class is opened once");
    uint32_t ceiling = hak__bin_ceiling(index), capacity = first_capacity(index, ceiling);
    class->local = heap->slots.local && hak__slots_are_local(index);
    void **bottom = NULL;
    if (!class->local && (bottom = slots_take(heap, capacity << hak__is_large(index))) == NULL)
        return; /* the system refuses memory; the class caches nothing until it gets some */
    class->ceiling = (uint16_t)ceiling;
    class->capacity = (uint16_t)capacity;
    class->common_left = (uint8_t)hak__common_first(heap, index);
    hak_owner_store(&class->bottom, bottom);
    if (class->local)
        place_locally(heap, index);
    bin_set(&class->hidden, class->bottom, class->bottom + class->capacity);
    open_or_close(heap, index);
    count_first_capacity(heap, index);
}

/* All classes are closed until they are first used. A heap that is opened again has its bins empty; those of a new one stay untouched. */
static void close_class(struct hak_heap *heap, uint32_t index, bool again)
{
    struct hak_heap_class *class = &heap->classes[index];
    if (again && class->bottom != NULL) {
        hak_slot_store(&class->bottom, NULL);
        bin_set(&class->hidden, NULL, NULL);
        class->capacity = 0;
    }
    bin_set(&heap->bins[index], HAK_CLOSED_TOP, HAK_CLOSED_TOP);
    heap->absorb[index] = 0;
    hak_slot_store(&heap->closed_reasons[index], (uint8_t)reasons_to_close(heap, index, false));
}

/* The budget of a heap without an open class. */
static void budget_open(struct hak_heap *heap)
{
    if (heap->budget.in_process)
        hak_fetch_sub(&all_bytes, heap->budget.process_bytes, HAK_RELAXED);
    heap->budget.process_bytes = 0;
    heap->budget.in_process = true;
    heap->budget.bytes = 0;
}

/* Several small blocks share a cache line with blocks that other threads use: reusing them here would make the threads share
 * lines for good. Blocks of a line or more share only edges; but small ones are many, so a thread keeps only a few, when it runs
 * short (docs/decisions/0053). */
static bool may_absorb(uint32_t class) { return class <= HAK_CLASS_MID_LAST && hak__classes[class].size >= 64; }

void hak__cache_absorb_begin(struct hak_heap *heap, uint32_t index)
{
    hak_assert(heap->classes[index].bottom != NULL, "the class has a bin");
    struct hak_heap_class *class = &heap->classes[index];
    uint32_t most = class->capacity / 2u;
    /* Where misuse is survived such blocks go back at once, so that a second free meets their mark. */
    if ((heap->mode & HAK_MODE_SHARE) != 0 || hak__misuse_is_survived())
        return;
    if (hak__classes[index].size <= HAK_ABSORB_SMALL)
        most = (uint32_t)hak_min(most, HAK_ABSORB_MOST);
    if (class->common_left != 0) /* blocks that other threads may use are not absorbed */
        most = (uint32_t)hak_min(most, YOUNG_BYTES / hak__classes[index].size);
    if (heap->closed_reasons[index] == 0 && may_absorb(index))
        heap->absorb[index] = (uint16_t)(class->bottom + most - (void **)heap);
}

/* --- growth ------------------------------------------------------------------------------------------------------- */

/* Moves a bin into an area of another capacity that fits its contents. */
static bool bin_resize(struct hak_heap *heap, uint32_t index, uint32_t capacity)
{
    struct hak_heap_class *class = &heap->classes[index];
    struct hak_bin *bin = hak__heap_bin(heap, index);
    uint32_t held = (uint32_t)(bin->top - class->bottom), old = class->capacity;
    hak_assert(held <= capacity, "a bin fits its new area");
    hak_assert(!hak__is_large(index), "large bins keep their capacity");
    if (capacity > HAK_SLOTS_LEAST || old > HAK_SLOTS_LEAST) {
        void **bottom = slots_take(heap, capacity), **former = class->bottom;
        if (bottom == NULL)
            return false;
        memcpy(bottom, former, held * sizeof *bottom);
        bin->end = bottom; /* full until all three words agree */
        hak_owner_store(&bin->top, bottom + held);
        hak_owner_store(&class->bottom, bottom);
        slots_give(heap, former, old);
    }
    bin->end = class->bottom + capacity;
    class->capacity = (uint16_t)capacity;
    open_or_close(heap, index);
    if (heap->absorb[index] != 0)
        hak__cache_absorb_begin(heap, index);
    heap->budget.bytes += (size_t)capacity * hak__classes[index].size;
    heap->budget.bytes -= (size_t)old * hak__classes[index].size;
    return true;
}

/* Takes capacity from classes that have not moved a batch since the last visit. */
static void budget_reclaim(struct hak_heap *heap, size_t limit)
{
    for (uint32_t visited = 0; visited < HAK_CLASSES && heap->budget.bytes > limit; visited++) {
        uint32_t index = heap->budget.hand++ % HAK_CLASSES;
        struct hak_heap_class *class = &heap->classes[index];
        uint32_t first = first_capacity(index, class->ceiling), half = class->capacity / 2u;
        if (class->moves == 0 && class->capacity > first && !class->local) {
            uint32_t held = hak__cache_count(heap, index), keep = (uint32_t)hak_max(first, half);
            if (held > keep)
                hak__cache_drain(heap, index, held - keep, "free");
            size_t less = (class->capacity - keep) * (size_t)hak__classes[index].size;
            if (bin_resize(heap, index, keep))
                budget_discharge(heap, less);
        }
        if (class->moves != 0)
            class->moves = 0;
    }
}

/* With the budget spent and no class idle, searching for room at every miss would cost more than the misses. */
static bool refuse_for_a_while(struct hak_heap *heap)
{
    heap->budget.pause = GROW_PAUSE;
    return false;
}

/* The bytes that the thread may cache, large blocks excluded: the option's, plus a share of its spans' bytes. A thread with much
 * memory moves many blocks, and too small a cache spreads them over more pages, not fewer (docs/decisions/0026). */
static size_t budget_of_thread(const struct hak_heap *heap)
{
    size_t budget = hak__option(HAK_OPTION_thread_budget), slabs = 0;
    if (budget == 0)
        return 0;
    for (uint32_t class = 0; class < HAK_CLASS_FIRST_LARGE; class++)
        slabs += (size_t)hak_counted(&heap->classes[class].span_count) * hak__classes[class].slabs;
    return budget + hak__retain_share(slabs * HAK_SLAB_SIZE);
}

/* Makes `extra` bytes fit both budgets and charges the process. What a share's bins hold serves no other thread of its user heap, so
 * of a limit they have a part. */
static bool find_room(struct hak_heap *heap, uint32_t index, size_t extra)
{
    enum { LIMIT_PART = 8 };
    size_t budget = hak__option(HAK_OPTION_thread_budget);
    if (heap->budget.bytes + extra > budget)
        budget = budget_of_thread(heap);
    for (const struct hak_account *account = heap->share.account; account != NULL; account = account->above)
        budget = hak_min(budget, hak_load(&account->limit, HAK_RELAXED) / LIMIT_PART);
    if (extra > budget)
        return false;
    if (heap->budget.bytes + extra > budget)
        budget_reclaim(heap, budget - extra);
    if (heap->budget.bytes + extra > budget)
        return false;
    if (budget_charge(heap, extra))
        return true;
    heap->classes[index].moves = 1; /* it wants more, so take from it last */
    budget_reclaim(heap, heap->budget.bytes > extra ? heap->budget.bytes - extra : 0);
    return budget_charge(heap, extra);
}

/* Only a class that both misses and overflows is too small. One that only builds up or only shrinks would not gain, and would
 * keep for good the capacity that it needed once. */
bool hak__cache_grow(struct hak_heap *heap, uint32_t index)
{
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    struct hak_heap_class *class = &heap->classes[index];
    uint32_t capacity = (uint32_t)hak_min(class->ceiling, hak_max(1, 2u * class->capacity));
    if (capacity == class->capacity || !class->returned_lately || !class->missed_lately)
        return false;
    size_t extra = (capacity - class->capacity) * (size_t)hak__classes[index].size;
    if (heap->budget.pause != 0) {
        heap->budget.pause--;
        return false;
    }
    if (!find_room(heap, index, extra))
        return refuse_for_a_while(heap);
    if (!bin_resize(heap, index, capacity)) {
        budget_discharge(heap, extra);
        return refuse_for_a_while(heap);
    }
    class->returned_lately = class->missed_lately = false;
    return true;
}

/* --- first blocks ------------------------------------------------------------------------------------------------------- */

enum { FIRST_MS = 50 };

/* The common heaps serve the first blocks of each thread, and of each FIRST_MS. */
static void renew_first_blocks(struct hak_heap *heap, uint32_t now_ms)
{
    heap->first_ms = now_ms;
    for (uint32_t index = 0; index < HAK_CLASSES; index++)
        if (heap->classes[index].bottom != NULL) {
            heap->classes[index].common_left = (uint8_t)hak__common_first(heap, index);
            hak__cache_absorb_begin(heap, index);
        }
}

void hak__cache_first_end(struct hak_heap *heap, uint32_t index)
{
    uint32_t now_ms = (uint32_t)hak__os->now_ms();
    if (now_ms - heap->first_ms >= FIRST_MS)
        renew_first_blocks(heap, now_ms);
    else
        hak__cache_absorb_begin(heap, index); /* from now on as many as any class */
}

/* --- shrinkage by time ----------------------------------------------------------------------------------------------- */

static void give_back_half(struct hak_heap *heap, uint32_t index)
{
    struct hak_heap_class *class = &heap->classes[index];
    uint32_t held = hak__cache_count(heap, index), first = first_capacity(index, class->ceiling);
    uint32_t keep = (uint32_t)hak_max(first, class->capacity / 2u);
    hak__cache_drain(heap, index, (held + 1) / 2, "free");
    if (class->local || keep >= class->capacity)
        return;
    size_t less = (class->capacity - keep) * (size_t)hak__classes[index].size;
    if (bin_resize(heap, index, keep))
        budget_discharge(heap, less);
}

void hak__cache_shrink_idle(struct hak_heap *heap)
{
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    if (heap->budget.fixed)
        return;
    for (uint32_t index = 0; index < HAK_CLASS_FIRST_LARGE; index++) {
        if ((heap->closed_reasons[index] & HAK_CLOSED_UNCACHED) != 0) /* its page may be untouched */
            continue;
        struct hak_heap_class *class = &heap->classes[index];
        uint16_t moved = (uint16_t)(hak_counted(&class->refilled) + hak_counted(&class->drained));
        if (moved == class->moved_seen)
            give_back_half(heap, index);
        class->moved_seen = (uint16_t)(hak_counted(&class->refilled) + hak_counted(&class->drained));
    }
}

/* --- polling ------------------------------------------------------------------------------------------------------------ */

static void set_mode(struct hak_heap *heap, uint32_t bit, bool on)
{
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    heap->mode = on ? heap->mode | bit : heap->mode & ~bit;
    for (uint32_t index = 0; index < HAK_CLASSES; index++) {
        open_or_close(heap, index);
        if (!on && heap->classes[index].absorbs)
            hak__cache_absorb_begin(heap, index);
    }
}

void hak__cache_set_polling(struct hak_heap *heap, bool polling) { set_mode(heap, HAK_MODE_POLLING, polling); }

/* --- opening a heap ------------------------------------------------------------------------------------------------ */

static bool bin_enlarge(struct hak_heap *heap, uint32_t index, uint32_t capacity)
{
    size_t extra = (capacity - heap->classes[index].capacity) * (size_t)hak__classes[index].size;
    if (!budget_charge(heap, extra))
        return false;
    if (bin_resize(heap, index, capacity))
        return true;
    budget_discharge(heap, extra);
    return false;
}

/* HAKMEM_RING_ADAPT=0: each class gets its full capacity at once, smaller blocks first, and keeps it. */
static hak_cold void fix_capacities(struct hak_heap *heap)
{
    size_t budget = hak__option(HAK_OPTION_thread_budget);
    for (uint32_t index = 0; index < HAK_CLASS_FIRST_LARGE; index++) {
        struct hak_heap_class *class = &heap->classes[index];
        size_t room = budget > heap->budget.bytes ? (budget - heap->budget.bytes) / hak__classes[index].size : 0;
        uint32_t capacity = (uint32_t)hak_min(class->ceiling, class->capacity + room);
        while (capacity > class->capacity && !bin_enlarge(heap, index, capacity))
            capacity -= (capacity - class->capacity + 1) / 2;
        class->ceiling = class->capacity;
    }
}

uint32_t hak__cache_mode(void)
{
    uint32_t exact = hak__option(HAK_OPTION_stats) == HAK_STATS_EXACT ? HAK_MODE_EXACT : 0;
    return exact | (hak__hardened.on ? HAK_MODE_HARDENED : 0);
}

void hak__cache_open_classes(struct hak_heap *heap)
{
    for (uint32_t class = 0; class < HAK_CLASSES; class++)
        if (heap->classes[class].bottom == NULL)
            hak__cache_open_class(heap, class);
}

void hak__cache_open(struct hak_heap *heap, uint32_t mode)
{
    heap->mode = mode;
    hak__experiments_open(heap);
    slots_open(heap);
    budget_open(heap);
    heap->takes_common = hak__common_exist() && (heap->tag & HAK_CLASS_OFFSET_OWN) == 0; /* not a share */
    heap->first_ms = (uint32_t)hak__os->now_ms();
    for (uint32_t class = 0; class < HAK_CLASSES; class++)
        close_class(heap, class, hak_load(&heap->state, HAK_RELAXED) != HAK_HEAP_NEW);
    for (uint32_t class = HAK_CLASSES; class < HAK_CLASS_LIMIT; class++)
        heap->bins[class] = (struct hak_bin){ HAK_CLOSED_TOP, HAK_CLOSED_TOP };
    if (heap->budget.fixed || mode != 0)
        hak__cache_open_classes(heap);
    if (heap->budget.fixed)
        fix_capacities(heap);
    /* Last: a child forked earlier must not take the heap over. release: pairs with readers of the state. */
    hak_store(&heap->state, HAK_HEAP_ACTIVE, HAK_RELEASE);
}

/* --- between threads ----------------------------------------------------------------------------------------------- */

void hak__cache_park(struct hak_heap *heap)
{
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    if ((heap->mode & HAK_MODE_POLLING) != 0)
        hak__cache_set_polling(heap, false);
    hak_store(&heap->polling.idle_bytes, 0, HAK_RELAXED);
    hak_fetch_sub(&all_bytes, heap->budget.process_bytes, HAK_RELAXED);
    heap->budget.in_process = false;
}

/* A parked heap keeps its capacities, though others may have spent the process's budget meanwhile. A heap that a forked child
 * parked was never taken out of the sum. */
static void join_process(struct hak_heap *heap)
{
    size_t budget = hak__option(HAK_OPTION_process_budget);
    size_t sum = hak_fetch_add(&all_bytes, heap->budget.process_bytes, HAK_RELAXED) + heap->budget.process_bytes;
    heap->budget.in_process = true;
    if (budget == 0 || sum <= budget)
        return;
    for (uint32_t index = 0; index < HAK_CLASSES; index++)
        heap->classes[index].moves = 0;
    for (uint32_t halvings = 0; heap->budget.bytes != 0 && halvings < 16; halvings++)
        budget_reclaim(heap, 0);
}

void hak__cache_unpark(struct hak_heap *heap)
{
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    if (!heap->budget.in_process)
        join_process(heap);
    if (heap->takes_common)
        renew_first_blocks(heap, (uint32_t)hak__os->now_ms());
}
