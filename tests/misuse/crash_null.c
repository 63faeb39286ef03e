// expect: hakmem: crash: SIGSEGV at 0x10: NULL, or close to it
// env: HAKMEM_CRASH_REPORT=1
// signal: SIGSEGV
// A member of a structure that is not there.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

int main(void)
{
    *(volatile char *)16 = 1;
    return 0;
}
