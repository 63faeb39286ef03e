/* A word that forked children find zero (base/forked.h), in a page of its own among the metadata, because the kernel wipes
 * whole ones. Called by start.c and fork.c. */
#include "arena/arena.h"
#include "base/bits.h"
#include "os/os.h"

static uintptr_t wiped_page;

void hak__meta_wiped_init(void)
{
    size_t page = hak__page_size();
    char *room = hak__meta_alloc(2 * page);
    wiped_page = room == NULL ? 0 : hak_align_up((uintptr_t)room, page);
}

_Atomic uint32_t *hak__meta_wiped_word(void)
{
    if (wiped_page == 0 || hak__os_advise(wiped_page, hak__page_size(), HAK_OS_WIPE_ON_FORK) != 0)
        return NULL;
    return (_Atomic uint32_t *)wiped_page;
}
