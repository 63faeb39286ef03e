// expect: hakmem: crash: SIGSEGV at 0x[0-9a-f]+: 4096 bytes beyond the end of a huge block of 3145728 bytes \(block 0x[0-9a-f]+\)
// env: HAKMEM_CRASH_REPORT=1
// signal: SIGSEGV
// A write behind a huge block.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

int main(void)
{
    char *p = malloc(3 << 20);
    p[(3 << 20) + 4096] = 1;
    return 0;
}
