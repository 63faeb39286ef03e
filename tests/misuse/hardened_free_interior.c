// expect: hakmem: free\(\): invalid pointer 0x[0-9a-f]+: not the start of a block\nhakmem:   called by thread [0-9]+:\nhakmem:     #0 0x[0-9a-f]+ \S+/hardened_free_interior\+0x[0-9a-f]+\n(?:hakmem:     #[^\n]*\n?)*
// env: HAKMEM_HARDEN=1
// An invalid free, with the stack of who makes it.
#include <stdlib.h>

int main(void)
{
    char *volatile p = malloc(98);
    free(p + 16);
    return 0;
}
