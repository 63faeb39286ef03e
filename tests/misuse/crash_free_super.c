// expect: hakmem: crash: SIGSEGV at 0x[0-9a-f]+: in a(?: free|n unmapped) SuperSlab
// env: HAKMEM_CRASH_REPORT=1
// signal: SIGSEGV
// A huge block used after its end: its SuperSlabs are free, since so large a block does not wait for the next request (arena/retained.h).
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

int main(void)
{
    void *before = malloc(60), *between = malloc(3 << 20);
    char *p = malloc(80 << 20);
    void *after = malloc(3 << 20);
    free(between);
    free(p);
    mprotect(p, 4096, PROT_READ);
    *p = 1;
    free(before), free(after);
    return 0;
}
