// expect: hakmem: free\(\): double free of 0x[0-9a-f]+ \(229376-byte block\)\nhakmem:   called by thread [0-9]+:\nhakmem:     #0 0x[0-9a-f]+ \S+/hardened_double_free_large\+0x[0-9a-f]+\n(?:hakmem:     #[^\n]*\n)*hakmem:   allocated:\nhakmem:     #0 0x[0-9a-f]+ \S+/hardened_double_free_large\+0x[0-9a-f]+\n(?:hakmem:     #[^\n]*\n)*hakmem:   freed:\nhakmem:     #0 0x[0-9a-f]+ \S+/hardened_double_free_large\+0x[0-9a-f]+\n(?:hakmem:     #[^\n]*\n?)*
// env: HAKMEM_HARDEN=1
// A second free of a block that is inaccessible by then.
#include <stdlib.h>

int main(void)
{
    void *volatile p = malloc(200 << 10);
    free(p);
    free(p);
    return 0;
}
