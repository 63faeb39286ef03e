// expect: (?s)hakmem: crash: SIGSEGV at 0x[0-9a-f]+: inside a free huge block of [0-9]+ bytes, offset 100 \(block 0x[0-9a-f]+\)\nhakmem:   accessed by thread [0-9]+:\nhakmem:     #0 0x[0-9a-f]+ \S+/hardened_use_after_free_huge\+0x[0-9a-f]+\n.*hakmem:   allocated:\n.*hakmem:   freed:\n.*
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
