// expect: hakmem: free\(\): invalid pointer 0x[0-9a-f]+: its heap has been destroyed
// A block of a heap of one's own, freed after the heap.
#include <stdlib.h>

#include "hakmem.h"

int main(void)
{
    hak_heap_t *heap = hak_heap_new(NULL);
    void *p = hak_heap_malloc(heap, 100);
    hak_heap_destroy(heap);
    free(p);
    return 0;
}
