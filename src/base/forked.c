/* See forked.h. */
#include "base/forked.h"

#include <pthread.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/syscall.h"

struct hak_forked hak__forked;
struct hak_wiped hak__wiped;
static bool (*repair_child)(void), (*arrive_late)(void);
static _Atomic uint32_t *(*find_fork_mark)(void);
static bool (*is_fork_copy)(void);
static _Atomic long process; /* orders nothing: read again after a system call */
static _Atomic uint32_t repairs;
static _Atomic bool several; /* more than one thread has taken a lock or is about to */

/* Any thread may call this any number of times: the word is always the same. */
static bool look_at_mark(void)
{
    _Atomic uint32_t *mark = find_fork_mark();
    if (mark == NULL)
        return false;
    hak_store(mark, HAK_FORK_REPAIRED, HAK_RELAXED);
    hak_owner_store(&hak__forked.mark, mark);
    return true;
}

void hak__fork_begin(bool (*repair)(void), bool (*arrive)(void), _Atomic uint32_t *(*find_mark)(void), bool (*is_copy)(void))
{
    hak_assert(repair != NULL && arrive != NULL && find_mark != NULL && is_copy != NULL, "a child is repaired by all of these");
    is_fork_copy = is_copy;
    repair_child = repair;
    arrive_late = arrive;
    hak_store(&process, hak__syscall(SYS_getpid), HAK_RELAXED);
    hak_owner_store(&find_fork_mark, find_mark);
    look_at_mark();
}

bool hak__fork_alone(void) { return !hak_load(&several, HAK_RELAXED); }

static bool repair_now(void)
{
    hak_store(&process, hak__syscall(SYS_getpid), HAK_RELAXED);
    hak_assert(repair_child != NULL, "there are no children to repair before the library has started");
    hak_fetch_add(&repairs, 1, HAK_RELAXED);
    return repair_child();
}

static void repair_at_once(void)
{
    is_fork_copy();
    repair_now();
}

uint32_t hak__fork_repairs(void) { return hak_load(&repairs, HAK_RELAXED); }

/* The caller becomes the second thread that takes locks. If it is new in a forked child, the only earlier thread is the one that
 * forked. That one had nothing to repair, and must not repair later, while other threads run. */
static void watch_begins(void)
{
    if (hak_peek(&hak__forked.mark) == NULL) {
        hak__fork_unwatched();
        hak_store(&process, hak__syscall(SYS_getpid), HAK_RELAXED);
    }
    hak_store(&several, true, HAK_RELAXED);
}

void hak__fork_watch(void)
{
    static _Atomic uint32_t handled;
    if (hak_unlikely(!hak_load(&several, HAK_RELAXED)))
        watch_begins();
    bool begun = hak_peek(&find_fork_mark) != NULL;
    if (hak_likely(hak_peek(&hak__forked.mark) != NULL) || !begun || hak_load(&handled, HAK_RELAXED) != 0)
        return;
    if (!look_at_mark() && hak_exchange(&handled, 1, HAK_RELAXED) == 0)
        pthread_atfork(NULL, NULL, repair_at_once); /* kernels before 4.14 */
}

void hak__fork_look(void) { hak__fork_check(); }

bool hak__fork_is_home(void) { return hak__syscall(SYS_getpid) == hak_load(&process, HAK_RELAXED); }

/* The child's first thread is the one that forked. Later threads have nothing to repair. */
void hak__fork_unwatched(void)
{
    if (hak_peek(&hak__forked.mark) != NULL || hak_load(&process, HAK_RELAXED) == 0)
        return;
    long now = hak__syscall(SYS_getpid);
    if (now == hak_load(&process, HAK_RELAXED) || hak__syscall(SYS_gettid) != now || !is_fork_copy())
        return;
    repair_now();
}

/* A handler may fork in the middle of this; the mark is then wiped again in the child. */
void hak__fork_found(void)
{
    hak_assert(hak__forked.mark != NULL, "only a mark that is there tells of a fork");
    for (unsigned tries = 0;; tries++) {
        uint32_t mark = hak_load(hak__forked.mark, HAK_ACQUIRE);
        hak_assert(mark <= HAK_FORK_AWAITED, "the mark is one of four");
        if (mark == HAK_FORK_WIPED) {
            if (!hak_cas_strong(hak__forked.mark, &mark, HAK_FORK_REPAIRING, HAK_ACQUIRE, HAK_RELAXED))
                continue;
            uint32_t after = repair_now() ? HAK_FORK_REPAIRED : HAK_FORK_AWAITED, repairing = HAK_FORK_REPAIRING;
            if (hak_cas_strong(hak__forked.mark, &repairing, after, HAK_RELEASE, HAK_RELAXED))
                return;
        } else if (mark == HAK_FORK_REPAIRING) {
            hak__nap(tries);
        } else {
            if (mark == HAK_FORK_AWAITED && arrive_late())
                hak_store(hak__forked.mark, HAK_FORK_REPAIRED, HAK_RELAXED);
            return;
        }
    }
}
