// expect: hakmem: crash: SIGSEGV at (0x[0-9a-f]+): inside a free block of 64 bytes, offset 0 \(block \1, heap 1, this thread\'s\)
// env: HAKMEM_CRASH_REPORT=1
// signal: SIGSEGV
// A jump into a block that is in the thread's cache.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

int main(void)
{
    void (*code)(void) = (void (*)(void))malloc(60);
    free((void *)code);
    code();
    return 0;
}
