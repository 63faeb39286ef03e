/* Out of memory: in a scripted workload the N-th call to the system fails, for every N: once, from then on, and every
 * third from then on; with ENOMEM and with EINVAL.
 *
 * Expects: allocations give NULL with errno = ENOMEM and nothing else; a failed realloc leaves its block alone, and none that
 * shrinks a block fails; frees keep errno and never fail; when the failures end the same workload runs through without one, and takes no
 * more each time; at the end nothing is live and every invariant holds. Each N runs in a forked child under a time
 * limit; those before main (the library's own start) in programs of their own.
 *
 * Knobs (environment)      default    meaning
 *   HAK_OOM_STRIDE         23         try every so many-th N only (sanitizers: 101); the long run is 1
 *   HAK_OOM_FIRST          1          the first N
 *   HAK_OOM_VERBOSE        0          print each case before it runs */
// test: timeout=300 cost=55
#include <sys/mman.h>

#include "support/fault_os.h"
#include "support/figures.h"
#include "support/stress.h"

enum { BLOCKS = 1200, THREADS = 4, STARTS = 16, CALLS_LEAST = 100, RUNS = 3 };

static struct stress_block blocks[BLOCKS];
static _Atomic uint64_t refused;

/* A refusal is allowed only while the system refuses. */
static void expect_refused(int code, const char *function, size_t size)
{
    STRESS_EXPECT(code == ENOMEM, "%s(%zu) failed with %d", function, size, code);
    STRESS_EXPECT(fault_failures() > 0, "%s(%zu) failed though the system did not", function, size);
    hak_fetch_add(&refused, 1, HAK_RELAXED);
}

/* --- the functions under test, one row each ------------------------------------------------------------------------ */

static void *by_malloc(size_t n) { return hak_malloc(n); }
static void *by_calloc(size_t n) { return hak_calloc(1, n); }
static void *by_aligned_alloc(size_t n) { return hak_aligned_alloc(64, n); }
static void *by_memalign_slab(size_t n) { return hak_memalign(64 << 10, n); }
static void *by_memalign_huge(size_t n) { return hak_memalign(4 << 20, n); }
static void *by_valloc(size_t n) { return hak_valloc(n); }
static void *by_realloc(size_t n) { return hak_realloc(NULL, n); }

static void *by_posix_memalign(size_t n)
{
    void *p = NULL;
    errno = 55;
    int code = hak_posix_memalign(&p, 256, n);
    STRESS_EXPECT(errno == (code == 0 ? 55 : code), "posix_memalign gives %d and sets errno to %d", code, errno);
    errno = code;
    return p;
}

static const struct { const char *name; void *(*function)(size_t); } functions[] = {
    { "malloc", by_malloc }, { "calloc", by_calloc }, { "aligned_alloc", by_aligned_alloc }, { "realloc", by_realloc },
    { "posix_memalign", by_posix_memalign }, { "valloc", by_valloc }, { "memalign of a slab", by_memalign_slab },
    { "memalign of 4 MiB", by_memalign_huge },
};
enum { SMALL_FUNCTIONS = 5, FUNCTIONS = sizeof functions / sizeof functions[0] };

static struct stress_block alloc(size_t kind, size_t size)
{
    struct stress_block block = { NULL, size };
    errno = 0;
    block.p = functions[kind].function(size);
    if (block.p == NULL)
        expect_refused(errno, functions[kind].name, size);
    else
        stress_fill(block);
    return block;
}

static void resize(struct stress_block *block, size_t size)
{
    struct stress_block former = *block;
    if (former.p == NULL)
        return;
    errno = 0;
    unsigned char *p = hak_realloc(former.p, size);
    if (p == NULL) {
        STRESS_EXPECT(size > former.size, "realloc from %zu down to %zu failed", former.size, size);
        expect_refused(errno, "realloc", size);
        stress_check(former, former.p, former.size);
        return;
    }
    stress_check(former, p, size);
    *block = (struct stress_block){ p, size };
    stress_fill(*block);
}

/* --- the workload -------------------------------------------------------------------------------------------------- */

static void free_all(int step)
{
    for (int i = 0; i < BLOCKS; i += step)
        stress_free(&blocks[i]);
}

static void small_blocks(void)
{
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = alloc((size_t)i % SMALL_FUNCTIONS, (size_t)(i % 40) * 26 + 1);
    for (int i = 0; i < BLOCKS; i += 3)
        resize(&blocks[i], (size_t)(i % 90) * 40 + 1);
    free_all(2);
    free_all(1);
}

static void middle_blocks(void)
{
    for (int i = 0; i < 300; i++)
        blocks[i] = alloc((size_t)i % FUNCTIONS, (size_t)(i % 28 + 1) * 2000);
    for (int i = 0; i < 300; i += 3)
        resize(&blocks[i], (size_t)(i % 50 + 1) * 1500);
    free_all(2);
    free_all(1);
}

static void large_blocks(void)
{
    for (int i = 0; i < 48; i++)
        blocks[i] = alloc((size_t)i % SMALL_FUNCTIONS, (size_t)(i % 16 + 1) * 65000);
    for (int i = 0; i < 48; i++)
        resize(&blocks[i], (size_t)(i % 13 + 1) * 80000);
    free_all(3);
    hak_collect();
    free_all(1);
}

static void huge_blocks(void)
{
    for (int i = 0; i < 16; i++)
        blocks[i] = alloc((size_t)i % FUNCTIONS, (size_t)(i % 7 + 1) * 1100000);
    for (int i = 0; i < 16; i++)
        resize(&blocks[i], (size_t)(i % 5 + 1) * 1900000);
    for (size_t size = 3 << 20; size < (size_t)40 << 20; size += size / 2)
        resize(&blocks[3], size);
    resize(&blocks[3], 1 << 20);
    free_all(2);
    hak_collect();
    for (int i = 0; i < 16; i += 2)
        blocks[i] = alloc(0, (size_t)(i + 1) * 700000);
    free_all(1);
    hak_collect();
}

static pthread_barrier_t together;

static void *in_a_thread(void *argument)
{
    struct stress_block own[64];
    pthread_barrier_wait(&together);
    for (size_t i = 0; i < 64; i++)
        own[i] = alloc(i % SMALL_FUNCTIONS, i % 16 == 0 ? i * 9000 + 1 : i * 37 + 1);
    struct stress_block *left = argument;
    *left = own[1];
    own[1].p = NULL;
    for (int i = 0; i < 64; i++)
        stress_free(&own[i]);
    pthread_barrier_wait(&together);
    return NULL;
}

static void threads(void)
{
    pthread_t running[THREADS];
    pthread_barrier_init(&together, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        running[i] = stress_thread(in_a_thread, &blocks[i]);
    for (int i = 0; i < THREADS; i++)
        pthread_join(running[i], NULL);
    free_all(1);
}

static void workload(void)
{
    small_blocks();
    threads();
    middle_blocks();
    large_blocks();
    huge_blocks();
    hak_collect();
}

/* --- the cases ----------------------------------------------------------------------------------------------------- */

/* What a child tells its parent. */
struct shared { uint64_t calls, refused; };
static struct shared *shared;
static unsigned failed_cases;

static size_t taken_now(void)
{
    struct arena_figures figures;
    arena_figures(&figures);
    return figures.taken;
}

/* The workload as if nothing had happened, a few times: SuperSlabs lost by it would add up. The first run may find another layout. */
static void expect_recovery(void)
{
    size_t taken[RUNS];
    fault_install((struct fault_plan){ FAULT_NEVER, 0, 0 });
    for (int run = 0; run < RUNS; run++) {
        workload();
        stress_expect_empty();
        taken[run] = taken_now();
    }
    STRESS_EXPECT(taken[RUNS - 1] <= taken[1] + 1, "%zu SuperSlabs stay taken after %d runs, %zu after the second",
                  taken[RUNS - 1], RUNS, taken[1]);
}

static void one_case(const void *argument)
{
    const struct fault_plan *plan = argument;
    /* The plan and the table are changed here while the process goes on: no thread of the library's own may read them. Steps
     * are taken in slow paths all the same. */
    STRESS_EXPECT(hak_option_set("background", "0") == 0, "the background thread cannot be switched off");
    fault_install(*plan);
    workload();
    shared->calls = fault_calls();
    shared->refused += hak_load(&refused, HAK_RELAXED);
    if (plan->mode != FAULT_NEVER)
        expect_recovery();
}

static const char *const mode_names[FAULT_MODES] = { "never", "once", "from then on", "every third" };

static const char *name_of(struct fault_plan plan)
{
    static char text[96];
    snprintf(text, sizeof text, "call %u failing %s with %s", (unsigned)plan.first, mode_names[plan.mode],
             plan.code == ENOMEM ? "ENOMEM" : "EINVAL");
    if (stress_knob("HAK_OOM_VERBOSE", 0) != 0)
        fprintf(stderr, "%s\n", text);
    return text;
}

static unsigned every_call(enum fault_mode mode, int code, uint64_t calls)
{
    unsigned cases = 0;
    uint64_t stride = (uint64_t)stress_knob("HAK_OOM_STRIDE", STRESS_SANITIZED ? 101 : 23);
    uint64_t first = (uint64_t)stress_knob("HAK_OOM_FIRST", 1) + (uint64_t)mode % stride;
    for (uint64_t n = first; n <= calls; n += stride, cases++) {
        struct fault_plan plan = { mode, n, code };
        failed_cases += !stress_passes_in_child(one_case, &plan, 60, name_of(plan));
    }
    return cases;
}

/* --- failures before main -------------------------------------------------------------------------------------------- */

/* Runs before every constructor, so before the library starts. */
static void before_all(void)
{
    const char *text = getenv("HAK_OOM_START");
    if (text != NULL)
        fault_install((struct fault_plan){ (enum fault_mode)(text[0] - '0'), strtoull(text + 1, NULL, 10), ENOMEM });
}
__attribute__((section(".preinit_array"), used)) static void (*const before_all_entry)(void) = before_all;

static void started(void)
{
    workload();
    expect_recovery();
}

/* By the program's own file, which under an emulator is the emulator's: it is told the program. */
static void start_anew(void)
{
    char program[4096] = "";
    if (readlink("/proc/self/exe", program, sizeof program - 1) > 0)
        execl("/proc/thread-self/exe", "started", program, (char *)NULL);
    _exit(127);
}

static unsigned every_start(enum fault_mode mode)
{
    char text[32];
    unsigned n = 1, count = 0;
    for (; n <= STARTS; n += STRESS_SANITIZED ? 5 : 3, count++) {
        snprintf(text, sizeof text, "%d%u", (int)mode, n);
        setenv("HAK_OOM_START", text, 1);
        setenv("HAKMEM_BACKGROUND", "0", 1);   /* as in one_case */
        pid_t child = fork();
        if (child == 0) {
            start_anew();
        }
        failed_cases += !stress_child_passes(child, 60, name_of((struct fault_plan){ mode, n, ENOMEM }));
    }
    unsetenv("HAK_OOM_START");
    return count;
}

int main(void)
{
    unsigned cases = 0, starts = 0;
    if (getenv("HAK_OOM_START") != NULL) {
        started();
        return 0;
    }
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct fault_plan none = { FAULT_NEVER, 0, 0 };
    stress_in_child(one_case, &none, 60, "the workload");
    uint64_t calls = shared->calls;
    printf("calls=%u\n", (unsigned)calls);
    STRESS_EXPECT(calls >= CALLS_LEAST, "the workload makes %u calls", (unsigned)calls);
    STRESS_EXPECT(shared->refused == 0, "%u refusals without a failure", (unsigned)shared->refused);
    for (int mode = FAULT_ONCE; mode < FAULT_MODES; mode++) {
        starts += every_start((enum fault_mode)mode);
        cases += every_call((enum fault_mode)mode, ENOMEM, calls);
        cases += every_call((enum fault_mode)mode, EINVAL, calls);
    }
    printf("cases=%u starts=%u refusals=%u\n", cases, starts, (unsigned)shared->refused);
    STRESS_EXPECT(failed_cases == 0, "%u cases failed", failed_cases);
    STRESS_EXPECT(shared->refused > 0, "some allocation must have been refused");
    return 0;
}
