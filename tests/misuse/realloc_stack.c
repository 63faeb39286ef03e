// expect: hakmem: realloc\(\): invalid pointer 0x[0-9a-f]+: not from this allocator
// realloc of a variable of the function.
#include <stdlib.h>

int main(void)
{
    char buffer[100];
    free(malloc(10));
    return realloc(buffer, 200) != NULL;
}
