// expect: hakmem: at exit: overflow of 0x[0-9a-f]+ \(112-byte block, 98 asked for\): something was written past its end\nhakmem:   allocated:\nhakmem:     #0 0x[0-9a-f]+ \S+/hardened_exit_overflow\+0x[0-9a-f]+\n(?:hakmem:     #[^\n]*\n?)*
// env: HAKMEM_HARDEN=1
// One byte behind a block that is never freed: found when the program ends.
#include <stdlib.h>

int main(void)
{
    char *volatile p = malloc(98);
    p[98] = 'x';
    return 0;
}
