// expect: hakmem: option a_b is not known; the nearest one is thp
// env: HAKMEM_CONF=a_b:1,a_b:1,a_b:1
// survives
// The same mistake several times: one line.
#include <stdlib.h>

int main(void)
{
    free(malloc(10));
    return 0;
}
