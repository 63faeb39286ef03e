/* prctl(2), for its news of system call filters (seccomp): a program installs a filter with this function, or first has to use
 * it to promise not to gain privileges. Many filters end the process at an unknown call; all know the memory calls of malloc
 * implementations, but hardly any knows mincore, which only this library makes of its own accord. So it makes no more of them
 * from then on (hak__os_filter_comes), nor do the process's children.
 *
 * The C library's function only makes the system call, so this one looks nothing up, and works in a signal handler and after
 * vfork. After a call in a vfork child the parent stops asking too. */
#if HAK_OVERRIDE

#include <errno.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/syscall.h"
#include "os/os.h"

hak_export hak_cold int prctl(int option, ...)
{
    unsigned long values[4];
    va_list more;
    va_start(more, option);
    for (unsigned i = 0; i < 4; i++)
        values[i] = va_arg(more, unsigned long);
    va_end(more);
    bool filter = option == PR_SET_SECCOMP || option == PR_SET_NO_NEW_PRIVS;
    bool before = filter && hak__os_filter_comes(true);
    long result = hak__syscall(SYS_prctl, option, values[0], values[1], values[2], values[3]);
    if (filter && !before && result != 0)
        hak__os_filter_comes(false);
    if (result < 0)
        errno = (int)-result;
    return result < 0 ? -1 : (int)result;
}

#endif
