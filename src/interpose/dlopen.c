/* dlopen and dlmopen without RTLD_DEEPBIND, where this library is the program's malloc. A library opened with that flag looks
 * for every name first in itself and its dependencies: it finds the C library's malloc and free, and passes to that free blocks
 * that the program got from here, which ends in a crash. Without the flag it finds the program's.
 *
 * The C library derives RUNPATH, $ORIGIN and namespace from its caller's return address, so both functions end in a jump to the
 * next dlopen; golden.test_deepbind looks for the jump in their code. On processors where the test does not look for it, dlopen
 * stays the C library's.
 *
 * Part of libhakmem.so only: a program with the archive in it may be fully static, and has its own dlopen then. */
#include <dlfcn.h>

#if HAK_OVERRIDE && defined(RTLD_DEEPBIND) && (defined(__x86_64__) || defined(__aarch64__))

#include "base/atomic.h"
#include "diag/options.h"
#include "diag/report.h"
#include "interpose/next.h"
#include "kinds/kind.h"
#include "process/start.h"

static _Atomic uintptr_t next_dlopen, next_dlmopen;

static hak_aside uintptr_t next_function(_Atomic uintptr_t *known, const char *name)
{
    uintptr_t next = hak_load(known, HAK_RELAXED); /* relaxed: it guards no other memory */
    if (next == 0) {
        next = (uintptr_t)hak__next(name);
        if (next == 0)
            hak__fatal("%s(): no library after this one has it", name);
        hak_store(known, next, HAK_RELAXED);
    }
    return next;
}

static hak_aside int allowed_mode(Lmid_t space, int mode)
{
    if ((mode & RTLD_DEEPBIND) == 0 || space != LM_ID_BASE) /* other namespaces have their own malloc */
        return mode;
    (void)hak__start(); /* reads the options */
    return hak__option(HAK_OPTION_keep_deepbind) == 0 && hak__is_programs_malloc() ? mode & ~RTLD_DEEPBIND : mode;
}

hak_export hak_aside void *dlopen(const char *file, int mode)
{
    void *(*next)(const char *, int) = (void *(*)(const char *, int))next_function(&next_dlopen, "dlopen");
    mode = allowed_mode(LM_ID_BASE, mode);
    hak_tail_call return next(file, mode);
}

hak_export hak_aside void *dlmopen(Lmid_t space, const char *file, int mode)
{
    void *(*next)(Lmid_t, const char *, int) = (void *(*)(Lmid_t, const char *, int))next_function(&next_dlmopen, "dlmopen");
    mode = allowed_mode(space, mode);
    hak_tail_call return next(space, file, mode);
}

#endif
