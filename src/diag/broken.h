/* The first invariant that a check found broken. The _is_valid functions of the layers say here what and where; guard/check.c
 * reports it. There is no lock: a race between two failing checks mixes two true findings. */
#pragma once

#include "base/compiler.h"

struct hak_broken {
    const char *what;      /* NULL: nothing was found since this was last cleared */
    const void *where;
};
extern struct hak_broken hak__broken;

/* Gives `condition`; when it is false and nothing has been noted before, notes what should have held, and of what. */
hak_cold bool hak__holds(bool condition, const char *what, const void *where);
