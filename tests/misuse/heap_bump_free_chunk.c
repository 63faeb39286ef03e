// expect: hakmem: free\(\): invalid pointer 0x[0-9a-f]+: not the start of a block
// The start of a chunk of a bump heap, where no block is.
#include <stdint.h>
#include <stdlib.h>

#include "hakmem.h"

int main(void)
{
    hak_heap_t *heap =
        hak_heap_new(&(struct hak_heap_options){ .size = sizeof(struct hak_heap_options), .flags = HAK_HEAP_BUMP });
    char *p = hak_heap_malloc(heap, 100);
    free(p - (uintptr_t)p % (64 << 10));
    return 0;
}
