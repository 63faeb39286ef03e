/* What qemu's user emulation does wrong, put right for tests under it (linked with --wrap, see HakmemTestLibrary.cmake).
 *
 * Its madvise answers 0 to advice that it does not know and does nothing: here such advice is refused, as kernels that do not know it
 * refuse it. Its mincore answers for the machine's pages and not for those that it shows to the program: sixteen bytes where one is
 * expected for pages of 64 KiB. */
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MACHINE_PAGE = 4096, PAGES_MOST = 65536, GUARD_INSTALL = 102, GUARD_REMOVE = 103 };

int __real_madvise(void *address, size_t size, int advice);
int __wrap_madvise(void *address, size_t size, int advice);
long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

int __wrap_madvise(void *address, size_t size, int advice)
{
    if (advice == MADV_WIPEONFORK || advice == GUARD_INSTALL || advice == GUARD_REMOVE) {
        errno = EINVAL;
        return -1;
    }
    return __real_madvise(address, size, advice);
}

static long look(char *address, size_t size, unsigned char *pages)
{
    static _Thread_local unsigned char machine[PAGES_MOST];
    size_t page = (size_t)sysconf(_SC_PAGESIZE), each = page / MACHINE_PAGE;
    for (size_t done = 0; done < size; done += page * (PAGES_MOST / each)) {
        size_t part = size - done < page * (PAGES_MOST / each) ? size - done : page * (PAGES_MOST / each);
        long code = __real_syscall(SYS_mincore, address + done, part, machine);
        if (code != 0)
            return code;
        for (size_t i = 0; i < (part + page - 1) / page; i++)
            pages[done / page + i] = memchr(machine + i * each, 1, each) != NULL;
    }
    return 0;
}

long __wrap_syscall(long number, ...)
{
    va_list list;
    long word[6];
    va_start(list, number);
    for (unsigned i = 0; i < 6; i++)
        word[i] = va_arg(list, long);
    va_end(list);
    if (number == SYS_mincore)
        return look((char *)word[0], (size_t)word[1], (unsigned char *)word[2]);
    return __real_syscall(number, word[0], word[1], word[2], word[3], word[4], word[5]);
}
