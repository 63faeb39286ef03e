/* realloc and reallocarray. A block keeps its place while its class fits and less than half of it is wasted; large
 * blocks grow into free neighbours and shrink by letting slabs go; huge ones grow by mapping what follows or by moving
 * their pages. Only then is anything copied, and into a block that leaves room for what will follow. */
#include <errno.h>
#include <string.h>

#include "cache/large_cache.h"
#include "hakmem.h"
#include "harden/harden.h"
#include "heap/large.h"
#include "heap_region.h"
#include "heap_slow.h"
#include "huge/huge.h"
#include "others.h"
#include "pointer.h"
#include "profile/profile.h"
#include "request.h"
#include "sample/sample.h"
#include "span/shield.h"
#include "thread.h"
#include "trace/trace.h"

static bool is_large(size_t n) { return n > HAK_MID_MAX && n <= HAK_LARGE_MAX; }

/* What is cut off is freed memory like any other: it counts for upkeep. */
static void *resize_huge(void *p, size_t have, size_t n)
{
    struct hak_own *own = hak__own_of_huge(hak__slab_of(p));
    void *q = hak_likely(own == NULL) ? hak__huge_resize(p, n) : hak__own_huge_resize(own, p, n);
    if (n < have && q != NULL)
        hak__poll_huge(have - n, 0);
    return q;
}

/* Whatever the thread's default heap is. */
static hak_noinline void *malloc_of(struct hak_own *own, size_t n)
{
    bool zero;
    if (own != NULL)
        return hak__own_request(own, HAK_ALIGN, n, &zero, "realloc");
    struct hak_heap *redirected = hak__request_apart();
    void *block = hak_malloc(n);
    hak__request_apart_end(redirected);
    return block;
}

/* A block beside p: one of the same heap of one's own, or malloc's like p. */
static void *malloc_beside(const void *p, size_t n)
{
    return hak_likely(!hak_load(&hak__own_any, HAK_RELAXED)) ? hak_malloc(n) : malloc_of(hak__own_of(p), n);
}

/* A new size at the old address, or for a huge block at any address without copying. NULL: it must be copied. */
static void *resize_in_place(void *p, size_t have, size_t n)
{
    if (have > HAK_LARGE_MAX)
        return n > HAK_LARGE_MAX && n <= PTRDIFF_MAX ? resize_huge(p, have, n) : NULL;
    struct hak_heap *heap = hak__heap_current();
    bool mine = (hak__owner_of(p) ^ heap->tag) < HAK_CLASS_OFFSET_LIMIT;
    if (!mine || !is_large(have) || !is_large(n) || !hak__heap_lock(heap))
        return NULL;
    bool done = hak__large_resize_owner(heap, p, hak__class_of(n));
    while (!done && hak__large_cache_clear_behind(heap, p))   /* what is behind was only cached */
        done = hak__large_resize_owner(heap, p, hak__class_of(n));
    hak__heap_unlock(heap);
    if (done && n < have)
        hak__poll_huge(have - n, 0);
    return done ? p : NULL;
}

/* Whether a block of `have` bytes stays what it is for n bytes: have / 2 <= n <= have, for even `have`. */
hak_inline bool size_stays(size_t have, size_t n) { return n - have / 2 <= have / 2; }

/* How much to ask for when a block moves to grow, since it will probably grow again: a quarter more than it had, if the step is
 * less than an eighth; a longer step brings its own room. A large block takes whole slabs and is alone in its span, so it can grow
 * in place (docs/decisions/0010). */
static size_t with_room(size_t have, size_t n)
{
    if (n < have || n > HAK_LARGE_MAX)
        return n;
    if (n > HAK_MID_MAX)
        return hak_align_up(n, HAK_SLAB_SIZE);
    return n - have < have / 8 ? have + have / 4 : n;
}

/* A large request may be served by a longer block that the thread has cached (cache/large_cache.c). With the room ahead on top of
 * that, the block may be more than twice what the program asked for, which a sized free would refuse. */
static bool is_too_long(const void *q, size_t n)
{
    uint32_t word = q == NULL ? 0 : hak__owner_of(q);
    return hak__names_span(word) && !hak__size_fits(hak__owner_sizes(word)->size, n);
}

/* Without memory for a smaller block, a block that shrinks stays in place and returns the pages that it can. Sized frees then find
 * it longer than the size that they name. */
static hak_cold void *stay_longer(void *p, size_t have, size_t n, int saved)
{
    errno = saved;
    hak__allow_longer();
    if (hak__huge_resize(p, n) == NULL && is_large(have) && n <= HAK_MID_MAX)
        resize_in_place(p, have, HAK_MID_MAX + 1);
    return p;
}

static void *move_elsewhere(void *p, size_t have, size_t n)
{
    size_t want = with_room(have, n);
    int saved = errno;
    void *q = malloc_beside(p, want);
    if (hak_unlikely(want != n && (q == NULL || is_too_long(q, n)))) {
        errno = saved;
        hak_free(q);
        q = malloc_beside(p, n);
    }
    if (hak_unlikely(q == NULL))
        return n <= have ? stay_longer(p, have, n, saved) : NULL;
    memcpy(q, p, have < n ? have : n);
    hak_free(p);
    return q;
}

/* To the profiler, a block that changes its size in place is freed and allocated again. */
static hak_cold void count_anew(const void *before, void *after, size_t n)
{
    hak__profile_forget(before);
    hak__request_note(after, n);
}

/* The block is to be read, whatever rights the program has taken from its pages. */
hak_inline void lift_all(const void *p)
{
    if (hak_unlikely(hak__is_sampled(p)))
        hak__sampled_allow(p, "realloc");
    else
        hak__shield_lift(p);
}

/* Resizes a block of `have` bytes whose class does not fit n. */
static hak_noinline void *change_size(void *p, size_t have, size_t n)
{
    if (n == 0) {
        hak_free(p);
        return NULL;
    }
    lift_all(p);
    void *q = have > HAK_MID_MAX && n > HAK_MID_MAX ? resize_in_place(p, have, n) : NULL;
    if (q == NULL)
        return move_elsewhere(p, have, n);
    if (hak_unlikely(hak__profile_ever()))
        count_anew(p, q, n);
    return q;
}

static bool resize_span_block(void *p, uint32_t class, size_t have, size_t n, bool wasteful)
{
    bool done = hak__harden_resize(hak__thread_attach(), p, class, have, n, wasteful);
    if (done)
        hak__trace_resized(p, n);
    return done;
}

/* Hardened mode: the block has exactly n bytes, wherever it is, and wastes at most its half unless `wasteful`. A failure that leaves
 * a huge block unchanged seals it again. */
static void *resize_hardened(void *p, size_t have, size_t n, bool wasteful)
{
    uint32_t word = hak__owner_of(p);
    if (hak__owner_id(word) != HAK_HEAP_ID_HUGE) {
        bool inside = word != 0 && hak__hardened_at(hak__slab_of(p));
        return inside && resize_span_block(p, hak__owner_class(word), have, n, wasteful) ? p : NULL;
    }
    if ((n <= HAK_LARGE_MAX && n < have / 2 && !wasteful) || n > PTRDIFF_MAX - HAK_SUPER_SIZE)
        return NULL;
    if (n > have && hak__harden_huge_fit(p, have, n))   /* into the room that a step before has brought */
        return p;
    bool sealed = hak__harden_huge_unseal(p, have);
    void *q = resize_huge(p, have, hak__harden_huge_room(n));
    if (q != NULL || sealed)
        hak__harden_huge_seal(q != NULL ? q : p, q != NULL ? n : have);
    return q;
}

/* Large blocks of hardened mode grow in place only as far as their class goes. One that grows by small steps becomes a huge block from
 * 128 KiB on, which does so without a copy; of its pages only those are touched that the program uses. */
enum { HARDENED_HUGE = 128 << 10 };
static size_t with_much_room(size_t have, size_t n)
{
    if (n <= HAK_MID_MAX)
        return with_room(have, n);
    bool steps = n > have && n - have < have / 8;
    return !steps ? n : hak_max(n, n < HARDENED_HUGE ? n + n / 2 : HAK_LARGE_MAX + 1);
}

static void *realloc_hardened(void *p, size_t have, size_t n)
{
    if (n == have && n != 0)
        return p;
    void *q = n == 0 ? NULL : resize_hardened(p, have, n, false);
    if (q != NULL || n == 0) {
        if (n == 0)
            hak_free(p);
        else if (hak_unlikely(hak__profile_ever()))
            count_anew(p, q, n);
        return q;
    }
    /* Of what may be sampled none grows in place, and a sample does not shrink there either. */
    bool sampled = n <= HAK_MID_MAX && (hak__sample_on() || hak__profile_counts());
    size_t want = sampled ? n : with_much_room(have, n);
    int saved = errno;
    if ((q = malloc_beside(p, want)) == NULL) {
        if (n > have)
            return NULL;
        errno = saved;
        if ((q = resize_hardened(p, have, n, true)) == NULL)
            hak__allow_longer();
        return q != NULL ? q : p;
    }
    memcpy(q, p, have < n ? have : n);
    hak_free(p);
    if (want != n && !(want > HAK_LARGE_MAX && hak__harden_huge_fit(q, want, n)))
        resize_hardened(q, want, n, false);
    return q;
}

static hak_noinline void *realloc_slow(void *p, size_t n)
{
    if (p == NULL)
        return hak_malloc(n);
    if (hak__owner_of(p) == 0 && hak__region_of(p) != NULL)
        return hak__region_change(hak__region_of(p), p, n, "realloc");
    if (hak__owner_of(p) == 0 && hak__is_others(p))
        return hak__others_realloc(p, n);
    if (hak_unlikely(hak__hardened.on))
        lift_all(p);   /* the block's end is to be read */
    size_t have = hak__usable(p, "realloc");
    if (hak_unlikely(hak__hardened.on))
        return realloc_hardened(p, have, n);
    if (hak__sample_has(p))   /* its end is where the program wants it */
        return have == n ? p : change_size(p, have, n);
    return size_stays(have, n) ? p : change_size(p, have, n);
}

/* The frequent case: a block of a size class that is still right. */
hak_export void *hak_realloc(void *p, size_t n)
{
    const struct hak_class *class = hak__class_at(p);
    if (hak_unlikely(class == NULL))
        return realloc_slow(p, n);
    return hak_likely(size_stays(class->size, n)) ? p : change_size(p, class->size, n);
}

hak_export void *hak_reallocarray(void *p, size_t count, size_t size)
{
    size_t n;
    if (hak_unlikely(__builtin_mul_overflow(count, size, &n)))
        return hak__no_memory();
    return hak_realloc(p, n);
}
