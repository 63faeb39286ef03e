/* realloc and reallocarray. A block stays while its class fits and less than half of it is wasted; its kind resizes it in place
 * where possible (kinds/kind.h). Only then is it copied, to a block with room for further growth. In a hardened process every
 * block has exactly the requested bytes. */
#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "diag/report.h"
#include "hakmem.h"
#include "kinds/kind.h"
#include "process/request.h"
#include "profile/profile.h"

/* --- moving ---------------------------------------------------------------------------------------------------------------- */

/* From the given heap, or malloc's whatever the thread's default heap is. */
static hak_noinline void *malloc_of(struct hak_uheap *own, size_t n)
{
    bool zero;
    if (own != NULL) {
        void *cut = hak__bump_malloc(own, n, "realloc");
        return cut != NULL ? cut : hak__uheap_request(own, HAK_ALIGN, n, &zero, "realloc");
    }
    struct hak_heap *redirected = hak__request_apart();
    void *block = hak_malloc(n);
    hak__request_apart_end(redirected);
    return block;
}

/* A new block of p's heap: the same user heap, or malloc's. */
static void *malloc_beside(const void *p, size_t n)
{
    return hak_likely(!hak_load(&hak__uheap_any, HAK_RELAXED)) ? hak_malloc(n) : malloc_of(hak__heap_of_block(p), n);
}

/* The size to request when a block moves to grow, because it will probably grow again: a quarter more than it had if it grows by
 * less than an eighth; a longer step brings its own room. A large block takes whole slabs and is alone in its span, so it can
 * grow in place (docs/decisions/0010). */
static size_t with_room(size_t have, size_t n)
{
    if (n < have || n > HAK_LARGE_MAX)
        return n;
    if (n > HAK_MID_MAX)
        return hak_align_up(n, HAK_SLAB_SIZE);
    return n - have < have / 8 ? have + have / 4 : n;
}

/* Hardened mode's large blocks grow in place only within their class. From 128 KiB on, one that grows in small steps becomes a
 * huge block, which grows without copying and touches only the pages that the program uses. No block that may be sampled grows
 * in place, and a sample shrinks there only if no memory is left for another block. */
enum { HARDENED_HUGE = 128 << 10 };
static hak_cold size_t with_room_hardened(size_t have, size_t n)
{
    bool steps = n > have && n - have < have / 8;
    if (n <= HAK_MID_MAX)
        return hak__guarded_wanted() || hak__profile_counts() ? n : with_room(have, n);
    return !steps ? n : hak_max(n, n < HARDENED_HUGE ? n + n / 2 : HAK_LARGE_MAX + 1);
}

/* A cached longer block may serve a large request (cache/large_cache.c). With the extra room on top, the block may be more than
 * twice what the program asked for, which a sized free would refuse. */
static bool is_too_long(const void *q, size_t n)
{
    uint32_t word = q == NULL ? 0 : hak__owner_of(q);
    return hak__names_span(word) && !hak__size_fits(hak__owner_sizes(word)->size, n);
}

static void *resize_by_kind(void *p, size_t have, size_t n, enum hak_resize how)
{
    const struct hak_kind *kind = hak__kind_at(p);
    return kind->resize == NULL ? NULL : kind->resize(p, have, n, how);
}

/* To the profiler, a block resized in place is freed and allocated again. Those that it samples in place are large and huge ones,
 * which may be asked for less by now. */
static hak_cold void count_anew(const void *before, void *after, size_t n)
{
    hak__profile_forget(before);
    bool in_place = hak__owner_class(hak__owner_of(after)) >= HAK_CLASS_FIRST_LARGE;
    if (in_place && hak__kind_at(after) != &hak__kind_bump)
        hak__request_note(after, n);
}

/* Sized frees may then find the block longer than the size that they name. */
void *hak__stay_longer(void *p, size_t have, size_t n)
{
    hak_assert(n <= have, "a block that shrinks");
    void *q = resize_by_kind(p, have, n, HAK_RESIZE_WASTEFUL);
    if (q == NULL || !hak__hardened.canary)
        hak__allow_longer();
    if (q == NULL)
        q = p;
    if (hak_unlikely(hak__profile_ever()))
        count_anew(p, q, n);
    return q;
}

static void *move_elsewhere(void *p, size_t have, size_t n)
{
    hak_assert(n != 0 && p != NULL, "realloc(p, 0) is a free, realloc(NULL, n) a request");
    size_t want = hak_unlikely(hak__hardened.on) ? with_room_hardened(have, n) : with_room(have, n);
    int saved = errno;
    void *q = malloc_beside(p, want);
    if (hak_unlikely(want != n && (q == NULL || is_too_long(q, n)))) {
        errno = saved;
        hak_free(q);
        want = n;
        q = malloc_beside(p, n);
    }
    if (hak_unlikely(q == NULL) && n <= have) {
        errno = saved;
        return hak__stay_longer(p, have, n);
    }
    if (hak_unlikely(q == NULL))
        return NULL;
    memcpy(q, p, have < n ? have : n);
    hak_free(p);
    if (hak_unlikely(hak__hardened.on) && want != n)
        resize_by_kind(q, want, n, HAK_RESIZE_ROOMY);
    return q;
}

/* --- realloc --------------------------------------------------------------------------------------------------------------- */

static hak_noinline void *change_size(void *p, size_t have, size_t n)
{
    if (n == 0) {
        hak_free(p);
        return NULL;
    }
    hak__lift(p, "realloc");
    void *q = resize_by_kind(p, have, n, HAK_RESIZE_FITTING);
    if (q == NULL)
        return move_elsewhere(p, have, n);
    if (hak_unlikely(hak__profile_ever()))
        count_anew(p, q, n);
    return q;
}

static bool stays(const struct hak_kind *kind, const void *p, size_t have, size_t n)
{
    if (hak_unlikely(hak__hardened.on))
        return n == have && n != 0;
    return hak_unlikely(kind->stays != NULL) ? kind->stays(p, have, n) : hak__size_stays(have, n);
}

static hak_noinline void *realloc_slow(void *p, size_t n)
{
    if (p == NULL)
        return hak_malloc(n);
    const struct hak_kind *kind = hak__kind_at(p);
    if (kind->realloc != NULL)
        return kind->realloc(p, n);
    if (hak_unlikely(hak__hardened.on) && kind->lift != NULL)
        kind->lift(p, "realloc"); /* the block's end will be read */
    size_t have = kind->usable(p, "realloc");
    if (hak_unlikely(have == HAK_NO_BLOCK))
        return hak__fail(EINVAL);
    return stays(kind, p, have, n) ? p : change_size(p, have, n);
}

/* The frequent case: the block's size class still fits. */
hak_export void *hak_realloc(void *p, size_t n)
{
    const struct hak_class *class = hak__class_at(p);
    if (hak_unlikely(class == NULL))
        return realloc_slow(p, n);
    return hak_likely(hak__size_stays(class->size, n)) ? p : change_size(p, class->size, n);
}

hak_export void *hak_reallocarray(void *p, size_t count, size_t size)
{
    size_t n;
    if (hak_unlikely(__builtin_mul_overflow(count, size, &n)))
        return hak__no_memory();
    return hak_realloc(p, n);
}
