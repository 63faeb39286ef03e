// expect: hakmem: free\(\): invalid pointer 0x[0-9a-f]+: not from this allocator
// A static variable, in a program that has not allocated anything itself.
#include <stdlib.h>

static char buffer[100];

int main(void)
{
    free(buffer);
    return 0;
}
