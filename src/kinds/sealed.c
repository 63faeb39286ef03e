/* Huge blocks of a hardened process, which end with a seal or directly at their guard (harden/harden.h). */
#include <errno.h>

#include "base/assert.h"
#include "base/forked.h"
#include "diag/report.h"
#include "harden/harden.h"
#include "huge/huge.h"
#include "kinds/kind.h"
#include "span/shield.h"
#include "userheap/userheap.h"

static void sealed_free(void *p, uint32_t word, const char *function)
{
    int saved = errno;
    (void)word;
    hak_assert(hak__hardened.on, "no other process has seals");
    hak__fork_check();
    if (hak__shield_lift(p) && hak__harden_huge_size(p, function) != 0)
        hak__freed_hardened(p);
    hak__huge_free_slow(p, function);
    errno = saved;
}

static size_t sealed_usable(const void *p, const char *function)
{
    hak__kind_huge.usable(p, function);
    return hak__harden_huge_size(p, function);
}

static void sealed_check_size(const void *p, size_t align, size_t n, const char *function)
{
    size_t have = hak__huge_usable(p);
    bool exact = have != 0 && hak__hardened.canary && hak__start_bound(&hak__window.map[hak__slab_of(p)]) != HAK_HUGE_UNSEALED;
    (void)align;
    if (exact)
        have = hak__harden_huge_size(p, function);
    if (have != 0 && (n > have || (exact && n != have)))
        hak__misuse_size(function, p, n, have);
}

/* Reseals the block after a failure that leaves it unchanged. */
static void *sealed_resize(void *p, size_t have, size_t n, enum hak_resize how)
{
    hak_assert(have <= hak__huge_usable(p) && how <= HAK_RESIZE_ROOMY, "the bytes asked for");
    bool much_wasted = n <= HAK_LARGE_MAX && n < have / 2;
    if ((much_wasted && how == HAK_RESIZE_FITTING) || n > PTRDIFF_MAX - HAK_SUPER_SIZE)
        return NULL;
    if ((n > have || how == HAK_RESIZE_ROOMY) && hak__harden_huge_fit(p, have, n)) /* into the room from an earlier step */
        return p;
    bool sealed = hak__harden_huge_unseal(p, have);
    void *q = hak__huge_change(p, have, hak__harden_huge_room(n));
    if (q != NULL || sealed)
        hak__harden_huge_seal(q != NULL ? q : p, q != NULL ? n : have);
    return q;
}

const struct hak_kind hak__kind_sealed = {
    .free = sealed_free,
    .usable = sealed_usable,
    .check_size = sealed_check_size,
    .resize = sealed_resize,
    .resize_align = HAK_SUPER_SIZE,
    .lift = hak__block_lift,
    .heap = hak__uheap_of,
    .live = hak__huge_live,
    .describe = hak__huge_describe,
    .around = hak__huge_around,
};
