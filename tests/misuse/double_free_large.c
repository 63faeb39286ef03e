// expect: hakmem: free\(\): (double free of 0x[0-9a-f]+ \(327680-byte block\)|invalid pointer 0x[0-9a-f]+: no block is here, or it was freed before)
// A block of the large pool, freed twice by its owner.
#include <malloc.h>
#include <stdlib.h>

int main(void)
{
    void *p = malloc(300000);
    free(p);
    free(p);
    malloc_trim(0);
    return 0;
}
