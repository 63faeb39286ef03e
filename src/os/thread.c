/* A thread of our own, and waiting: see os.h. Everything but the creation itself is a bare system call. */
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "os/os.h"

enum { STACK_BYTES = 64 << 10, SIGNAL_BITS = 64 };

/* The C library's own signals: whoever calls setuid() in a process with threads waits until each has answered one. */
static const uint64_t library_signals = 7ull << 31;

static void set_signals(uint64_t mask, uint64_t *before)
{
    syscall(SYS_rt_sigprocmask, 2 /* SIG_SETMASK of the kernel */, &mask, before, SIGNAL_BITS / 8);
}

static void *thread_entry(void *body)
{
    syscall(SYS_prctl, PR_SET_NAME, "hakmem", 0, 0, 0);
    ((void (*)(void))(uintptr_t)body)();
    return NULL;
}

static int create(size_t stack, void *body)
{
    pthread_attr_t attributes;
    pthread_t thread;
    if (pthread_attr_init(&attributes) != 0)
        return ENOMEM;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    int code = stack == 0 ? 0 : pthread_attr_setstacksize(&attributes, stack);
    if (code == 0)
        code = pthread_create(&thread, &attributes, thread_entry, body);
    pthread_attr_destroy(&attributes);
    return code;
}

bool hak__os_thread_start(void (*body)(void))
{
    int saved = errno;
    uint64_t before;
    void *entry = (void *)(uintptr_t)body;
    set_signals(~library_signals, &before);
    /* Thread-local memory is carved from the stack; a program with much of it needs the usual size. */
    bool started = create(STACK_BYTES, entry) == 0 || create(0, entry) == 0;
    set_signals(before, NULL);
    errno = saved;
    return started;
}

void hak__os_sleep(_Atomic uint32_t *word, uint32_t value, uint64_t ms)
{
    int saved = errno;
    struct timespec time = { (time_t)(ms / 1000), (long)(ms % 1000) * 1000000 };
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, ms == HAK_OS_UNLIMITED ? NULL : &time, NULL, 0);
    errno = saved;
}

void hak__os_wake(_Atomic uint32_t *word)
{
    int saved = errno;
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    errno = saved;
}

/* The compilers' own word for it is younger on x86-64 than on the others; there the pointer is also the first word that it
 * points to. */
#if defined(__x86_64__)
const char *hak__os_thread_pointer(void)
{
    const char *pointer;
    __asm__("movq %%fs:0, %0" : "=r"(pointer));
    return pointer;
}
#else
const char *hak__os_thread_pointer(void) { return __builtin_thread_pointer(); }
#endif
