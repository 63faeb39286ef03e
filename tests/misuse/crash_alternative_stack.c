// expect: hakmem: crash: SIGSEGV at 0x[0-9a-f]+: not from this allocator
// env: HAKMEM_CRASH_REPORT=1
// signal: SIGSEGV
// A stack that is used up: the report is written from the alternative one, with 2 KiB of it
// left for us.
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

static volatile int depth;

static int use_up(int n)
{
    volatile char room[4096];
    room[0] = (char)n;
    return use_up(n + 1) + room[0];
}

int main(void)
{
    enum { MINIMUM = 51, LEAST = 249 };   /* AT_MINSIGSTKSZ, _SC_MINSIGSTKSZ: not every C library knows how much the kernel saves there */
    long least = sysconf(LEAST), saved = (long)getauxval(MINIMUM);
    stack_t other = { .ss_size = (size_t)(least > saved ? least : saved) + 2048 };
    other.ss_sp = malloc(other.ss_size);
    sigaltstack(&other, NULL);
    return use_up(depth);
}
