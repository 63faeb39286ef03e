/* See reserved.h. */
#include "os/reserved.h"

#include <sys/mman.h>

#include "base/bits.h"
#include "base/syscall.h"
#include "os/os.h"

static int protect_pages(uintptr_t address, size_t size)
{
    size_t page = hak__os->page_size();
    uintptr_t start = hak_align_down(address, page), end = hak_align_up(address + size, page);
    return hak__syscall_code(hak__syscall(SYS_mprotect, start, end - start, PROT_READ | PROT_WRITE));
}

static uintptr_t map_anywhere(size_t size, int rights, int flags)
{
    long at = hak__syscall(SYS_mmap, 0, size, rights, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    return hak__syscall_code(at) != 0 ? 0 : (uintptr_t)at;
}

uintptr_t hak__os_reserve(size_t size) { return map_anywhere(size, PROT_NONE, MAP_NORESERVE); }
uintptr_t hak__os_borrow(size_t size) { return map_anywhere(size, PROT_READ | PROT_WRITE, 0); }

void hak__os_return(uintptr_t address, size_t size)
{
    hak__syscall(SYS_munmap, address, size);
}

int hak__os_commit(uintptr_t address, size_t size) { return protect_pages(address, size); }

void hak__os_discard(uintptr_t address, size_t size) { hak__syscall(SYS_madvise, address, size, MADV_DONTNEED); }

int hak__os_unprotect(void *data, size_t size) { return protect_pages((uintptr_t)data, size); }
