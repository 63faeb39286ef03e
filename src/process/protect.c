/* mprotect, so that the library knows, before a block is freed, of access that the program revoked from its pages
 * (span/shield.h). It makes that system call; a direct system call of the program goes unseen. Compiled only where the library
 * replaces malloc, and not with HAKMEM_INTERPOSE=malloc-only. */
#include "base/compiler.h"

#if HAK_OVERRIDE && HAK_INTERPOSE
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/syscall.h"
#include "span/shield.h"

hak_export int mprotect(void *start, size_t bytes, int rights)
{
    bool fewer = (rights & (PROT_READ | PROT_WRITE)) != (PROT_READ | PROT_WRITE);
    if (fewer)
        hak__shield_note((uintptr_t)start, bytes);
    int code = hak__syscall_code(hak__syscall(SYS_mprotect, start, bytes, rights));
    if (fewer)
        hak__shield_note((uintptr_t)start, bytes);
    if (code != 0)
        errno = code;
    return code == 0 ? 0 : -1;
}

#endif
