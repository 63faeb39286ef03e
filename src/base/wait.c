/* All waiting for other threads, in pauses and in sleeps of the kernel's. None has no limit: a handler that has interrupted a sleep may
 * have forked, and nobody wakes the child. See lock.h. */
#include <linux/futex.h>
#include <time.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/syscall.h"

enum { NAP_NS = 20000, SLEEP_NS = 10000000 };

static void futex_call(_Atomic uint32_t *word, int operation, uint32_t value, const struct timespec *time)
{
    hak__syscall(SYS_futex, word, operation, value, time, 0, 0);
}

void hak__nap(unsigned tries)
{
    static _Atomic uint32_t never;
    static const struct timespec time = { 0, NAP_NS };
    if (tries < HAK_WAIT_SPINS)
        hak_pause();
    else
        futex_call(&never, FUTEX_WAIT_PRIVATE, 0, &time);
}

/* A child in which the other thread does not exist is put in order before it sleeps. */
static void wait_look(unsigned tries)
{
    hak__fork_check();
    if (tries >= HAK_WAIT_SPINS)
        hak__fork_unwatched();
}

void hak__yield(unsigned tries)
{
    wait_look(tries);
    hak__nap(tries);
}

void hak__yield_on(_Atomic uint32_t *word, uint32_t value, unsigned tries)
{
    static const struct timespec time = { 0, SLEEP_NS };
    wait_look(tries);
    if ((value & HAK_LOCK_MARK) == 0 || tries < HAK_WAIT_SPINS)
        hak__nap(tries);
    else
        futex_call(word, FUTEX_WAIT_PRIVATE, value, &time);
}

void hak__wake(_Atomic uint32_t *word) { futex_call(word, FUTEX_WAKE_PRIVATE, 1, NULL); }
