/* Modules that stacks lead through, as they were when a stack was first seen: a dump names those that have been closed since,
 * which the kernel's list of mappings no longer has. Never removed. Internal to profile/. */
#pragma once

#include "profile/sites.h"

struct hak_profile_module {
    struct hak_profile_module *next;
    uintptr_t start, end, offset;   /* of its code, and where that is in the file */
    char path[];                    /* absolute */
};

/* A new stack: modules of its frames that are not known yet are noted in memory of the area, if there is room. */
hak_cold void hak__profile_modules_note(struct hak_profile_area *area, const uintptr_t *frames, uint32_t count);

/* One closed module after another: *module is NULL at first. False at the end. */
hak_cold bool hak__profile_module_next_closed(struct hak_profile_module **module);
