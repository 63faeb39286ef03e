// expect: hakmem: hak_heap_destroy\(\): heap 0x[0-9a-f]+ has been destroyed
// A heap destroyed that has ended with its parent.
#include <stdlib.h>

#include "hakmem.h"

int main(void)
{
    hak_heap_t *root = hak_heap_new(NULL);
    hak_heap_t *child = hak_heap_new(&(struct hak_heap_options){ .size = sizeof(struct hak_heap_options), .parent = root });
    hak_heap_reset(root);
    hak_heap_destroy(child);
    return 0;
}
