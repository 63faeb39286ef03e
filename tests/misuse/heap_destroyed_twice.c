// expect: hakmem: hak_heap_destroy\(\): heap 0x[0-9a-f]+ has been destroyed
// A heap destroyed twice.
#include <stdlib.h>

#include "hakmem.h"

int main(void)
{
    hak_heap_t *heap = hak_heap_new(NULL);
    hak_heap_destroy(heap);
    hak_heap_destroy(heap);
    return 0;
}
