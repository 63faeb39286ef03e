// expect: hakmem: crash: SIGSEGV at 0x[0-9a-f]+: in the allocator\'s own tables
// env: HAKMEM_CRASH_REPORT=1
// signal: SIGSEGV
// A wild pointer that meets the metadata.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

int main(void)
{
    /* The tables end, with a gap, where the first block's SuperSlab begins. */
    char *first = (char *)((uintptr_t)malloc(16) >> 21 << 21);
    first[-1] = 1;
    return 0;
}
