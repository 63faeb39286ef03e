// expect: hakmem: hak_heap_destroy\(\): heap 0x[0-9a-f]+ is still the default of a thread
// A heap destroyed while a thread's malloc goes there.
#include <stdlib.h>

#include "hakmem.h"

int main(void)
{
    hak_heap_t *heap = hak_heap_new(NULL);
    hak_heap_set_default(heap);
    hak_heap_destroy(heap);
    return 0;
}
