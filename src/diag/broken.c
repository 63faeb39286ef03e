/* See broken.h. */
#include "diag/broken.h"

#include "base/atomic.h"

struct hak_broken hak__broken;

bool hak__holds(bool condition, const char *what, const void *where)
{
    if (hak_likely(condition))
        return true;
    if (hak_peek(&hak__broken.what) == NULL) {
        hak_owner_store(&hak__broken.where, where);
        hak_owner_store(&hak__broken.what, what);
    }
    return false;
}
