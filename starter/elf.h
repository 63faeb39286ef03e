/* Symbols of a 64-bit ELF file, by name and by address. A file that is damaged has no symbols. */
#pragma once

#include "system.h"

/* The address of a symbol in the file; false: it has none of that name. */
bool elf_address(const struct view *file, const char *name, uint64_t *address);

/* The function at an address of the file, and how far in; NULL: it has no name. */
const char *elf_function(const struct view *file, uint64_t address, uint64_t *offset);

/* Whether the file is such a program or library; *interpreter is its dynamic linker, NULL: it has none. */
bool elf_is(const struct view *file, const char **interpreter);
