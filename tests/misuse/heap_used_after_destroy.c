// expect: hakmem: hak_heap_malloc\(\): heap 0x[0-9a-f]+ has been destroyed
// A request from a heap that has been destroyed.
#include <stdlib.h>

#include "hakmem.h"

int main(void)
{
    hak_heap_t *heap = hak_heap_new(NULL);
    hak_heap_malloc(heap, 100);
    hak_heap_destroy(heap);
    hak_heap_malloc(heap, 100);
    return 0;
}
