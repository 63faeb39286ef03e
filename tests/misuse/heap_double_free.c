// expect: hakmem: free\(\): double free of 0x[0-9a-f]+ \(112-byte block\)
// A block of a heap of one's own, freed twice.
#include <stdlib.h>

#include "hakmem.h"

int main(void)
{
    hak_heap_t *heap = hak_heap_new(NULL);
    void *p = hak_heap_malloc(heap, 100);
    free(p);
    free(p);
    return 0;
}
