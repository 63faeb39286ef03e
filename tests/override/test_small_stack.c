/* What each function of malloc's family takes of its caller's stack, which may be a coroutine's of 8 KiB. Each runs on a painted stack of
 * its own, several times, with blocks of every kind. Expects 2 KiB at most, and 4 KiB in hardened mode and while blocks are sampled,
 * when calls are unwound. HAK_TEST_VERBOSE=1 prints what each takes. */
// test: glibc
#include "cases.h"

#include <malloc.h>
#include <pthread.h>
#include <ucontext.h>

#if defined(__aarch64__)
enum { WITH_STACKS = 4096 + 64 }; /* twice as many registers to unwind */
#else
enum { WITH_STACKS = 4096 };
#endif
enum { STACK = 256 << 10, PAINT = 0xa5, CALLS = 40, PLAIN = 2048, FRAME = 512 /* the context's own */ };

static ucontext_t outside, inside;
static unsigned char *stack;
static void (*measured)(void);

static void run_measured(void)
{
    measured();
}

/* The bytes that the call has used. */
static size_t depth_of(void (*call)(void))
{
    measured = call;
    memset(stack, PAINT, STACK);
    expect(getcontext(&inside) == 0);
    inside.uc_stack.ss_sp = stack;
    inside.uc_stack.ss_size = STACK;
    inside.uc_link = &outside;
    makecontext(&inside, run_measured, 0);
    expect(swapcontext(&outside, &inside) == 0);
    size_t untouched = 0;
    while (untouched < STACK && stack[untouched] == PAINT)
        untouched++;
    return STACK - untouched;
}

/* --- the calls ------------------------------------------------------------------------------------------------------------ */

static const size_t sizes[] = { 1, 24, 100, 1000, 5000, 40000, 70000, 200000, 900000, 1100000, 6000000 };
enum { SIZES = sizeof sizes / sizeof *sizes };
static void *blocks[CALLS];
static size_t size;
static FILE *sink;

static void nothing(void) {}
static void make(void) { for (unsigned i = 0; i < CALLS; i++) blocks[i] = malloc(size); }
static void make_zeroed(void) { for (unsigned i = 0; i < CALLS; i++) blocks[i] = calloc(1, size); }
static void make_aligned(void) { for (unsigned i = 0; i < CALLS; i++) blocks[i] = memalign(4096, size); }
static void make_posix(void) { for (unsigned i = 0; i < CALLS; i++) expect(posix_memalign(&blocks[i], 64, size) == 0); }
static void release(void) { for (unsigned i = 0; i < CALLS; i++) free(blocks[i]); }
static void grow(void) { for (unsigned i = 0; i < CALLS; i++) blocks[i] = realloc(blocks[i], size * 2 + 1); }
static void shrink(void) { for (unsigned i = 0; i < CALLS; i++) blocks[i] = realloc(blocks[i], size / 3 + 1); }
static void ask(void) { for (unsigned i = 0; i < CALLS; i++) expect(malloc_usable_size(blocks[i]) != 0); }
static void trim(void) { malloc_trim(0); }
static void info2(void) { expect(mallinfo2().uordblks != 1); }
static void info_xml(void) { expect(malloc_info(0, sink) == 0); }
static void print_stats(void) { malloc_stats(); }
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static void info(void) { expect(mallinfo().uordblks != 1); }

static size_t base, most;

static void expect_within(const char *name, void (*call)(void))
{
    size_t depth = depth_of(call) - base;
    if (getenv("HAK_TEST_VERBOSE") != NULL)
        printf("%-12s %8zu: %zu bytes\n", name, size, depth);
    if (depth > most)
        printf("%s of %zu takes %zu bytes of stack, not %zu\n", name, size, depth, most), fflush(stdout);
    expect(depth <= most);
}
#define WITHIN(call) expect_within(#call, call)

static void *release_elsewhere(void *none)
{
    release();
    return none;
}

/* The loader binds a name at its first call, on as much of the stack as the processor has registers. */
static void bind_all(void)
{
    int kept = dup(2);
    expect(dup2(fileno(sink), 2) == 2);
    size = 100;
    make(), ask(), release(), make_zeroed(), grow(), shrink(), release(), make_aligned(), release(), make_posix(), release();
    trim(), info2(), info(), info_xml(), print_stats();
    expect(dup2(kept, 2) == 2);
}

static void start(size_t bound)
{
    const char *hardened = getenv("HAKMEM_HARDEN");
    most = hardened != NULL && strcmp(hardened, "0") != 0 ? WITH_STACKS : bound;
    stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    sink = fopen("/dev/null", "w");
    expect(stack != MAP_FAILED && sink != NULL);
    bind_all();
    base = depth_of(nothing);
    expect(base <= FRAME);
}

static void each_size(void)
{
    for (unsigned i = 0; i < SIZES; i++) {
        size = sizes[i];
        WITHIN(make), WITHIN(ask), WITHIN(release);
        WITHIN(make_zeroed), WITHIN(grow), WITHIN(release);
        WITHIN(make_aligned), WITHIN(shrink), WITHIN(release);
        WITHIN(make_posix);
        pthread_t thread;
        expect(pthread_create(&thread, NULL, release_elsewhere, NULL) == 0 && pthread_join(thread, NULL) == 0);
        WITHIN(make), WITHIN(release);
    }
}

static void figures(void)
{
    expect(dup2(fileno(sink), 2) == 2);
    size = 1000;
    make();
    for (unsigned i = 0; i < 2; i++)
        WITHIN(info2), WITHIN(info), WITHIN(info_xml), WITHIN(print_stats), WITHIN(trim);
}

static void blocks_of_every_size(void) { start(PLAIN), each_size(); }
static void figures_and_trim(void) { start(PLAIN), figures(); }

static void in_child(void) { start(WITH_STACKS), each_size(), figures(); }
static void with_guards(void) { pass_with("HAKMEM_SAMPLE_GUARDS", "2", "in_child"); }
static void with_profile(void) { setenv("HAKMEM_PROFILE_INTERVAL", "1", 1), pass_with("HAKMEM_PROFILE", "1", "in_child"); }
static void with_exact_statistics(void) { pass_with("HAKMEM_STATS", "exact", "in_child"); }

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        CASE(blocks_of_every_size),
        CASE(figures_and_trim),
        CASE(with_guards),
        CASE(with_profile),
        CASE(with_exact_statistics),
        CASE(in_child),
    };
    return RUN_CASES(cases);
}
