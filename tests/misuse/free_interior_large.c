// expect: hakmem: free\(\): invalid pointer 0x[0-9a-f]+: not the start of a block
// The middle of a large block, found at once.
#include <stdlib.h>

int main(void)
{
    char *p = malloc(300000);
    free(p + 150000);
    return 0;
}
