/* The modules that stacks lead through, as they were when a stack was first seen. Another module may be loaded where one was
 * closed. To keep the names of both right, a dump shifts a closed module's frames and mapping to addresses that the profile has
 * reserved, where no module can be. Never removed. Internal to profile/. */
#pragma once

#include "os/loaded.h"
#include "profile/sites.h"

struct hak_profile_module {
    struct hak_profile_module *next;
    uintptr_t start, end, offset; /* of its code, and where that is in the file */
    struct hak_module all; /* as the loader had it; its name is part of `path` */
    _Atomic uintptr_t moved; /* closed: how far dumps shift it up, modulo 2^64; 0: open, as far as known */
    char path[]; /* absolute */
};

/* Stores the modules of a new stack's frames, each once, to `modules`, which has room for one per frame; returns their number.
 * Notes unknown modules in memory of the area, if there is room. */
hak_cold uint32_t hak__profile_modules_note(struct hak_area *area, const uintptr_t *frames, uint32_t count,
                                            struct hak_profile_module **modules);

/* Whether the module still lies where it was noted. */
hak_cold bool hak__profile_module_holds(const struct hak_profile_module *module);

/* Before a dump: finds closed modules, and gives them addresses of `ghosts`. */
hak_cold void hak__profile_modules_settle(struct hak_area *ghosts);

/* Iterates over closed modules: *module is NULL at first; returns false at the end. */
hak_cold bool hak__profile_module_next_closed(struct hak_profile_module **module);
