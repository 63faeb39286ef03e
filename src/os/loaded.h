/* The objects of the process as the dynamic linker lists them, and their symbols. Nothing here allocates. All functions but
 * those said to take no lock take dl_iterate_phdr's, which a callback of the program may hold, and which a forked child may find held for
 * ever: no correct call of malloc's family reaches them.
 *
 * A fully static program exports nothing, and a library in a separate namespace (dlmopen) sees only that namespace. */
#pragma once

#include "base/compiler.h"

/* The function or object to which the program's own references are bound: the first definition in load order, or NULL. */
hak_cold void *hak__loaded_first(const char *name);

/* A function of the object that the kernel maps into each process, or NULL. Takes no lock. */
void *hak__loaded_by_kernel(const char *name);

/* The same for the object that contains the address `user`: its own definition, or one of a library that it needs directly or
 * indirectly; only if these have none, the first one of any object. */
hak_cold void *hak__loaded_for(const void *user, const char *name);

/* Whether the object that contains the address `one` precedes that of `other`, or is the same. */
hak_cold bool hak__loaded_before(const void *one, const void *other);

struct hak_module {
    uintptr_t start, end, base; /* of all its parts; the base of the addresses in its file */
    const char *name; /* as the loader has it: empty for the program itself */
    const uint8_t *tables; /* the header of its call frame tables, or NULL */
};

/* Called by the library's constructor. */
hak_at_start void hak__loaded_begin(void);

/* The C library's lock-free search for the module of an address, or NULL: _dl_find_object, glibc 2.35. */
struct unwind_object;
extern int (*hak__loaded_search)(void *address, struct unwind_object *result);

/* Notes the modules that there are, for a C library without that search. Once. */
hak_cold void hak__loaded_know(void);

/* The first definition in the noted modules behind the one of the address `user`, or NULL. Takes no lock. */
hak_cold void *hak__loaded_after(const void *user, const char *name);

/* Finds the module of an address without a lock: by the C library's search if there is one, otherwise among the noted ones. False:
 * it is in none, and *module is unchanged. */
hak_cold bool hak__loaded_at(uintptr_t address, struct hak_module *module);
