// expect: made
// signal: SIGSEGV
// env: HAKMEM_HARDEN=1
// The first byte behind a block of whole pages is a guard's.
#include <stdlib.h>
#include <unistd.h>

int main(void)
{
    char *volatile p = malloc(2 << 20);
    p[(2 << 20) - 1] = 'x';
    if (write(2, "made", 4) == 4)
        p[2 << 20] = 'x';
    return 0;
}
