/* What the fuzz targets share. A target is one function, fuzz_one, that reads its input as a list of steps. Every input
 * runs in a forked child of a process in which the library has just started on the system of support/fake_os.h: it
 * begins from the same state whatever ran before it, so that one file repeats a failure. The child's coverage is copied
 * into its parent's, where libFuzzer looks. Without libFuzzer driver.c replays the corpus and makes further inputs from it. To be
 * included by the target's one source, like fake_os.h.
 *
 * A failed expect() of support/check.h ends the child with a message, and the parent stops at that input. */
#ifndef HAK_TESTS_FUZZ_H
#define HAK_TESTS_FUZZ_H

#include "heap/heap.h"
#include "support/fake_os.h"

#include <sys/prctl.h>

#include "arena/runs.h"
#include "base/bits.h"
#include "cache/cache.h"
#include "hakmem.h"
#include "huge/huge.h"
#include "process/process.h"
#include "stats/stats.h"
#include "support/figures.h"

struct fuzz_input {
    const uint8_t *data;
    size_t size, at;
};

/* The target, in the child. */
void fuzz_one(struct fuzz_input *in);

/* libFuzzer's entry; driver.c calls it as well. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An input that has ended yields zeros. */
static inline bool fuzz_more(const struct fuzz_input *in) { return in->at < in->size; }
static inline uint8_t fuzz_byte(struct fuzz_input *in) { return in->at < in->size ? in->data[in->at++] : 0; }
static inline uint32_t fuzz_pair(struct fuzz_input *in)
{
    uint32_t low = fuzz_byte(in);
    return low | (uint32_t)fuzz_byte(in) << 8;
}
static inline CHECK_UNUSED uint32_t fuzz_word(struct fuzz_input *in)
{
    uint32_t low = fuzz_pair(in);
    return low | fuzz_pair(in) << 16;
}
static inline CHECK_UNUSED size_t fuzz_below(struct fuzz_input *in, size_t limit) { return fuzz_pair(in) % limit; }

/* The system's weather: its clock, and what it refuses from now on. One byte. */
static inline CHECK_UNUSED void fuzz_weather(struct fuzz_input *in)
{
    uint8_t what = fuzz_byte(in);
    fake.refuse_purge = (what & 1) != 0;
    fake.refuse_unmap = (what & 2) != 0;
    fake.refuse_move = (what & 4) != 0;
    fake.refuse_advise = (what & 8) != 0 ? EINVAL : 0;
    fake.limit = (what & 16) != 0 ? fake.mapped + ((size_t)(what >> 6) << 19) : SIZE_MAX;
    fake.now += (what & 32) != 0 ? 700u * (what >> 6) : 1;
}

/* Nothing is refused any more. */
static inline CHECK_UNUSED void fuzz_fair(void)
{
    fake.refuse_purge = fake.refuse_unmap = false;
    fake.refuse_move = 0;
    fake.refuse_advise = 0;
    fake.limit = SIZE_MAX;
}

/* --- one input in a child ------------------------------------------------------------------------------------------ */

enum { FUZZ_SECONDS = 60 };

/* Nothing that happens by itself: the thread of upkeep would make an input's course depend on the machine's. */
const char *hak_conf = "background:0";

/* Before every constructor, so that the library starts on the fake system. */
static void fuzz_before_all(void) { fake_install(); }
__attribute__((section(".preinit_array"), used)) static void (*const fuzz_before_all_entry)(void) = fuzz_before_all;

/* One counter per edge, where the program is instrumented for libFuzzer; else their size is 0 (counters.c). */
uint8_t *fuzz_counters(size_t *size);

/* As much memory, shared between the parent and its children. */
static uint8_t *fuzz_counters_shared(void)
{
    static uint8_t *memory;
    size_t size;
    fuzz_counters(&size);
    if (memory == NULL && size != 0) {
        memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        expect(memory != MAP_FAILED);
    }
    return memory;
}

static void fuzz_copy_counters(uint8_t *shared, bool out)
{
    size_t size;
    uint8_t *counters = fuzz_counters(&size);
    if (shared != NULL)
        memcpy(out ? shared : counters, out ? counters : shared, size);
}

/* The child ends by itself when it hangs, when its parent is gone, and at the first signal, whatever the parent does
 * about signals. */
static void fuzz_child(const uint8_t *data, size_t size, uint8_t *shared)
{
    static const int signals[] = { SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE, SIGALRM, SIGINT, SIGTERM };
    struct fuzz_input in = { data, size, 0 };
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        signal(signals[i], SIG_DFL);
    alarm(FUZZ_SECONDS * limit_factor());
    fuzz_one(&in);
    fuzz_copy_counters(shared, true);
    _exit(0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int status = 0;
    uint8_t *shared = fuzz_counters_shared();
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        fuzz_child(data, size, shared);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (pid < 0 || status != 0) {
        fprintf(stderr, "fuzz: the input of %zu bytes ended with %s %d\n", size,
                pid < 0                       ? "no child: errno"
                : !WIFSIGNALED(status)        ? "exit status"
                : WTERMSIG(status) == SIGALRM ? "a hang, signal"
                                              : "signal",
                pid < 0               ? errno
                : WIFSIGNALED(status) ? WTERMSIG(status)
                                      : WEXITSTATUS(status));
        abort();
    }
    fuzz_copy_counters(shared, false);
    return 0;
}

/* --- what targets ask about the library ---------------------------------------------------------------------------- */

static bool fuzz_heap_exists(uint32_t id) { return hak_load(&hak__heap_by_id(id)->state, HAK_ACQUIRE) != HAK_HEAP_NEW; }

/* Every heap, every cache and the arena are valid, and what the arena says is mapped is. */
static inline CHECK_UNUSED void fuzz_expect_valid(void)
{
    struct arena_figures figures;
    arena_figures(&figures);
    expect(hak__start()); /* draws in init.c, too, where a target needs nothing else of it */
    expect(hak__arena_is_valid());
    expect_eq(fake.mapped, figures.mapped + figures.meta);
    for (uint32_t id = 1; id <= hak__heap_last_id(); id++) {
        if (!fuzz_heap_exists(id))
            continue;
        expect(hak__heap_is_valid(hak__heap_by_id(id)));
        expect(hak__cache_is_valid(hak__heap_by_id(id)));
    }
}

/* Besides: no block is live. */
static inline CHECK_UNUSED void fuzz_expect_empty(void)
{
    static struct hak_stats totals;
    hak_collect();
    for (uint32_t id = 1; id <= hak__heap_last_id(); id++) {
        struct hak_heap *heap = hak__heap_by_id(id);
        if (!fuzz_heap_exists(id))
            continue;
        expect(hak__heap_try_lock(heap, HAK_SWEEPER));
        hak__heap_collect(heap);
        hak__heap_unlock(heap);
    }
    fuzz_expect_valid();
    hak__snapshot(&totals);
    for (uint32_t c = 0; c < HAK_CLASSES; c++)
        expect_eq(totals.classes[c].live, 0);
    expect_eq(totals.huge_live, 0);
    expect_eq(totals.bytes_huge, 0);
}

#endif
