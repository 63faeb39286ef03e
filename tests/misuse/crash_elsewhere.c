// expect: hakmem: crash: SIGSEGV at 0x[0-9a-f]+: not from this allocator
// env: HAKMEM_CRASH_REPORT=1
// signal: SIGSEGV
// A mapping that is no block.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

int main(void)
{
    char *p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *p = 1;
    return 0;
}
