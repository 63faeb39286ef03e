// expect: hakmem: hak_heap_malloc\(\): 0x[0-9a-f]+ is not a heap
// Something else than a heap used as one.
#include <stdlib.h>

#include "hakmem.h"

int main(void)
{
    hak_heap_t *heap = hak_heap_new(NULL);
    hak_heap_malloc((hak_heap_t *)calloc(1, 1000), 100);
    return 0;
}
