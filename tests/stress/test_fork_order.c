/* Stress: what a forked child sees of the parent's other threads. The repair of heaps (docs/concurrency.md, "Forks") takes
 * for granted that it is memory as it was at one step of each: the kernel makes pages read-only one by one, but who then
 * meets such a page waits until the fork has ended, so nothing that a thread stores afterwards is seen.
 *
 * A thread stores n to words of many pages, one after the other, then n + 1, and so on. In each child every word is at least
 * the next one's and none is more than one behind the first. That some are behind in some children shows that the forks
 * meet the thread in the middle of its rounds.
 *
 * Knobs (environment)      default                        long run
 *   HAK_STRESS_SECONDS     2                              60
 *   HAK_STRESS_FORKS       100 x seconds                  6000 */
// test: timeout=300
#include <sys/mman.h>

#include "support/stress.h"

enum { WORDS = 16, IN_ORDER = 0, MID_ROUND = 1, OUT_OF_ORDER = 2 };

#define STRIDE ((size_t)3 << 20)   /* the words lie below different page tables */

static _Atomic uint64_t *words[WORDS];
static _Atomic bool stop;

static void *stores(void *argument)
{
    for (uint64_t n = 1; !hak_load(&stop, HAK_RELAXED); n++)
        for (int i = 0; i < WORDS; i++)
            hak_store(words[i], n, HAK_RELEASE);
    return argument;
}

/* Mappings of their own, between pages that are in use, so that a fork has something to do. */
static void place_words(struct stress_random *random)
{
    char *memory = mmap(NULL, WORDS * STRIDE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    STRESS_EXPECT(memory != MAP_FAILED, "mmap: %s", strerror(errno));
    memset(memory, 1, WORDS * STRIDE);
    for (size_t i = 0; i < WORDS; i++) {
        words[i] = (_Atomic uint64_t *)(void *)(memory + i * STRIDE);
        hak_store(words[i], 0, HAK_RELAXED);
        STRESS_EXPECT(mprotect(memory + i * STRIDE + STRIDE / 2, 4096, PROT_NONE) == 0, "mprotect: %s", strerror(errno));
    }
    for (size_t i = WORDS - 1; i > 0; i--) {
        size_t other = stress_below(random, (uint32_t)i + 1);
        _Atomic uint64_t *word = words[i];
        words[i] = words[other];
        words[other] = word;
    }
}

static int look(void)
{
    uint64_t first = hak_load(words[0], HAK_RELAXED), before = first;
    for (int i = 1; i < WORDS; i++) {
        uint64_t value = hak_load(words[i], HAK_RELAXED);
        if (value > before || value + 1 < first)
            return OUT_OF_ORDER;
        before = value;
    }
    return before == first ? IN_ORDER : MID_ROUND;
}

static int child_looks(void)
{
    int status = 0;
    pid_t child = fork();
    STRESS_EXPECT(child >= 0, "fork: %s", strerror(errno));
    if (child == 0)
        _exit(look());
    STRESS_EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status), "a child ended with status 0x%x",
                  (unsigned)status);
    return WEXITSTATUS(status);
}

int main(void)
{
    struct stress_random random = { (uint64_t)time(NULL) };
    double seconds = stress_knob("HAK_STRESS_SECONDS", 2);
    int forks = (int)stress_knob("HAK_STRESS_FORKS", seconds * 100), mid = 0;
    place_words(&random);
    pthread_t thread = stress_thread(stores, NULL);
    for (int i = 0; i < forks; i++) {
        int seen = child_looks();
        STRESS_EXPECT(seen != OUT_OF_ORDER, "fork %d: a child sees a store and not one before it", i);
        mid += seen == MID_ROUND;
    }
    hak_store(&stop, true, HAK_RELAXED);
    pthread_join(thread, NULL);
    printf("forks=%d in the middle of a round=%d\n", forks, mid);
    STRESS_EXPECT(mid > 0, "no fork met the thread in the middle of a round: nothing was tested");
    return 0;
}
