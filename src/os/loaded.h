/* The objects of the process as the dynamic linker lists them, and their symbols. Nothing here allocates. All but hak__loaded_at take
 * dl_iterate_phdr's lock, which a callback of the program may hold, and which a forked child may find held for ever: nothing that a
 * correct call of malloc's family comes to asks them.
 *
 * A fully static program exports nothing, and a library in a separate namespace (dlmopen) sees that namespace alone. */
#pragma once

#include "base/compiler.h"

/* The function or object that references of the program itself are bound to: the first definition in the order of loading; NULL if there
 * is none. */
hak_cold void *hak__loaded_first(const char *name);

/* A function of the object that the kernel maps into each process; NULL where there is none. Takes no lock. */
void *hak__loaded_by_kernel(const char *name);

/* The same for the object that has the address `user` in it: its own definition, or that of a library which it needs, or which
 * one of those needs; only where they have none, the first one of any object. */
hak_cold void *hak__loaded_for(const void *user, const char *name);

/* Whether the object that has the address `one` in it stands before that of `other`, or is the same. */
hak_cold bool hak__loaded_before(const void *one, const void *other);

struct hak_module {
    uintptr_t start, end, base; /* of all its parts; what its file's addresses count from */
    const char *name; /* the loader's: empty for the program itself */
    const uint8_t *tables; /* the header of its call frame tables, or NULL */
};

/* Once, by the library's constructor. */
hak_at_start void hak__loaded_begin(void);

/* The module of an address, without a lock: by the C library's search where it has one (_dl_find_object, glibc 2.35); else only those
 * of the program's start are known. False, and nothing is stored: it is in none. */
hak_cold bool hak__loaded_at(uintptr_t address, struct hak_module *module);
