// expect: hakmem: free\(\): invalid pointer 0x10: not from this allocator
// A member of a structure at NULL.
#include <stdlib.h>

int main(void)
{
    free((void *)16);
    return 0;
}
