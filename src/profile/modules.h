/* Modules that stacks lead through, as they were when a stack was first seen. Another one may come to lie where one has been closed; so
 * that addresses of both have their right names, a dump tells frames and place of a closed one as if it lay in addresses that the
 * profile has reserved, where no module can be. Never removed. Internal to profile/. */
#pragma once

#include "os/loaded.h"
#include "profile/sites.h"

struct hak_profile_module {
    struct hak_profile_module *next;
    uintptr_t start, end, offset; /* of its code, and where that is in the file */
    struct hak_module all; /* as the loader had it; its name is part of the path */
    _Atomic uintptr_t moved; /* closed: how much further up dumps tell it, modulo 2^64; 0: it is open, as far as is known */
    char path[]; /* absolute */
};

/* The modules of a new stack's frames, each once, for `modules`, which has room for one to each frame; their number. Those that are not
 * known yet are noted in memory of the area, if there is room. */
hak_cold uint32_t hak__profile_modules_note(struct hak_profile_area *area, const uintptr_t *frames, uint32_t count,
                                            struct hak_profile_module **modules);

/* Whether the module still lies where it was noted. */
hak_cold bool hak__profile_module_holds(const struct hak_profile_module *module);

/* Before a dump: finds those that have been closed, and gives them addresses of `ghosts`. */
hak_cold void hak__profile_modules_settle(struct hak_profile_area *ghosts);

/* One closed module after another: *module is NULL at first. False at the end. */
hak_cold bool hak__profile_module_next_closed(struct hak_profile_module **module);
