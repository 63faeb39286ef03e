// expect: hakmem: at exit: 0x[0-9a-f]+ \(112-byte block, 98 asked for\) was written after free\nhakmem:   allocated:\nhakmem:     #0 0x[0-9a-f]+ \S+/hardened_exit_written_free\+0x[0-9a-f]+\n(?:hakmem:     #[^\n]*\n)*hakmem:   freed:\nhakmem:     #0 0x[0-9a-f]+ \S+/hardened_exit_written_free\+0x[0-9a-f]+\n(?:hakmem:     #[^\n]*\n?)*
// env: HAKMEM_HARDEN=1
// A write to a block that was freed long ago and given back to its slab.
#include <malloc.h>
#include <stdlib.h>

int main(void)
{
    char *volatile p = malloc(98);
    free(p);
    malloc_trim(0);
    p[50] = 'x';
    return 0;
}
