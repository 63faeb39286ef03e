// expect: hakmem: free\(\): double free of 0x[0-9a-f]+ \(640-byte block\)
// The block has gone back to its span already when it is freed again.
#include <malloc.h>
#include <stdlib.h>

int main(void)
{
    void *keep = malloc(600), *p = malloc(600);
    free(p);
    malloc_trim(0);
    free(p);
    malloc_trim(0);
    free(keep);
    return 0;
}
