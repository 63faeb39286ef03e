// expect: hakmem: free\(\): invalid pointer 0x[0-9a-f]+: not the start of a block
// Where a fourth block of 41088 bytes would begin: the first span of a thread is short and has three.
#include <stdlib.h>

int main(void)
{
    char *p = malloc(40 << 10);
    free(p + 3 * 41088);
    return 0;
}
