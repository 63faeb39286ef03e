/* dlsym, where there is one: before glibc 2.34 it is in libdl, and keys.c says why this library does not load that. A program that has
 * not loaded it at its start has an own search done, among the modules that it had then. */
#include "interpose/next.h"

#include <dlfcn.h>

#include "os/loaded.h"

#if HAK_OVERRIDE

#if defined(__GLIBC__)
typedef void *next_dlsym(void *, const char *);
HAK_LINK_FIRST(next_dlsym, next_linked_dlsym, dlsym);
#else
#define next_linked_dlsym dlsym
#endif

void *hak__next(const char *name)
{
    if (next_linked_dlsym != NULL)
        return next_linked_dlsym(RTLD_NEXT, name);
    hak__loaded_know();
    return hak__loaded_after((const void *)(uintptr_t)hak__next, name);
}

#endif
