// expect: hakmem: realloc\(\): invalid pointer 0x[0-9a-f]+: not the start of a block
// realloc of a pointer that has been moved on.
#include <stdlib.h>

int main(void)
{
    char *p = malloc(100);
    return realloc(p + 16, 200) != NULL;
}
