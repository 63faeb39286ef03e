// expect: hakmem: malloc_usable_size\(\): invalid pointer 0x[0-9a-f]+: not the start of a block
// malloc_usable_size of a pointer into a block.
#include <malloc.h>
#include <stdlib.h>

int main(void)
{
    char *p = malloc(100);
    return malloc_usable_size(p + 8) != 0;
}
