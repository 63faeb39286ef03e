// expect: hakmem: free\(\): invalid pointer 0x[0-9a-f]+: not the start of a block
// A block of a bump heap that has been reset.
#include <stdlib.h>

#include "hakmem.h"

int main(void)
{
    hak_heap_t *heap =
        hak_heap_new(&(struct hak_heap_options){ .size = sizeof(struct hak_heap_options), .flags = HAK_HEAP_BUMP });
    void *p = hak_heap_malloc(heap, 100);
    hak_heap_reset(heap);
    free(p);
    return 0;
}
