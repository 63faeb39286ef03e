// expect: (?s)hakmem: realloc\(\): overflow of 0x[0-9a-f]+ \(112-byte block\): something was written past its end\nhakmem:   called by thread [0-9]+:\nhakmem:     #0 0x[0-9a-f]+ \S+/hardened_overflow_realloc\+0x[0-9a-f]+\n.*\nhakmem:   allocated:\nhakmem:     #0 0x[0-9a-f]+ \S+/hardened_overflow_realloc\+0x[0-9a-f]+\n(?!.*freed).*
// env: HAKMEM_HARDEN=1
// One byte behind the request, inside of the block.
#include <stdlib.h>

int main(void)
{
    char *volatile p = malloc(98);
    p[98] = 'x';
    return realloc(p, 200) == NULL;
}
