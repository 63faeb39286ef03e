// expect: hakmem: crash: SIGBUS at 0x[0-9a-f]+: not from this allocator
// env: HAKMEM_CRASH_REPORT=1
// signal: SIGBUS
// Behind the end of a file.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

int main(void)
{
    int file = memfd_create("empty", 0);
    char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    *p = 1;
    return 0;
}
