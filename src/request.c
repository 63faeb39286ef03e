/* See request.h. */
#include "request.h"

#include <errno.h>

#include "os/os.h"
#include "own/own.h"
#include "profile/profile.h"
#include "slab/hardened.h"
#include "start.h"
#include "upkeep/background.h"
#include "upkeep/polling.h"
#include "upkeep/step.h"

struct hak_heap *hak__request_heap_slow(void)
{
    return !hak__thread_has_exited() && hak__start() ? hak__thread_attach() : NULL;
}

static struct hak_samples *samples_of(struct hak_own *own) { return own != NULL ? &own->samples : NULL; }

void *hak__request_sample(struct hak_own *own, size_t align, size_t n)
{
    struct hak_heap *heap = hak__profile_counts() ? hak__request_heap() : NULL;
    bool without = n == 0 && hak__hardened.on;   /* blocks of no bytes stay inaccessible (harden/zero_size.h) */
    if (heap == NULL || without || !hak__profile_due(heap, n))
        return NULL;
    if (own == NULL && (heap->mode & HAK_MODE_REDIRECTED) != 0)
        own = heap->share.standard;
    void *block = hak__profile_take(align <= HAK_ALIGN ? hak__class_of(n) : hak__aligned_class(align, n), n, samples_of(own));
    hak__profile_poll(heap, hak__os->now_ms());   /* a thread whose requests all hit has no other occasion */
    return block;
}

void hak__request_note(void *block, size_t n)
{
    struct hak_heap *heap = block != NULL && hak__profile_counts() ? hak__request_heap() : NULL;
    if (heap != NULL)
        hak__profile_note(heap, block, n, samples_of(hak__own_of(block)));
}

void *hak__fail(int code)
{
    errno = code;
    return NULL;
}

void *hak__no_memory(void) { return hak__fail(ENOMEM); }

/* Huge blocks need no heap, but a thread that has one takes part in upkeep for them. */
void hak__poll_huge(size_t given, size_t taken)
{
    struct hak_heap *heap = hak__heap_current();
    hak__background_poll();
    if ((heap->mode & HAK_MODE_SENTINEL) != 0)
        return;
    hak__heap_idle_more(heap, given);
    hak__heap_idle_less(heap, taken);
    hak__upkeep_poll_now(heap);
}
