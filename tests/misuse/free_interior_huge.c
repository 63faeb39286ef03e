// expect: hakmem: free\(\): invalid pointer 0x[0-9a-f]+: no block is here, or it was freed before
// The middle of a huge block.
#include <stdlib.h>

int main(void)
{
    char *p = malloc(10000000);
    free(p + 5000000);
    return 0;
}
