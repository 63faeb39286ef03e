/* A range of addresses that is the library's before there is memory in it: for what must not move and grows to a size that
 * nobody knows. Real in tests too, so not part of os.h's table. All functions may be called in signal handlers; any thread. */
#pragma once

#include "base/compiler.h"

/* `size` bytes of inaccessible addresses, which cost no memory; 0 when the system refuses. */
hak_cold uintptr_t hak__os_reserve(size_t size);

/* The pages of the range, which is part of a reserved one, are zeroed memory from now on if they were not memory before, and
 * keep their contents if they were. 0 or an errno code. */
hak_cold int hak__os_commit(uintptr_t address, size_t size);

/* The pages go back to the system and read as zeros. */
hak_cold void hak__os_discard(uintptr_t address, size_t size);

/* Zeroed memory for a moment, apart from the heap; 0 when the system refuses. */
hak_cold uintptr_t hak__os_borrow(size_t size);
hak_cold void hak__os_return(uintptr_t address, size_t size);

/* Lets data that the loader has made read-only be written. 0 or an errno code. */
hak_cold int hak__os_unprotect(void *data, size_t size);
