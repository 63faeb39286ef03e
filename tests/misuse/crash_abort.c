// expect: hakmem: crash: SIGABRT, sent by the program itself
// env: HAKMEM_CRASH_REPORT=1
// signal: SIGABRT
// abort() has no address to speak of.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

int main(void)
{
    abort();
    return 0;
}
