// expect: hakmem: realloc\(\): invalid pointer 0x[0-9a-f]+: no block is here, or it was freed before
// realloc of a huge block after its end.
#include <stdlib.h>

int main(void)
{
    char *p = malloc(5000000);
    free(p);
    return realloc(p, 6000000) != NULL;
}
