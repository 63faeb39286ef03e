/* A word that forked children find zero (base/forked.h). Called by fork.c. */
#include "arena/arena.h"
#include "base/bits.h"
#include "os/os.h"

/* In a page of its own among the metadata, because the kernel wipes whole ones. */
_Atomic uint32_t *hak__meta_wiped_word(void)
{
    size_t page = hak__page_size();
    char *room = hak__meta_alloc(2 * page);
    if (room == NULL)
        return NULL;
    uintptr_t start = hak_align_up((uintptr_t)room, page);
    return hak__os_advise(start, page, HAK_OS_WIPE_ON_FORK) == 0 ? (_Atomic uint32_t *)start : NULL;
}
