// expect: hakmem: hak_heap_free\(\): 0x[0-9a-f]+ is not a block of heap 0x[0-9a-f]+
// A block freed by the handle of another heap.
#include <stdlib.h>

#include "hakmem.h"

int main(void)
{
    hak_heap_t *heap = hak_heap_new(NULL);
    void *p = hak_heap_malloc(hak_heap_new(NULL), 100);
    hak_heap_free(heap, p);
    return 0;
}
