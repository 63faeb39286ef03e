// expect: hakmem: hak_heap_new\(\): heap 0x[0-9a-f]+ has been destroyed
// A heap made below one that has ended with its own parent.
#include <stdlib.h>

#include "hakmem.h"

static hak_heap_t *below(hak_heap_t *parent)
{
    return hak_heap_new(&(struct hak_heap_options){ .size = sizeof(struct hak_heap_options), .parent = parent });
}

int main(void)
{
    hak_heap_t *root = below(NULL), *child = below(root);
    hak_heap_destroy(root);
    return below(child) != NULL;
}
