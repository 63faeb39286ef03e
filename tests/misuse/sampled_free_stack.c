// expect: hakmem: free\(\): invalid pointer 0x[0-9a-f]+: not from this allocator\nhakmem:   called by thread [0-9]+:\nhakmem:     #0 0x[0-9a-f]+ \S+/sampled_free_stack\+0x[0-9a-f]+\n(?:hakmem:     #[^\n]*\n?)*
// env: HAKMEM_SAMPLE_GUARDS=5000
// With sampled guards every report has the stack of who is to blame.
#include <stdlib.h>

int main(void)
{
    char local[32];
    char *volatile p = local;
    free(p);
    return 0;
}
