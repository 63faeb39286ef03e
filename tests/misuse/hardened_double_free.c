// expect: hakmem: free\(\): double free of 0x[0-9a-f]+ \(112-byte block\)\nhakmem:   called by thread [0-9]+:\nhakmem:     #0 0x[0-9a-f]+ \S+/hardened_double_free\+0x[0-9a-f]+\n(?:hakmem:     #[^\n]*\n)*hakmem:   allocated:\nhakmem:     #0 0x[0-9a-f]+ \S+/hardened_double_free\+0x[0-9a-f]+\n(?:hakmem:     #[^\n]*\n)*hakmem:   freed:\nhakmem:     #0 0x[0-9a-f]+ \S+/hardened_double_free\+0x[0-9a-f]+\n(?:hakmem:     #[^\n]*\n?)*
// env: HAKMEM_HARDEN=1
// A second free, with the stacks of all three calls.
#include <stdlib.h>

static void *make(void) { return malloc(98); }
static void drop(void *p) { free(p); }
static void drop_again(void *p) { free(p); }

int main(void)
{
    void *volatile p = make();
    drop(p);
    drop_again(p);
    return 0;
}
