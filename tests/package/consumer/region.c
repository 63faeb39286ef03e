// A user's program with a heap in its own memory: nothing but how it is linked brings libhakmem-region.
#include <hakmem.h>
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    static char memory[1 << 20];
    struct hak_heap_options options = {.size = sizeof options, .region = memory, .region_size = sizeof memory};
    char *block = hak_heap_malloc(hak_heap_new(&options), 100);
    if (block < memory || block > memory + sizeof memory) {
        return 1;
    }
    free(block);
    printf("hakmem %s\n", hak_version());
    return 0;
}
