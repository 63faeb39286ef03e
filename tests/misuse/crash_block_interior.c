// expect: hakmem: crash: SIGSEGV at 0x[0-9a-f]+: inside a live block of 128 bytes, offset 40 \(block 0x[0-9a-f]+, heap 1, this thread\'s\)
// env: HAKMEM_CRASH_REPORT=1
// signal: SIGSEGV
// A jump into the middle of a block.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

int main(void)
{
    void (*code)(void) = (void (*)(void))((char *)malloc(128) + 40);
    code();
    return 0;
}
