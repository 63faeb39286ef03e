// expect: hakmem: at exit: overflow of 0x[0-9a-f]+ \(112-byte block, 100 asked for\): something was written past its end\nhakmem:   allocated:\nhakmem:     #0 0x[0-9a-f]+ \S+/hardened_exit_zeros\+0x[0-9a-f]+\n(?:hakmem:     #[^\n]*\n?)*
// env: HAKMEM_HARDEN=1
// Zeros behind a block of zeros that is never freed: it is not taken for a freed block.
#include <stdlib.h>
#include <string.h>

int main(void)
{
    char *volatile p = malloc(100);
    memset(p, 0, 112);
    return 0;
}
