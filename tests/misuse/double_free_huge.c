// expect: hakmem: free\(\): invalid pointer 0x[0-9a-f]+: no block is here, or it was freed before
// A huge block, freed twice.
#include <stdlib.h>

int main(void)
{
    void *p = malloc(5000000);
    free(p);
    free(p);
    return 0;
}
