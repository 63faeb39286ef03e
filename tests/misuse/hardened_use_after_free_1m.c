// expect: hakmem: crash: SIGSEGV at 0x[0-9a-f]+: inside a free huge block of 1048576 bytes, offset 100 \(block 0x[0-9a-f]+\)\nhakmem:   accessed by thread [0-9]+:\nhakmem:     #0 0x[0-9a-f]+ \S+/hardened_use_after_free_1m\+0x[0-9a-f]+\n(?:hakmem:     #[^\n]*\n)*hakmem:   allocated:\nhakmem:     #0 0x[0-9a-f]+ \S+/hardened_use_after_free_1m\+0x[0-9a-f]+\n(?:hakmem:     #[^\n]*\n)*hakmem:   freed:\nhakmem:     #0 0x[0-9a-f]+ \S+/hardened_use_after_free_1m\+0x[0-9a-f]+\n(?:hakmem:     #[^\n]*\n?)*
// env: HAKMEM_HARDEN=1
// env: HAKMEM_CRASH_REPORT=1
// signal: SIGSEGV
// Of 1 MiB, which is a huge block in hardened mode.
#include <stdlib.h>

int main(void)
{
    volatile char *volatile p = malloc(1 << 20);
    p[100] = 1;
    free((void *)p);
    p[100] = 2;
    return 0;
}
