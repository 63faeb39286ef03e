// expect: hakmem: crash: SIGSEGV at 0x[0-9a-f]+: inside a live huge block of 3145728 bytes, offset 2097160 \(block 0x[0-9a-f]+\)
// env: HAKMEM_CRASH_REPORT=1
// signal: SIGSEGV
// A page of a huge block that the program has protected.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

int main(void)
{
    char *p = malloc(3 << 20);
    mprotect(p, 3 << 20, PROT_READ);
    p[(2 << 20) + 8] = 1;
    return 0;
}
