// expect: hakmem: free\(\): invalid pointer 0x[0-9a-f]+: not the start of a block
// The inside of a block of a bump heap.
#include <stdlib.h>

#include "hakmem.h"

int main(void)
{
    hak_heap_t *heap =
        hak_heap_new(&(struct hak_heap_options){ .size = sizeof(struct hak_heap_options), .flags = HAK_HEAP_BUMP });
    char *p = hak_heap_malloc(heap, 100);
    free(p + 16);
    return 0;
}
