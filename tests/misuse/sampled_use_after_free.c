// expect: (?s)hakmem: use after free: \w+ at 0x[0-9a-f]+: inside a freed sampled block of 100 bytes, offset 40 \(block 0x[0-9a-f]+\)\nhakmem:   accessed by thread [0-9]+:\nhakmem:     #0 0x[0-9a-f]+ .*sampled_use_after_free\+0x[0-9a-f]+\n.*  allocated by thread [0-9]+:\n.*  freed by thread [0-9]+:\n.*
// env: HAKMEM_SAMPLE_GUARDS=1
// signal: SIGSEGV
// A write after free to a sampled block.
#include <stdlib.h>

int main(void)
{
    volatile char *volatile p = malloc(100);
    free((void *)p);
    p[40] = 1;
    return 0;
}
