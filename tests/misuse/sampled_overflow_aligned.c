// expect: (?s)hakmem: free\(\): overflow of 0x[0-9a-f]+ \(100-byte block\): 0x[0-9a-f]+ was written before\nhakmem:   called by thread [0-9]+:\n.*hakmem:   sampled block of 100 bytes at 0x[0-9a-f]+\nhakmem:   allocated by thread [0-9]+:\n.*
// env: HAKMEM_SAMPLE_GUARDS=1
// One byte behind the request in a sampled block, which has more for its alignment.
#include <malloc.h>
#include <stdlib.h>

int main(void)
{
    char *volatile p = memalign(64, 100);
    p[100] = 'x';
    free(p);
    return 0;
}
