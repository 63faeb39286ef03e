/* The life of a thread's heap: attached at the first slow path, drained and parked when the thread ends; its last destructors
 * use a shared exit heap. Called by malloc.c, kinds/ and init.c. */
#include "process/process.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/syscall.h"
#include "cache/cache.h"
#include "diag/options.h"
#include "guard/check.h"
#include "harden/quarantine.h"
#include "harden/mode.h"
#include "heap/heap.h"
#include "os/os.h"
#include "upkeep/upkeep.h"
#include "userheap/userheap.h"

/* The sentinel of a thread whose heap was parked: a copy of the other one. The first thread to end makes it, so a process
 * without such threads pays nothing. */
static hak_rare_data hak_heap_aligned struct hak_heap_front exited_sentinel;

static pthread_key_t key;
static _Atomic bool key_made;

/* The first thread's heap until the library's constructor runs: thread-local memory may be laid out anew after the first
 * allocations (IFUNC resolvers may make them), and the thread then finds its heap here. */
static struct hak_heap *early_heap;

static struct hak_lock exit_heap_mutex = HAK_LOCK_INIT(HAK_RANK_EXIT_HEAP);
static struct hak_heap *exit_heap;

/* The thread has this heap from now on, or a sentinel, and no default heap. */
static void set_current(const void *heap)
{
    hak__heap_set_current(heap);
    hak_slot_store(&hak__thread_notes.home, NULL);
}

bool hak__thread_has_exited(void) { return (hak__heap_current()->mode & HAK_MODE_EXITED) != 0; }

static void thread_ends(void *value);

/* --- heaps of exited threads ---------------------------------------------------------------------------------------------- */

enum { FREES_WITHOUT_HEAP = 16, ASKED_PER_CALL = 4, STEPS_PER_CALL = 64, HEAPS_SMALL = 16 };

/* Notes the thread's number, by which take_back asks later whether it has exited. A vfork child has other numbers in the same
 * memory; take_back knows none of them. A process with few heaps does not ask for numbers: it has few to lose, and may have
 * forbidden itself the call. */
static void set_thread(struct hak_heap *heap)
{
    uint64_t thread = 0;
    if (hak__heap_last_id() >= HEAPS_SMALL)
        thread = (uint64_t)hak__syscall(SYS_getpid) << 32 | (uint32_t)hak__syscall(SYS_gettid);
    hak_store(&heap->thread, thread, HAK_RELAXED);
}

static bool thread_is_gone(uint64_t thread)
{
    return thread >> 32 == (uint64_t)hak__syscall(SYS_getpid)
        && hak__syscall(SYS_tgkill, thread >> 32, (uint32_t)thread, 0) == -ESRCH;
}

/* Caller holds the heap lock. */
static void lay_aside(struct hak_heap *heap)
{
    hak__uheap_drop_standard(heap);
    hak__uheap_leave(heap);
    hak__heap_collect(heap);
    hak__cache_leave(heap, HAK_LEFT_AT_END);
    hak__polling_leave(heap);
    hak__cache_park(heap);
    hak__assigned_let_go(heap);
    hak_store(&heap->thread, 0, HAK_RELAXED);
    heap->ending = false;
}

/* Parks a heap for its exited thread. Only sweepers and other callers of this lock such a heap; the first to find it unparked
 * under the lock parks it. Returns whether it asked the kernel. */
static bool take_back(struct hak_heap *heap)
{
    uint64_t thread = hak_load(&heap->thread, HAK_RELAXED);
    if (thread == 0 || hak_load(&heap->state, HAK_RELAXED) != HAK_HEAP_ACTIVE)
        return false;
    if (!thread_is_gone(thread) || !hak__heap_try_lock(heap, HAK_OWNER))
        return true;
    bool still = hak_load(&heap->state, HAK_RELAXED) == HAK_HEAP_ACTIVE && hak_load(&heap->thread, HAK_RELAXED) == thread;
    if (still)
        lay_aside(heap);
    hak__heap_unlock(heap);
    if (still) {
        hak__heap_park(heap);
        hak__background_thread_ends();
        hak__polling_thread_ended();
    }
    return true;
}

/* Parks a few heaps whose threads ended without destructors, or got their heaps after those. It goes round: if every new thread
 * leaves one, there are at most twice as many heaps as threads. A heap without a number does not count as asked; otherwise a row
 * of them would cause a new heap each time. */
static void take_some_back(void)
{
    static _Atomic uint32_t hand; /* two threads may check the same heaps */
    uint32_t id = hak_load(&hand, HAK_RELAXED), last = hak__heap_last_id();
    for (uint32_t asked = 0, steps = 0; asked < ASKED_PER_CALL && steps < STEPS_PER_CALL; steps++) {
        id = id < last ? id + 1 : 1;
        asked += take_back(hak__heap_by_id(id));
    }
    hak_store(&hand, id, HAK_RELAXED);
}

/* Returns the heap locked, as all these functions do: a child forked before the thread owns it parks no heap that another thread
 * is about to get. */
static struct hak_heap *take_up(void)
{
    struct hak_heap *heap = hak__heap_take_up();
    if (heap != NULL || hak__heap_last_id() < HEAPS_SMALL)
        return heap;
    take_some_back();
    return hak__heap_unpark();
}

static struct hak_heap *heap_open_new(struct hak_heap *heap)
{
    if (heap == NULL || !hak__heap_lock(heap))
        return NULL;
    if (hak__hardened.on)
        hak__quarantine_open(heap);
    hak__cache_open(heap, hak__cache_mode());
    return heap;
}

/* When all ids are taken, spare shares give up theirs. */
static struct hak_heap *heap_make(void)
{
    struct hak_heap *heap = hak__heap_new();
    while (hak_unlikely(heap == NULL) && hak__shares_spare_id())
        heap = hak__heap_new();
    return heap_open_new(heap);
}

static struct hak_heap *obtain_heap(void)
{
    struct hak_heap *heap = take_up();
    if (heap != NULL) {
        hak__cache_take_up(heap);
        hak__cache_unpark(heap);
        return heap;
    }
    heap = heap_make();
    if (heap == NULL || hak_likely(!hak__common_add(heap)))
        return heap;
    hak__cache_park(heap); /* it caches nothing, and belongs to no sum */
    hak__heap_unlock(heap);
    return heap_make();
}

/* --- a thread's beginning and end ------------------------------------------------------------------------------------------ */

static bool key_exists(void) { return hak_load(&key_made, HAK_ACQUIRE); } /* acquire: the key is visible too */

static bool is_first_thread(void) { return hak__syscall(SYS_gettid) == hak__syscall(SYS_getpid); }

/* Called by the library's constructor, or by an earlier thread, which shows that the C library is ready. */
static bool make_key(void)
{
    if (!hak__os_keys())
        return false;
    hak__lock_acquire(&exit_heap_mutex);
    if (!key_exists() && hak__os_key_create(&key, thread_ends) == 0)
        hak_store(&key_made, true, HAK_RELEASE);
    hak__lock_release(&exit_heap_mutex);
    return key_exists();
}

/* Makes the heap the calling thread's own. */
static void become_owner(struct hak_heap *heap)
{
    hak__heap_renew(heap);
    set_thread(heap);
    set_current(heap);
    hak__heap_unlock(heap);
}

struct hak_heap *hak__thread_attach(void)
{
    hak__fork_check();
    hak__lock_me(); /* may allocate */
    struct hak_heap *heap = hak__heap_mine();
    if ((heap->mode & HAK_MODE_SENTINEL) == 0)
        return heap;
    if ((heap->mode & HAK_MODE_EXITED) != 0)
        return NULL;
    bool early = !key_exists(), first = early && is_first_thread();
    bool again = first && early_heap != NULL;
    if (again) {
        heap = early_heap;
        set_thread(heap);
        set_current(heap);
    } else {
        heap = obtain_heap();
        if (heap == NULL)
            return NULL;
        if (first)
            early_heap = heap;
        hak__background_thread_begins();
        become_owner(heap);
    }
    hak__uheap_inherit(heap);
    if (!early || (!first && make_key())) /* may allocate, so the heap is current by now */
        hak__os_key_set(key, heap);
    hak__background_consider(); /* what other threads have freed may wait, and this one may take no slow path for long */
    return heap;
}

struct hak_heap *hak__thread_attach_to_free(void)
{
    hak__fork_check();
    struct hak_heap *heap = hak__heap_mine();
    bool without = (heap->mode & HAK_MODE_SENTINEL) != 0 && ++hak__thread_notes.frees_without_heap < FREES_WITHOUT_HEAP;
    return without ? NULL : hak__thread_attach();
}

static void use_exited_sentinel(void)
{
    hak__lock_acquire(&exit_heap_mutex);
    if ((exited_sentinel.mode & HAK_MODE_EXITED) == 0) {
        exited_sentinel = hak__sentinel;
        exited_sentinel.mode |= HAK_MODE_EXITED;
    }
    hak__lock_release(&exit_heap_mutex);
    set_current(&exited_sentinel);
}

/* The key's destructor. A former thread on the same stack may have left the value, if it got its heap after its last destructor:
 * the value counts only if it is this thread's current heap. The first call only asks for another one, so that other keys'
 * destructors in this round still find the heap; the second empties and parks it, and later requests use the exit heap. It does
 * not wait for the last round, which a heap attached by a destructor might never see. */
static void thread_ends(void *value)
{
    struct hak_heap *heap = value;
    if (heap != hak__heap_mine())
        return;
    heap->ending = !heap->ending;
    if (heap->ending && hak__os_key_set(key, heap) == 0)
        return;
    if (!hak__heap_lock(heap)) { /* this is a forked child that abandoned the heap */
        use_exited_sentinel();
        return;
    }
    set_current(heap);
    lay_aside(heap);
    hak__heap_unlock(heap);
    use_exited_sentinel();
    hak__heap_park(heap);
    hak__check_end("HAKMEM_CHECK, at a thread's end");
    hak__background_thread_ends();
    hak__polling_thread_ended();
}

/* A process that has not allocated gets its heap with its first block, unless that block may have to be sampled. */
void hak__thread_init(void)
{
    bool now = early_heap != NULL || hak__option(HAK_OPTION_sample_guards) != 0;
    struct hak_heap *heap = now ? hak__thread_attach() : hak__heap_mine();
    if (make_key() && heap != NULL && (heap->mode & HAK_MODE_SENTINEL) == 0)
        hak__os_key_set(key, heap);
}

/* Retires the first heap, whose blocks are not hardened: they can still be freed. */
static hak_cold void leave_early(void)
{
    hak__heap_lose(early_heap);
    set_current(&hak__sentinel);
    early_heap = obtain_heap();
    if (early_heap != NULL)
        become_owner(early_heap);
}

void hak__thread_reopen_early(void)
{
    if (early_heap != NULL)
        hak__thread_attach(); /* thread-local memory may have lost the heap */
    if (early_heap == NULL || early_heap != hak__heap_mine() || !hak__heap_lock(early_heap))
        return;
    hak__cache_flush(early_heap);
    if (!hak__hardened.on)
        hak__cache_open(early_heap, hak__cache_mode());
    if (hak__hardened.on)
        leave_early();
    else
        hak__heap_unlock(early_heap);
}

struct hak_heap *hak__exit_heap_lock(void)
{
    hak__lock_acquire(&exit_heap_mutex);
    if (exit_heap == NULL || !hak__heap_lock(exit_heap)) /* second case: a forked child had to abandon it */
        exit_heap = obtain_heap();
    if (exit_heap == NULL)
        exit_heap = heap_open_new(hak__heap_new_last());
    struct hak_heap *heap = exit_heap; /* another thread may change it once the lock is released */
    if (heap == NULL)
        hak__lock_release(&exit_heap_mutex);
    return heap;
}

void hak__exit_heap_unlock(void)
{
    hak__heap_unlock(exit_heap);
    hak__upkeep_poll(exit_heap);
    hak__lock_release(&exit_heap_mutex);
}

bool hak__thread_fork_arrive(void)
{
    struct hak_heap *mine = hak__heap_mine();
    bool left = (mine->mode & HAK_MODE_SENTINEL) == 0 && hak_load(&mine->state, HAK_RELAXED) == HAK_HEAP_UNUSABLE;
    if (left)
        set_current(&hak__sentinel);
    return left;
}

bool hak__thread_fork_child(bool forker)
{
    struct hak_heap *mine = hak__heap_mine();
    hak__lock_fork_child(&exit_heap_mutex);
    hak__uheap_fork_child();
    if (exit_heap != NULL && hak__heap_is_left(exit_heap)) {
        hak__heap_lose(exit_heap);
        exit_heap = NULL;
    }
    if (!forker) {
        bool known = hak__heaps_fork_further(); /* if it is not, one of the heaps is probably the forking thread's */
        hak__background_fork_child(!known);
        return known;
    }
    if (early_heap != mine)
        early_heap = NULL; /* another thread's heap */
    if (hak__lock_word_is_left(&mine->lock)) {
        /* Another thread was collecting for this heap and left it half done: this thread starts anew. */
        hak__uheap_carry(mine);
        hak__heap_lose(mine);
        set_current(&hak__sentinel);
    }
    bool has = (hak__heap_mine()->mode & HAK_MODE_SENTINEL) == 0;
    hak__standards_fork_child(hak__heap_mine());
    if (has)
        set_thread(hak__heap_mine());
    hak__background_fork_child(has);
    hak__common_fork_child();
    hak__heaps_fork_child(mine, exit_heap);
    return true;
}

/* --- process end ------------------------------------------------------------------------------------------------------ */

void hak__thread_settle(void)
{
    _Atomic uint32_t *mark = hak_peek(&hak__forked.mark);
    if (hak__fork_alone() || mark == NULL || hak_load(mark, HAK_ACQUIRE) != HAK_FORK_REPAIRED)
        return;
    struct hak_heap *heap = hak__heap_mine();
    if ((heap->mode & HAK_MODE_SENTINEL) == 0 && hak__heap_try_lock(heap, HAK_OWNER)) {
        hak__outbox_flush(heap, "free");
        hak__heap_collect(heap);
        hak__heap_unlock(heap);
    }
    uint32_t after = 0;
    hak__heaps_sweep(heap, &after, UINT32_MAX);
}
