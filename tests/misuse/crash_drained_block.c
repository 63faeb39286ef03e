// expect: hakmem: crash: SIGSEGV at (0x[0-9a-f]+): inside a free block of 64 bytes, offset 0 \(block \1, heap 1, this thread\'s\)
// env: HAKMEM_CRASH_REPORT=1
// signal: SIGSEGV
// The same when the block has gone back to its slab.
#define _GNU_SOURCE
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

int main(void)
{
    void *held = malloc(60);
    void (*code)(void) = (void (*)(void))malloc(60);
    free((void *)code);
    malloc_trim(0);
    code();
    free(held);
    return 0;
}
