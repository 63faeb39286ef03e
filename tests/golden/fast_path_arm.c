/* For test_fast_path_arm.py: warm calls of malloc and free, the last of them between two marks. */
#include <stdlib.h>

__attribute__((noinline)) void mark_malloc(void) { __asm__ volatile("" ::: "memory"); }
__attribute__((noinline)) void mark_free(void) { __asm__ volatile("" ::: "memory"); }
__attribute__((noinline)) void mark_end(void) { __asm__ volatile("" ::: "memory"); }

int main(int argc, char **argv)
{
    size_t size = argc > 1 ? strtoul(argv[1], NULL, 10) : 16;
    void *volatile kept;
    for (int i = 0; i < 300; i++) {
        kept = malloc(size);
        free(kept);
    }
    mark_malloc();
    kept = malloc(size);
    mark_free();
    free(kept);
    mark_end();
    return 0;
}
