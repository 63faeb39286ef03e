// expect: hakmem: at exit: overflow of 0x[0-9a-f]+ \(229376-byte block, 200000 asked for\): something was written past its end\nhakmem:   allocated:\nhakmem:     #0 0x[0-9a-f]+ \S+/hardened_exit_overflow_large\+0x[0-9a-f]+\n(?:hakmem:     #[^\n]*\n?)*
// env: HAKMEM_HARDEN=1
// Behind a large block that is never freed.
#include <stdlib.h>

int main(void)
{
    char *volatile p = malloc(200000);
    p[200000] = 'x';
    return 0;
}
