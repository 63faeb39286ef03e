// expect: hakmem: free\(\): double free of 0x[0-9a-f]+ \(98-byte block\)\nhakmem:   called by thread [0-9]+:\nhakmem:     #0 0x[0-9a-f]+ \S+/sampled_double_free\+0x[0-9a-f]+\n(?:hakmem:     #[^\n]*\n)*hakmem:   sampled block of 98 bytes at 0x[0-9a-f]+\nhakmem:   allocated by thread [0-9]+:\nhakmem:     #0 0x[0-9a-f]+ \S+/sampled_double_free\+0x[0-9a-f]+\n(?:hakmem:     #[^\n]*\n)*hakmem:   freed by thread [0-9]+:\nhakmem:     #0 0x[0-9a-f]+ \S+/sampled_double_free\+0x[0-9a-f]+\n(?:hakmem:     #[^\n]*\n?)*
// env: HAKMEM_SAMPLE_GUARDS=1
// A second free of a sampled block, with the stacks of all three calls.
#include <stdlib.h>

int main(void)
{
    void *volatile p = malloc(98);
    free(p);
    free(p);
    return 0;
}
