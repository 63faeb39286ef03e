// expect: hakmem: crash: SIGSEGV at 0x[0-9a-f]+: .*
// env: HAKMEM_HARDEN=1
// env: HAKMEM_CRASH_REPORT=1
// signal: SIGSEGV
// A huge block is not there any more when it has been freed.
#include <stdlib.h>

int main(void)
{
    volatile char *volatile p = malloc(5 << 20);
    p[100] = 1;
    free((void *)p);
    void *volatile q = malloc(5 << 20);
    p[100] = 2;
    return q == p;
}
