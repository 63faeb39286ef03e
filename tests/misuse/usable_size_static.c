// expect: hakmem: malloc_usable_size\(\): invalid pointer 0x[0-9a-f]+: not from this allocator
// malloc_usable_size of a static variable.
#include <malloc.h>
#include <stdlib.h>

static char buffer[100];

int main(void)
{
    free(malloc(10));
    return malloc_usable_size(buffer) != 0;
}
