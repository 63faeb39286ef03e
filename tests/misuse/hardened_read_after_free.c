// expect: zeros
// survives
// env: HAKMEM_HARDEN=1
// What a program reads of a freed block is zero, from the first byte to the last.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
    static const size_t sizes[] = { 8, 16, 24, 100, 1000, 20000, 50000 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        volatile char *p = malloc(sizes[i]);
        memset((char *)p, 'a', sizes[i]);
        free((char *)p);
        for (size_t at = 0; at < sizes[i]; at++)
            if (p[at] != 0) {
                fprintf(stderr, "%#x at %zu of %zu\n", p[at], at, sizes[i]);
                return 1;
            }
    }
    fprintf(stderr, "zeros");
    return 0;
}
