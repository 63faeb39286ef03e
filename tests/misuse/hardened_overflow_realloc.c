// expect: hakmem: realloc\(\): overflow of 0x[0-9a-f]+ \(112-byte block\): something was written behind it
// env: HAKMEM_HARDEN=1
// One byte behind the request, inside of the block.
#include <stdlib.h>

int main(void)
{
    char *volatile p = malloc(98);
    p[98] = 'x';
    return realloc(p, 200) == NULL;
}
