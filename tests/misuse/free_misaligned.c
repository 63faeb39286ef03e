// expect: hakmem: free\(\): invalid pointer 0x[0-9a-f]+: not the start of a block
// A pointer one byte into a block.
#include <malloc.h>
#include <stdlib.h>

int main(void)
{
    char *p = malloc(100);
    free(p + 1);
    malloc_trim(0);
    return 0;
}
