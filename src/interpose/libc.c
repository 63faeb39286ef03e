/* Functions of the C library whose calls the library has to see: those of credentials, of filters of system calls, of ends without
 * destructors, and of libraries that would not share malloc. Part of libhakmem.so only: most of the functions behind the names are
 * found at run time, which takes a dynamic linker, and a program with the archive in it may be fully static. */
#if HAK_OVERRIDE

#include <dlfcn.h>
#include <errno.h>
#include <grp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/syscall.h"
#include "diag/options.h"
#include "diag/report.h"
#include "kinds/kind.h"
#include "os/os.h"
#include "process/process.h"
#include "stats/stats.h"
#include "upkeep/nearness.h"
#include "upkeep/upkeep.h"

/* --- credentials ------------------------------------------------------------------------------------------------------ */

/* The kernel keeps credentials per thread; the C library has each of its threads change its own, and does not know the background
 * thread, which would keep the old ones: an attacker who can write to this process's memory could regain through it the rights that
 * the process gave up. So the thread is stopped while these functions run, and the next one starts with the new credentials. */
const bool hak__is_interposed = true;

/* The C library's function between two statements. Looks its name up only when called, so other processes pay nothing. errno is as it
 * leaves it. */
#define AROUND_NEXT(name, params, args, before, after) \
    hak_export hak_cold int name params \
    { \
        int (*next) params; \
        *(void **)(void *)&next = hak__os_next(#name); \
        if (next == NULL) { \
            errno = ENOSYS; \
            return -1; \
        } \
        before; \
        int result = next args; \
        after; \
        return result; \
    }
#define CREDENTIALS(name, params, args) AROUND_NEXT(name, params, args, hak__background_forbid(), hak__background_allow())

CREDENTIALS(setuid, (uid_t user), (user))
CREDENTIALS(setgid, (gid_t group), (group))
CREDENTIALS(seteuid, (uid_t user), (user))
CREDENTIALS(setegid, (gid_t group), (group))
CREDENTIALS(setreuid, (uid_t real, uid_t effective), (real, effective))
CREDENTIALS(setregid, (gid_t real, gid_t effective), (real, effective))
CREDENTIALS(setresuid, (uid_t real, uid_t effective, uid_t saved), (real, effective, saved))
CREDENTIALS(setresgid, (gid_t real, gid_t effective, gid_t saved), (real, effective, saved))
CREDENTIALS(setgroups, (size_t count, const gid_t *groups), (count, groups))
CREDENTIALS(initgroups, (const char *user, gid_t group), (user, group))

/* --- filters of system calls ------------------------------------------------------------------------------------------ */

/* prctl(2): a program installs a filter (seccomp) with this function, or first has to use it to promise not to gain privileges. Many
 * filters end the process at an unknown call; all know the memory calls of malloc implementations, but hardly any knows mincore,
 * which only this library makes of its own accord, and not all know getrusage. So it makes no more of them from then on (hak__os_filter_comes), nor do the
 * process's children; and files, which the library may yet have to read, are read before (upkeep/nearness.h).
 *
 * The C library's function only makes the system call, so this one looks nothing up, and works in a signal handler and after
 * vfork. A vfork child's call is its own: the parent goes on as before. */
hak_export hak_cold int prctl(int option, ...)
{
    unsigned long values[4];
    va_list more;
    va_start(more, option);
    for (unsigned i = 0; i < 4; i++)
        values[i] = va_arg(more, unsigned long);
    va_end(more);
    bool filter = (option == PR_SET_SECCOMP || option == PR_SET_NO_NEW_PRIVS) && !hak__os_is_filtered() && !hak__fork_is_borrowed();
    if (filter && hak__has_started())
        hak__near_meet(true);
    bool before = filter && hak__os_filter_comes(true);
    long result = hak__syscall(SYS_prctl, option, values[0], values[1], values[2], values[3]);
    if (filter && !before && result != 0)
        hak__os_filter_comes(false);
    if (result < 0)
        errno = (int)-result;
    return result < 0 ? -1 : (int)result;
}

/* --- the end ---------------------------------------------------------------------------------------------------------- */

/* A vfork child's parent keeps its box. Behind a filter of system calls the file stays too. */
static void end_box(void)
{
    if (!hak__os_is_filtered())
        hak__blackbox_end();
}

/* Ends without a destructor: shells end by it, and forked children. Works in a signal handler and in a vfork child. */
hak_export hak_cold _Noreturn void _exit(int status)
{
    end_box();
    for (;;)
        hak__syscall(SYS_exit_group, status);
}

hak_export hak_cold _Noreturn void _Exit(int status) { _exit(status); }

/* Ends the calling process by an _exit of the C library's own. If it fails, the process goes on without a box. */
AROUND_NEXT(daemon, (int keeps_folder, int keeps_files), (keeps_folder, keeps_files), end_box(), )

/* --- libraries -------------------------------------------------------------------------------------------------------- */

/* dlopen and dlmopen without RTLD_DEEPBIND, where this library is the program's malloc. A library opened with that flag looks
 * for every name first in itself and its dependencies: it finds the C library's malloc and free, and passes to that free blocks
 * that the program got from here, which ends in a crash. Without the flag it finds the program's.
 *
 * The C library derives RUNPATH, $ORIGIN and namespace from its caller's return address, so both functions end in a jump to the
 * next dlopen; golden.test_deepbind looks for the jump in their code. On processors where the test does not look for it, dlopen
 * stays the C library's. */
#if defined(RTLD_DEEPBIND) && (defined(__x86_64__) || defined(__aarch64__))

static _Atomic uintptr_t next_dlopen, next_dlmopen;

static hak_aside uintptr_t next_function(_Atomic uintptr_t *known, const char *name)
{
    uintptr_t next = hak_load(known, HAK_RELAXED); /* relaxed: it guards no other memory */
    if (next == 0) {
        next = (uintptr_t)hak__os_next(name);
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
#endif
