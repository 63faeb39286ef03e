// expect: hakmem: at exit: overflow of 0x[0-9a-f]+ \(3002368-byte block, 3000000 asked for\): something was written past its end\nhakmem:   allocated:\nhakmem:     #0 0x[0-9a-f]+ \S+/hardened_exit_overflow_huge\+0x[0-9a-f]+\n(?:hakmem:     #[^\n]*\n?)*
// env: HAKMEM_HARDEN=1
// Behind a block of more than 1 MiB that is never freed.
#include <stdlib.h>

int main(void)
{
    char *volatile p = malloc(3000000);
    p[3000000] = 'x';
    return 0;
}
