// expect: hakmem: free\(\): invalid pointer 0x[0-9a-f]+: not from this allocator
// A variable of the function.
#include <stdlib.h>

int main(void)
{
    char buffer[100];
    free(malloc(10));
    free(buffer);
    return 0;
}
