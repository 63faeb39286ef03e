/* The C library's functions that change a process's credentials. The kernel has credentials by thread; the C library has each
 * of its threads change its own, and does not know of the background thread, which would keep the old ones: an attacker
 * who can write this process's memory could get back through it what the process has given up. So there is none while these run, and
 * the next one begins with the new credentials.
 *
 * In libhakmem.so alone, like all of this folder: what is behind the names is found at run time, which takes a dynamic
 * linker. */
#if HAK_OVERRIDE

#include <dlfcn.h>
#include <errno.h>
#include <grp.h>
#include <unistd.h>

#include "base/compiler.h"
#include "upkeep/background.h"

const bool hak__background_sees_credentials = true;

/* Every process pays for looking a name up only when it calls it. errno is what the C library's function leaves. */
#define CREDENTIALS(name, params, args) \
    hak_export hak_cold int name params \
    { \
        int (*next) params; \
        *(void **)(void *)&next = dlsym(RTLD_NEXT, #name); \
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
