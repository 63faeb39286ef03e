/* Default heaps: where a thread's plain requests go. While it is a user heap, the thread's word leads to the thread's share of that
 * heap, so that malloc's and free's fast paths serve it as they would the thread's own heap, whose blocks are then another heap's.
 * Until there is a share the word leads to the sentinel, and the next request makes one.
 *
 * own.standards = threads' heaps with share.standard == own, plus 1 if new threads begin with it. A heap with any cannot end. */
#include "cache/cache.h"
#include "diag/report.h"
#include "userheap/userheap.h"

_Atomic(struct hak_uheap *) hak__uheap_inherited;

/* Sequentially consistent, like the destruction: of the two, at least one sees the other. */
static bool standard_count(struct hak_uheap *own, const char *function)
{
    if (!hak__uheap_expect(own, function))
        return false;
    hak_fetch_add(&own->standards, 1, HAK_SEQ_CST);
    if (hak_likely(hak_load(&own->magic, HAK_SEQ_CST) == HAK_OWN_ALIVE))
        return true;
    hak_fetch_sub(&own->standards, 1, HAK_RELAXED);
    hak__uheap_misuse(own, function);
    return false;
}

void hak__uheap_lead(struct hak_heap *mine)
{
    const struct hak_uheap *own = mine->share.standard;
    const struct hak_heap *share = own == NULL ? mine : hak__share_find(mine, own);
    hak_slot_store(&hak__thread_notes.home, mine); /* before the word leads elsewhere */
    hak_signal_fence();
    hak__heap_set_current(share != NULL ? (const void *)share : &hak__sentinel);
}

struct hak_uheap *hak__uheap_set_standard(struct hak_heap *mine, struct hak_uheap *own, const char *function)
{
    struct hak_uheap *former = mine->share.standard;
    if (own == former)
        return former;
    if (own != NULL && !standard_count(own, function))
        return former;
    mine->share.standard = own;
    hak__uheap_lead(mine);
    if (former != NULL)
        hak_fetch_sub(&former->standards, 1, HAK_RELEASE);
    return former;
}

void hak__uheap_drop_standard(struct hak_heap *ending)
{
    struct hak_uheap *former = ending->share.standard;
    ending->share.standard = NULL;
    if (former != NULL)
        hak_fetch_sub(&former->standards, 1, HAK_RELEASE);
}

struct hak_uheap *hak__uheap_set_inherited(struct hak_uheap *own, const char *function)
{
    if (own != NULL && !standard_count(own, function))
        return hak_load(&hak__uheap_inherited, HAK_RELAXED);
    struct hak_uheap *former = hak_exchange(&hak__uheap_inherited, own, HAK_ACQ_REL);
    if (former != NULL)
        hak_fetch_sub(&former->standards, 1, HAK_RELAXED);
    return former;
}

/* Until the thread has another heap, the default of the lost one stands in for what new threads begin with. */
static struct hak_uheap *set_aside;
static bool carries;

void hak__uheap_carry(const struct hak_heap *lost)
{
    set_aside = hak_exchange(&hak__uheap_inherited, lost->share.standard, HAK_RELAXED);
    carries = true;
}

static void end_carry(void)
{
    struct hak_uheap *own = set_aside != NULL && hak__uheap_is_alive(set_aside) ? set_aside : NULL, *carried;
    carries = false;
    if (own != NULL)
        hak_fetch_add(&own->standards, 1, HAK_RELAXED);
    if ((carried = hak_exchange(&hak__uheap_inherited, own, HAK_ACQ_REL)) != NULL)
        hak_fetch_sub(&carried->standards, 1, HAK_RELAXED);
}

/* If the heap that was set is ending, the thread begins without it. */
static void begin_with_inherited(struct hak_heap *mine)
{
    struct hak_uheap *own = hak_load(&hak__uheap_inherited, HAK_ACQUIRE);
    if (hak_likely(own == NULL))
        return;
    hak__lock_acquire(&own->lock);
    bool still = hak__uheap_is_alive(own) && hak_load(&hak__uheap_inherited, HAK_RELAXED) == own;
    if (still)
        hak_fetch_add(&own->standards, 1, HAK_RELAXED);
    hak__lock_release(&own->lock);
    if (!still)
        return;
    mine->share.standard = own;
    hak__uheap_lead(mine);
}

void hak__uheap_inherit(struct hak_heap *mine)
{
    begin_with_inherited(mine);
    if (hak_unlikely(carries))
        end_carry();
}

/* Threads missing in the child have no standard heap there. */
void hak__standards_fork_child(struct hak_heap *mine)
{
    for (struct hak_uheap *own = hak__uheap_next(NULL); own != NULL; own = hak__uheap_next(own)) {
        bool my_own = (mine->mode & HAK_MODE_SENTINEL) == 0 && mine->share.standard == own;
        hak_store(&own->standards, my_own + (hak_load(&hak__uheap_inherited, HAK_RELAXED) == own), HAK_RELAXED);
    }
    for (uint32_t id = 1; id <= hak__heap_last_id(); id++)
        if (hak__heap_by_id(id) != mine && hak__heap_by_id(id)->share.standard != NULL) /* returned heaps have no memory */
            hak__heap_by_id(id)->share.standard = NULL;
}
