/* The C library's functions that change a process's credentials. The kernel keeps credentials per thread; the C library has each
 * of its threads change its own, and does not know the background thread, which would keep the old ones: an attacker who can
 * write to this process's memory could regain through it the rights that the process gave up. So the thread is stopped while
 * these functions run, and the next one starts with the new credentials.
 *
 * Part of libhakmem.so only, like this whole folder: the functions behind the names are found at run time, which takes a dynamic
 * linker. */
#if HAK_OVERRIDE

#include <errno.h>
#include <grp.h>
#include <unistd.h>

#include "base/compiler.h"
#include "interpose/next.h"
#include "upkeep/background.h"

const bool hak__background_sees_credentials = true;

/* Looks a name up only on its first call, so other processes pay nothing. errno is as the C library's function leaves it. */
#define CREDENTIALS(name, params, args) \
    hak_export hak_cold int name params \
    { \
        int (*next) params; \
        *(void **)(void *)&next = hak__next(#name); \
        if (next == NULL) { \
            errno = ENOSYS; \
            return -1; \
        } \
        hak__background_forbid(); \
        int result = next args; \
        hak__background_allow(); \
        return result; \
    }

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

#endif
