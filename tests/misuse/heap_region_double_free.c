// expect: hakmem: free\(\): double free of 0x[0-9a-f]+ \(112-byte block\)
// A block of a heap in the program's own memory, freed twice: once by the heap's handle, once without.
#include <stdlib.h>

#include "hakmem_region.h"

static char region[1 << 20];

int main(void)
{
    hak_heap_t *heap = hak_heap_new(&(struct hak_heap_options){
        .size = sizeof(struct hak_heap_options), .region = region, .region_size = sizeof region });
    void *p = hak_heap_malloc(heap, 100);
    hak_heap_free(heap, p);
    free(p);
    return 0;
}
