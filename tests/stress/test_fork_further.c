/* Stress: a child in which a thread made by the one that has forked comes to a slow path first, and puts the child in order,
 * while the heap of the one that has forked is as a sweeper of the parent has left it: half done. That thread must neither wait
 * for the sweeper, which does not exist here, nor work on that heap.
 *
 * Knobs (environment)      default
 *   HAK_STRESS_FORKS       50 */
// test: timeout=300
#include "support/stress.h"

/* ThreadSanitizer would end a forked child of a process with threads when it starts one itself. */
#if HAK_TSAN
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "die_after_fork=0"; }
#endif

enum { BLOCKS = 2000 };

static void use(void)
{
    static _Thread_local void *blocks[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++)
        STRESS_EXPECT((blocks[i] = hak_malloc(i * 7 + 1)) != NULL, "malloc(%zu)", i * 7 + 1);
    for (size_t i = 0; i < BLOCKS; i++)
        hak_free(blocks[i]);
}

static void *uses(void *argument)
{
    use();
    return argument;
}

static _Atomic bool ready, stop;

/* Of the parent's, so that a fork is one of a process with threads. */
static void *waits(void *argument)
{
    use();
    hak_store(&ready, true, HAK_RELEASE);
    while (!hak_load(&stop, HAK_RELAXED))
        stress_sleep(0.001);
    return argument;
}

static void child(bool further, const struct hak_heap *swept)
{
    hak__lock_note(HAK_RANK_HEAP, -1);   /* the lock is no longer this thread's */
    if (further) {
        pthread_join(stress_thread(uses, NULL), NULL);
        STRESS_EXPECT(hak__heap_current() == swept, "nobody but the thread itself takes its heap from it");
    }
    use();
    STRESS_EXPECT(hak__heap_current() != swept, "the heap that a sweeper has left is still in use");
    pthread_join(stress_thread(uses, NULL), NULL);
    use();
    stress_expect_valid();
    _exit(0);
}

int main(void)
{
    unsigned forks = (unsigned)stress_knob("HAK_STRESS_FORKS", 50);
    if (stress_emulated()) {
        puts("skipped: qemu: a forked child cannot begin threads");
        return 77;
    }
    use();
    pthread_t thread = stress_thread(waits, NULL);
    struct hak_heap *mine = hak__heap_current();
    while (!hak_load(&ready, HAK_ACQUIRE))   /* before, nobody could be sweeping */
        stress_sleep(0.001);
    for (unsigned i = 0; i < forks; i++) {
        STRESS_EXPECT(hak__heap_lock(mine), "nobody takes the heap away");   /* waits for the background thread, if that is inside */
        uint32_t word = hak_exchange(&mine->lock, 100000 << 1 | HAK_LOCK_MARK, HAK_RELAXED);
        pid_t pid = fork();
        if (pid == 0)
            child(i % 2 != 0, mine);
        hak_store(&mine->lock, word, HAK_RELAXED);
        hak__heap_unlock(mine);
        STRESS_EXPECT(pid > 0, "fork: %s", strerror(errno));
        stress_await_child(pid, 60, i % 2 != 0 ? "a child whose further thread comes first" : "a child");
    }
    hak_store(&stop, true, HAK_RELAXED);
    pthread_join(thread, NULL);
    stress_expect_empty();
    printf("forks=%u\n", forks);
    return 0;
}
