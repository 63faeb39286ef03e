// expect: hakmem: hak_heap_reset\(\): heap 0x[0-9a-f]+ is still the default of a thread
// A heap reset while a thread's malloc goes to one below it, which would end.
#include <stdlib.h>

#include "hakmem.h"

int main(void)
{
    hak_heap_t *root = hak_heap_new(NULL);
    hak_heap_set_default(
        hak_heap_new(&(struct hak_heap_options){ .size = sizeof(struct hak_heap_options), .parent = root }));
    hak_heap_reset(root);
    return 0;
}
