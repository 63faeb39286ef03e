/* prctl(2), for what it says about filters of system calls (seccomp): who installs one either does it by this function, or
 * has to promise by it beforehand to gain no privileges. Many filters end the process at a call that they do not know; all
 * know those for memory that malloc implementations make, hardly one knows mincore, which only this library makes of its
 * own accord. So it asks nothing from then on (hak__os_filter_comes), also in the children.
 *
 * The C library's function does nothing but the call, so that nothing is looked up: this works in a handler of a signal
 * and after vfork. In a child of vfork it is the parent, too, that asks nothing any more. */
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
