// expect: hakmem: at exit: 0x[0-9a-f]+ \(112-byte block, 98 asked for\) was written after free\nhakmem:   allocated:\nhakmem:     #0 0x[0-9a-f]+ \S+/hardened_exit_written\+0x[0-9a-f]+\n(?:hakmem:     #[^\n]*\n)*hakmem:   freed:\nhakmem:     #0 0x[0-9a-f]+ \S+/hardened_exit_written\+0x[0-9a-f]+\n(?:hakmem:     #[^\n]*\n?)*
// env: HAKMEM_HARDEN=1
// A write to a freed block that still waits in quarantine when the program ends.
#include <stdlib.h>

int main(void)
{
    char *volatile p = malloc(98);
    free(p);
    p[50] = 'x';
    return 0;
}
