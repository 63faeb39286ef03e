// expect: hakmem: crash: SIGSEGV at 0x[0-9a-f]+: inside a free huge block of 5242880 bytes, offset 0 \(block 0x[0-9a-f]+\)
// env: HAKMEM_CRASH_REPORT=1
// signal: SIGSEGV
// A huge block used after its end, while it waits for the next request of its size (arena/retained.h).
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

int main(void)
{
    void *before = malloc(60), *between = malloc(3 << 20);
    char *p = malloc(5 << 20);
    void *after = malloc(3 << 20);
    free(between);
    free(p);
    mprotect(p, 4096, PROT_READ);
    *p = 1;
    free(before), free(after);
    return 0;
}
