// expect: hakmem: free\(\): invalid pointer 0x[0-9a-f]+: not from this allocator
// Memory that the program has mapped itself.
#include <stdlib.h>
#include <sys/mman.h>

int main(void)
{
    free(mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    return 0;
}
