// expect: hakmem: hak_heap_destroy\(\): 0x[0-9a-f]+ is not a heap
// Something that is no longer mapped used as a heap.
#include <stdlib.h>
#include <sys/mman.h>

#include "hakmem.h"

int main(void)
{
    void *gone = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(gone, 4096);
    hak_heap_destroy(gone);
    return 0;
}
