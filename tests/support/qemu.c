/* What qemu's user emulation does wrong, put right for tests under it (linked with --wrap, see HakmemTestLibrary.cmake).
 *
 * Its madvise answers 0 to advice that it does not know and does nothing, also where nothing is mapped: here such advice is refused, as
 * kernels that do not know it refuse it, and children of fork() lack the single pages that they shall lack. Its mincore answers
 * for the machine's pages and not for those that it shows to the program: sixteen bytes where one is expected for pages of 64 KiB. */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MACHINE_PAGE = 4096, PAGES_MOST = 4096, GUARD_INSTALL = 102, GUARD_REMOVE = 103, ABSENT_MOST = 8 };

int __real_madvise(void *address, size_t size, int advice);
int __wrap_madvise(void *address, size_t size, int advice);
int __wrap_mincore(void *address, size_t size, unsigned char *pages);
long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

static long look(char *address, size_t size, unsigned char *pages)
{
    unsigned char machine[PAGES_MOST];
    size_t page = (size_t)sysconf(_SC_PAGESIZE), each = page / MACHINE_PAGE;
    for (size_t done = 0; done < size; done += page * (PAGES_MOST / each)) {
        size_t part = size - done < page * (PAGES_MOST / each) ? size - done : page * (PAGES_MOST / each);
        memset(machine, 0, sizeof machine);   /* of a part of a page the rest is not said */
        long code = __real_syscall(SYS_mincore, address + done, part, machine);
        if (code != 0)
            return code;
        for (size_t i = 0; i < (part + page - 1) / page; i++)
            pages[done / page + i] = memchr(machine + i * each, 1, each) != NULL;
    }
    return 0;
}

int __wrap_mincore(void *address, size_t size, unsigned char *pages) { return (int)look(address, size, pages); }

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

/* --- advice --------------------------------------------------------------------------------------------------------------- */

/* Pages that children shall not have. */
static struct {
    void *address;
    size_t size;
} absent[ABSENT_MOST];

static void leave_to_parent(void)
{
    for (unsigned i = 0; i < ABSENT_MOST; i++)
        if (absent[i].size != 0)
            munmap(absent[i].address, absent[i].size);
    memset(absent, 0, sizeof absent);
}

__attribute__((constructor)) static void begin(void) { pthread_atfork(NULL, NULL, leave_to_parent); }

static int keep_from_children(void *address, size_t size)
{
    for (unsigned i = 0; i < ABSENT_MOST; i++)
        if (absent[i].size == 0 || absent[i].address == address) {
            absent[i].address = address;
            absent[i].size = size;
            return 0;
        }
    errno = ENOMEM;
    return -1;
}

static void give_to_children(const char *address, size_t size)
{
    for (unsigned i = 0; i < ABSENT_MOST; i++)
        if ((char *)absent[i].address - address < (long)size && (char *)absent[i].address >= address)
            absent[i].size = 0;
}

static bool is_there(char *address, size_t size)
{
    unsigned char page;
    size_t last = (size - 1) & ~(size_t)(sysconf(_SC_PAGESIZE) - 1);
    return look(address, 1, &page) == 0 && look(address + last, 1, &page) == 0;
}

int __wrap_madvise(void *address, size_t size, int advice)
{
    bool known = advice != MADV_WIPEONFORK && advice != GUARD_INSTALL && advice != GUARD_REMOVE;
    if (!known || (size != 0 && !is_there(address, size))) {
        errno = known ? ENOMEM : EINVAL;
        return -1;
    }
    if (advice == MADV_DONTFORK && size <= (size_t)sysconf(_SC_PAGESIZE))
        return keep_from_children(address, size);
    if (advice == MADV_DOFORK)
        give_to_children(address, size);
    return __real_madvise(address, size, advice);
}
