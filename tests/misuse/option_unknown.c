// expect: hakmem: option HAKMEM_REFILL_CONT is not known; the nearest one is refill_count
// env: HAKMEM_REFILL_CONT=16
// survives
// A misspelt name.
#include <stdlib.h>

int main(void)
{
    free(malloc(10));
    return 0;
}
