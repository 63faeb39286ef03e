// expect: hakmem: at exit: overflow of 0x[0-9a-f]+ \(112-byte block, 98 asked for\): something was written past its end\nhakmem:   allocated:\nhakmem:     #0 0x[0-9a-f]+ \S+/hardened_exit_overflow_far\+0x[0-9a-f]+\n(?:hakmem:     #[^\n]*\n?)*(?:hakmem: at exit: .*\n?(?:hakmem:  .*\n?)*)*
// env: HAKMEM_HARDEN=1
// The same so far that the word which says how long the block is has gone; what lies behind may be damaged too.
#include <stdlib.h>
#include <string.h>

int main(void)
{
    char *volatile p = malloc(98);
    memset(p, 'x', 114);
    return 0;
}
