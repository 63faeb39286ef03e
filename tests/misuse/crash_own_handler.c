// expect: hakmem: crash: SIGABRT, sent by the program itself
// env: HAKMEM_CRASH_REPORT=1
// survives
// test: glibc
// The handler that was there before is called after the report, and may go on with the program.
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>

static sigjmp_buf again;

static void on_abort(int number)
{
    siglongjmp(again, number);
}

/* Before the library, whose constructor has priority 101. */
static void install(void) { signal(SIGABRT, on_abort); }
__attribute__((section(".preinit_array"), used)) static void (*early)(void) = install;

int main(void)
{
    if (sigsetjmp(again, 1) == 0)
        abort();
    return 0;
}
