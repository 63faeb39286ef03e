// expect: (?:hakmem: at exit: overflow of 0x[0-9a-f]+ \(112-byte block, 98 asked for\): something was written past its end\nhakmem:   allocated:\n(?:hakmem:     #[^\n]*\n)+){8}hakmem: at exit: at least 12 more damaged blocks
// env: HAKMEM_HARDEN=1
// The same of twenty blocks: eight of them are named.
#include <stdlib.h>

int main(void)
{
    for (int i = 0; i < 20; i++) {
        char *volatile p = malloc(98);
        p[98] = 'x';
    }
    return 0;
}
