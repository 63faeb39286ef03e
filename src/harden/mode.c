/* See mode.h. */
#include "harden/mode.h"

#include "base/assert.h"
#include "base/bits.h"
#include "diag/options.h"
#include "diag/report.h"
#include "os/os.h"

struct hak_hardened hak__hardened = { .open = true };

static bool hardened_is_wanted(void) { return hak__option(HAK_OPTION_harden) != 0; }

/* The guard page takes the end of the last block: there are fewer blocks, or all large ones are shorter by that part, so that two of
 * them do not become one. Malloc finds a smaller block's class by its size alone. */
static void lay_out_class(struct hak_hardened *to, uint32_t index)
{
    const struct hak_class *class = &hak__classes[index];
    size_t whole = (size_t) class->slabs << HAK_SLAB_SHIFT, guard = to->guards ? hak__page_size() : 0;
    size_t end = class->blocks * class->size + guard, over = end - hak_min(end, whole);
    bool shorter = index >= HAK_CLASS_FIRST_LARGE && over * class->blocks < class->size;
    size_t fits = shorter ? class->blocks : (whole - guard) / class->size;
    to->blocks[index] = (uint16_t)hak_min(fits, class->blocks);
    to->room[index] = (uint32_t)(shorter ? class->size - over : class->size);
    hak_assert(fits != 0, "a single block is longer than a guard");
    to->shift[index] = (uint8_t)hak_min(hak_msb64(class->size), HAK_SLAB_SHIFT);
    to->bound[index] = to->blocks[index] * hak__class_places[index].step;
}

void hak__hardened_begin(void)
{
    struct hak_hardened *to = &hak__hardened;
    if (to->on)
        return;
    if (!HAK_PROTECT && hardened_is_wanted())
        hak__warn("this build does not check frees and has no hardened mode: harden is ignored");
    hak_store(&to->open, HAK_PROTECT && hardened_is_wanted(), HAK_RELAXED);
    if (!HAK_PROTECT || !hardened_is_wanted())
        return;
    unsigned parts = hak__option_harden_parts(hak__option(HAK_OPTION_harden));
    to->canary = (parts & HAK_HARDEN_canary) != 0;
    to->zero = (parts & HAK_HARDEN_zero) != 0;
    to->random = (parts & HAK_HARDEN_random) != 0;
    to->regions = (parts & HAK_HARDEN_regions) != 0;
    to->zero_size = (parts & HAK_HARDEN_zero_size) != 0;
    to->guards = (parts & HAK_HARDEN_guards) != 0 && hak__page_size() < HAK_SLAB_SIZE;
    to->quarantine = hak__option(HAK_OPTION_harden_quarantine);
    for (unsigned i = 0; i < 3; i++)
        to->keys[i] = hak__os->random();
    to->keys[1] |= 1;
    to->fill = hak__os->random() | 0x0101010101010101ull;
    to->never_key = hak__freed_key ^ 2;
    for (uint32_t index = 0; index < HAK_CLASSES; index++)
        lay_out_class(to, index);
    hak__window.exact_sizes = true;
    hak_owner_store(&hak__window.sized_slabs, 0);
    hak__window_show();
    to->on = true;
    bool quick = hak__option(HAK_OPTION_sample_guards) == 0 && hak__option(HAK_OPTION_stats) != HAK_STATS_EXACT;
    hak_store(&to->quick, quick, HAK_RELEASE); /* pairs with the acquire of malloc */
}
