// expect: hakmem: free\(\): invalid pointer 0x[0-9a-f]+: (no block is here, or it was freed before|not from this allocator)
// An address in the allocator's range at which there is no block.
#include <stdlib.h>

int main(void)
{
    char *p = malloc(100);
    free(p + 300 * 1024 * 1024);
    return 0;
}
