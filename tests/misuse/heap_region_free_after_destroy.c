// expect: hakmem: hak_heap_free\(\): heap 0x[0-9a-f]+ has been destroyed
// A block of a heap in the program's own memory, freed after the heap.
#include "hakmem_region.h"

static char region[1 << 20];

int main(void)
{
    hak_heap_t *heap = hak_heap_new(&(struct hak_heap_options){
        .size = sizeof(struct hak_heap_options), .region = region, .region_size = sizeof region });
    void *p = hak_heap_malloc(heap, 100);
    hak_heap_destroy(heap);
    hak_heap_free(heap, p);
    return 0;
}
