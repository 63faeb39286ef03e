// expect: hakmem: hak_heap_free\(\): 0x[0-9a-f]+ is not a block of heap 0x[0-9a-f]+
// malloc's block freed by the handle of a heap.
#include <stdlib.h>

#include "hakmem.h"

int main(void)
{
    hak_heap_t *heap = hak_heap_new(NULL);
    hak_heap_free(heap, malloc(100));
    return 0;
}
