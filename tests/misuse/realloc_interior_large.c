// expect: hakmem: realloc\(\): invalid pointer 0x[0-9a-f]+: not the start of a block
// A slab's start inside a block of 100 KiB, which shares its span with others.
#include <stdlib.h>

int main(void)
{
    char *alone = malloc(100 << 10), *first = malloc(100 << 10), *second = malloc(100 << 10);
    char *inside = first + (64 << 10);
    return alone == NULL || second == NULL || realloc(inside, 200) != NULL;
}
