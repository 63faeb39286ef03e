// expect: hakmem: option preset: 'graduate' is not known; the nearest one is graduated; adaptive is kept
// env: HAKMEM_PRESET=graduate
// survives
// A misspelt preset.
#include <stdlib.h>

int main(void)
{
    free(malloc(10));
    return 0;
}
