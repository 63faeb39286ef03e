// expect: hakmem: free\(\): double free of 0x[0-9a-f]+ \(112-byte block\)\nhakmem:   called by thread [0-9]+:\nhakmem:     #0 0x[0-9a-f]+ \S+/hardened_double_free_stripped\+0x[0-9a-f]+\nhakmem:     #1 0x[0-9a-f]+ \S+/hardened_double_free_stripped\+0x[0-9a-f]+\n(?:hakmem:     #[^\n]*\n)*hakmem:   allocated:\nhakmem:     #0 0x[0-9a-f]+ \S+/hardened_double_free_stripped\+0x[0-9a-f]+\nhakmem:     #1 0x[0-9a-f]+ \S+/hardened_double_free_stripped\+0x[0-9a-f]+\n(?:hakmem:     #[^\n]*\n)*hakmem:   freed:\nhakmem:     #0 0x[0-9a-f]+ \S+/hardened_double_free_stripped\+0x[0-9a-f]+\nhakmem:     #1 0x[0-9a-f]+ \S+/hardened_double_free_stripped\+0x[0-9a-f]+\n(?:hakmem:     #[^\n]*\n?)*
// env: HAKMEM_HARDEN=1
// build: -O2 -fomit-frame-pointer -fno-optimize-sibling-calls -s
// The three stacks in a program without symbols and frame pointers; two frames of each are its own.
#include <stdlib.h>

__attribute__((noinline)) static void *make(size_t n)
{
    char *p = malloc(n);
    p[0] = 1;
    return p;
}

__attribute__((noinline)) static void drop(char *p)
{
    p[0] = 0;
    free(p);
    __asm__ volatile("" ::: "memory");
}

int main(int count, char **arguments)
{
    char *volatile p = make((size_t)count + 97);
    drop(p);
    drop(p);
    return arguments == NULL;
}
