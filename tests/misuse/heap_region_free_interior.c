// expect: hakmem: free\(\): invalid pointer 0x[0-9a-f]+: not the start of a block
// An address inside a large block of a heap in the program's own memory.
#include <stdlib.h>

#include "hakmem_region.h"

static char region[1 << 20];

int main(void)
{
    hak_heap_t *heap = hak_heap_new(&(struct hak_heap_options){
        .size = sizeof(struct hak_heap_options), .region = region, .region_size = sizeof region });
    free((char *)hak_heap_malloc(heap, 100000) + 50000);
    return 0;
}
