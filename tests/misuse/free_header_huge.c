// expect: hakmem: free\(\): invalid pointer 0x[0-9a-f]+: not the start of a block
// A few bytes into a huge block, as with a header that the program put there itself.
#include <stdlib.h>

int main(void)
{
    char *p = malloc(10000000);
    free(p + 64);
    return 0;
}
