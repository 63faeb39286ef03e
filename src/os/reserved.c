/* See reserved.h. System calls are made directly: the C library's functions may be the program's or our own (protect.c). */
#include "os/reserved.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/bits.h"
#include "os/os.h"

static int protect_pages(uintptr_t address, size_t size)
{
    size_t page = hak__os->page_size();
    uintptr_t start = hak_align_down(address, page), end = hak_align_up(address + size, page);
    int saved = errno;
    int code = syscall(SYS_mprotect, start, end - start, PROT_READ | PROT_WRITE) == 0 ? 0 : errno;
    errno = saved;
    return code;
}

static uintptr_t map_anywhere(size_t size, int rights, int flags)
{
    int saved = errno;
    long at = syscall(SYS_mmap, NULL, size, rights, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0L);
    errno = saved;
    return at == -1 ? 0 : (uintptr_t)at;
}

uintptr_t hak__os_reserve(size_t size) { return map_anywhere(size, PROT_NONE, MAP_NORESERVE); }
uintptr_t hak__os_borrow(size_t size) { return map_anywhere(size, PROT_READ | PROT_WRITE, 0); }

void hak__os_return(uintptr_t address, size_t size)
{
    int saved = errno;
    syscall(SYS_munmap, address, size);
    errno = saved;
}

int hak__os_commit(uintptr_t address, size_t size) { return protect_pages(address, size); }

void hak__os_discard(uintptr_t address, size_t size)
{
    int saved = errno;
    syscall(SYS_madvise, address, size, MADV_DONTNEED);
    errno = saved;
}

int hak__os_unprotect(void *data, size_t size) { return protect_pages((uintptr_t)data, size); }
