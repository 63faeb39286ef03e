// A user's program: prints which allocator its malloc belongs to.
#include <hakmem.h>
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    void *volatile block = malloc(100);
    if (block == NULL || hak_usable_size(block) < 100) {
        return 1;
    }
    free(block);
    printf("hakmem %s\n", hak_version());
    return 0;
}
