// expect: hakmem: free_sized\(\): wrong size 1000 for 0x[0-9a-f]+ \(112-byte block\)
// A block of a bump heap, with a size that it cannot have.
#include "hakmem.h"

int main(void)
{
    hak_heap_t *heap =
        hak_heap_new(&(struct hak_heap_options){ .size = sizeof(struct hak_heap_options), .flags = HAK_HEAP_BUMP });
    hak_free_sized(hak_heap_malloc(heap, 100), 1000);
    return 0;
}
