// expect: hakmem: hak_heap_free\(\): 0x[0-9a-f]+ is not a block of heap 0x[0-9a-f]+
// malloc's block, freed as one of a heap in the program's own memory.
#include <stdlib.h>

#include "hakmem_region.h"

static char region[1 << 20];

int main(void)
{
    hak_heap_t *heap = hak_heap_new(&(struct hak_heap_options){
        .size = sizeof(struct hak_heap_options), .region = region, .region_size = sizeof region });
    hak_heap_free(heap, malloc(100));
    return 0;
}
