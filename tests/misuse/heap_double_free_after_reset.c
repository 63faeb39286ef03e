// expect: hakmem: free\(\): double free of 0x[0-9a-f]+ \(112-byte block\)
// A block freed after its heap was reset.
#include <stdlib.h>

#include "hakmem.h"

int main(void)
{
    hak_heap_t *heap = hak_heap_new(NULL);
    void *p = hak_heap_malloc(heap, 100);
    hak_heap_reset(heap);
    free(p);
    return 0;
}
