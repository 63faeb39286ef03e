// expect: hakmem: crash: SIGSEGV at (0x[0-9a-f]+): inside a live block of 64 bytes, offset 0 \(block \1, heap 1, this thread\'s\)
// env: HAKMEM_CRASH_REPORT=1
// signal: SIGSEGV
// A jump into the heap: data is not executable.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

int main(void)
{
    void (*code)(void) = (void (*)(void))malloc(60);
    code();
    return 0;
}
