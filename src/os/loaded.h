/* The objects of the process as the dynamic linker lists them, and their symbols. Used where something has already gone wrong, so
 * nothing here allocates. It takes one lock, dl_iterate_phdr's, which others hold only while the list changes, never while a
 * constructor runs.
 *
 * A fully static program exports nothing, and a library in a namespace of its own (dlmopen) sees that namespace alone. */
#pragma once

#include "base/compiler.h"

/* The function or object that references of the program itself are bound to: the first definition in the order of loading; NULL if there
 * is none. */
hak_cold void *hak__loaded_first(const char *name);

/* A function of the object that the kernel maps into each process; NULL where there is none. Takes no lock. */
void *hak__loaded_by_kernel(const char *name);

/* The same for the object that has the address `user` in it: its own definition, or that of a library which it needs, or which
 * one of those needs; only where they have none, anybody's first one. */
hak_cold void *hak__loaded_for(const void *user, const char *name);

/* Whether the object that has the address `one` in it stands before that of `other`, or is the same. */
hak_cold bool hak__loaded_before(const void *one, const void *other);
