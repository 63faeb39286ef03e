/* Memory goes back to the system without the program's help. Six programs, each in a process of its own, with the
 * background thread and without:
 *   1. most of a large heap of small blocks is freed, then the program sleeps: with the thread its size falls meanwhile,
 *      without it by the time of 10,000 further operations, all of which hit the cache;
 *   2. 64 threads each use 16 MiB once, free them and sleep (with the thread only: nobody else runs);
 *   3. 8 threads free what they used and end, and with them the background thread, if there was one (auto): the main thread goes on
 *      with calls that hit the cache;
 *   4. 40 threads, which have heaps already, use five blocks of 160 KB each and sleep (auto): none of them takes another slow path;
 *      the same for the third of three generations;
 *   5. sawtooth: one size after the other, most of each freed, light use between;
 *   6. while freed blocks are young, memory that the program maps itself grows: both together stay below their sum.
 * Prints the figures. The kernel's account of the process is compared, and the ledger must add up to it within 3 % or 96 KiB.
 *
 * Knobs (environment)     default    full
 *   HAK_RETURN_MIB        256        1024      size of the heap of 1
 *   HAK_RETURN_DELAY      200        800       purge_delay in ms */
// test: serial ordinary timeout=300 flavours=shared
#include "expect.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "hakmem.h"
#include "hakmem_stats.h"

#define MIB ((size_t)1 << 20)

static unsigned knob(const char *name, unsigned value)
{
    const char *text = getenv(name);
    return text != NULL ? (unsigned)strtoul(text, NULL, 10) : value;
}

static void set(const char *name, unsigned value)
{
    char text[32];
    snprintf(text, sizeof text, "%u", value);
    expect(hak_option_set(name, text) == 0);
}

static void rest(unsigned ms)
{
    struct timespec time = { ms / 1000, (long)(ms % 1000) * 1000000 };
    nanosleep(&time, NULL);
}

static unsigned delay_ms(void) { return knob("HAK_RETURN_DELAY", 200); }

/* Waits until no more than `bound` bytes are resident, for many times as long as it should take on an idle machine; the
 * time that it took, in ms. */
static unsigned wait_for(size_t bound)
{
    unsigned waited = 0, step = delay_ms() / 10 + 1;
    while (resident_bytes() > bound && waited < 50 * delay_ms()) {
        rest(step);
        waited += step;
    }
    return waited;
}

static bool ledger_adds_up(void)
{
    static struct hak_stats stats;
    expect(hak_stats_ledger(&stats, sizeof stats) == 0);
    size_t apart = stats.ledger_sum > stats.ledger_rss ? stats.ledger_sum - stats.ledger_rss : stats.ledger_rss - stats.ledger_sum;
    return apart * 100 <= stats.ledger_rss * 3 || apart <= 96 << 10; /* pages that were only read */
}

/* While the thread gives memory back, the ledger and the kernel's account are of different moments: that ends. */
static void check_ledger(void)
{
    bool adds_up = ledger_adds_up();
    for (unsigned step = 0; step < 40 && !adds_up; step++) {
        rest(delay_ms() / 10 + 1);
        adds_up = ledger_adds_up();
    }
    expect(adds_up);
}

static void light_use(size_t operations, size_t size)
{
    for (size_t i = 0; i < operations / 2; i++) {
        char *block = malloc(size);
        *block = 1;
        free(block);
    }
}

/* --- 1 ------------------------------------------------------------------------------------------------------------- */

enum { SMALL = 256, KEPT = 64, OPERATIONS = 10000 };

static void fill_and_free(size_t *live)
{
    size_t total = knob("HAK_RETURN_MIB", 256) * MIB, count = total / SMALL, in_super = 2 * MIB / SMALL;
    char **blocks = malloc(count * sizeof *blocks);
    for (size_t i = 0; i < count; i++)
        memset(blocks[i] = malloc(SMALL), 1, SMALL);
    size_t before = resident_bytes();
    for (size_t i = 0; i < count; i++)
        if (i / in_super % KEPT != 0)
            free(blocks[i]);
    *live = total / KEPT + count * sizeof *blocks;
    expect(before > total);
}

static size_t bound_for(size_t live) { return live + live / 10 + 16 * MIB; }

static void freed_then_asleep(bool thread)
{
    size_t live;
    unsigned waited = 0;
    fill_and_free(&live);
    light_use(4 * OPERATIONS, SMALL); /* more than a heap polls for at a time */
    size_t freed = resident_bytes();
    if (thread) {
        waited = wait_for(bound_for(live));
    } else {
        rest(2 * delay_ms());
        light_use(OPERATIONS, SMALL);
    }
    size_t now = resident_bytes();
    printf("freed, %s: %zu MiB resident, then %zu (live %zu, bound %zu) after %u ms\n", thread ? "thread" : "no thread",
           freed / MIB, now / MIB, live / MIB, bound_for(live) / MIB, waited);
    expect(now <= bound_for(live));
    check_ledger();
}

/* --- 2 ------------------------------------------------------------------------------------------------------------- */

enum { THREADS = 64, ENDED = 8 };

static pthread_barrier_t used, over;

static void *use_and_end(void *together)
{
    enum { BYTES = 16 << 20, SMALLEST = 48, LARGEST = 3000 };
    size_t count = 0, bytes = 0, size = SMALLEST;
    char **blocks = malloc(BYTES / SMALLEST * sizeof *blocks);
    for (; bytes < BYTES; bytes += size, size = size < LARGEST ? size + size / 3 : SMALLEST)
        memset(blocks[count++] = malloc(size), 1, size);
    if (together != NULL)
        pthread_barrier_wait(together);
    while (count > 0)
        free(blocks[--count]);
    free(blocks);
    return NULL;
}

static void *use_once(void *argument)
{
    use_and_end(NULL);
    pthread_barrier_wait(&used);
    pthread_barrier_wait(&over);
    return argument;
}

static void threads_asleep(bool thread)
{
    pthread_t threads[THREADS];
    size_t start = resident_bytes();
    pthread_barrier_init(&used, NULL, THREADS + 1);
    pthread_barrier_init(&over, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++)
        expect(pthread_create(&threads[i], NULL, use_once, NULL) == 0);
    pthread_barrier_wait(&used);
    size_t most = resident_bytes();
    unsigned waited = wait_for(start + 64 * MIB);
    size_t now = resident_bytes();
    if (getenv("HAK_RETURN_STATS"))
        hak_option_set("stats_ledger", "1"), hak_stats_print(2);
    printf("threads, %s: %zu MiB resident, then %zu (start %zu, bound %zu) after %u ms\n", thread ? "thread" : "no thread",
           most / MIB, now / MIB, start / MIB, start / MIB + 64, waited);
    expect(now <= start + 64 * MIB);
    check_ledger();
    pthread_barrier_wait(&over);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

/* --- 3 ------------------------------------------------------------------------------------------------------------- */

static void threads_ended(bool thread)
{
    pthread_t threads[ENDED];
    if (thread)
        expect(hak_option_set("background", "auto") == 0);
    pthread_barrier_init(&used, NULL, ENDED);
    for (int i = 0; i < ENDED; i++)
        expect(pthread_create(&threads[i], NULL, use_and_end, &used) == 0);
    for (int i = 0; i < ENDED; i++)
        pthread_join(threads[i], NULL);
    size_t most = resident_bytes();
    for (int i = 0; i < 10; i++) {
        light_use(OPERATIONS, SMALL);
        rest(delay_ms());
    }
    size_t now = resident_bytes();
    printf("ended, %s: %zu MiB resident, then %zu (bound 24)\n", thread ? "auto" : "no thread", most / MIB, now / MIB);
    expect(now <= 24 * MIB);
    check_ledger();
}

/* --- 4 ------------------------------------------------------------------------------------------------------------- */

enum { BRIEF_THREADS = 40 };

static void *use_briefly(void *argument)
{
    enum { COUNT = 5, SIZE = 160000 };
    char *blocks[COUNT];
    light_use(2, SMALL);
    pthread_barrier_wait(&used);
    for (int i = 0; i < COUNT; i++)
        memset(blocks[i] = malloc(SIZE), 1, SIZE);
    pthread_barrier_wait(&used);
    for (int i = 0; i < COUNT; i++)
        free(blocks[i]);
    pthread_barrier_wait(&used);
    pthread_barrier_wait(&over);
    return argument;
}

static void generations_asleep(bool several)
{
    pthread_t threads[BRIEF_THREADS];
    size_t start = 0;
    expect(hak_option_set("background", "auto") == 0);
    pthread_barrier_init(&used, NULL, BRIEF_THREADS + 1);
    pthread_barrier_init(&over, NULL, BRIEF_THREADS + 1);
    for (int left = several ? 3 : 1; left > 0; left--) {
        for (int i = 0; i < BRIEF_THREADS; i++)
            expect(pthread_create(&threads[i], NULL, use_briefly, NULL) == 0);
        pthread_barrier_wait(&used);
        start = start != 0 ? start : resident_bytes();
        pthread_barrier_wait(&used);
        pthread_barrier_wait(&used);
        size_t most = resident_bytes();
        if (left == 1) {
            unsigned waited = wait_for(start + 6 * MIB);
            size_t now = resident_bytes();
            printf("%s: %zu MiB resident, then %zu (start %zu, bound %zu) after %u ms\n", several ? "third generation" : "brief use",
                   most / MIB, now / MIB, start / MIB, start / MIB + 6, waited);
            expect(now <= start + 6 * MIB);
        }
        pthread_barrier_wait(&over);
        for (int i = 0; i < BRIEF_THREADS; i++)
            pthread_join(threads[i], NULL);
    }
}

/* --- 5 ------------------------------------------------------------------------------------------------------------- */

static void sawtooth(bool thread)
{
    enum { BYTES = 32 << 20, SMALLEST = 32, LARGEST = 8192, PIECES = 50, MOST_RATIO = 22 };
    size_t live = 0;
    char **blocks = malloc(BYTES / SMALLEST * sizeof *blocks);
    memset(blocks, 0, BYTES / SMALLEST * sizeof *blocks);
    size_t start = resident_bytes();
    for (double wish = SMALLEST; wish <= LARGEST; wish *= 1.25) {
        size_t size = (size_t)wish, count = BYTES / size;
        for (size_t i = 0; i < count; i++)
            memset(blocks[i] = malloc(size), 1, size);
        for (size_t i = 0; i < count; i++) {
            if (i % KEPT != 0)
                free(blocks[i]);
            else
                live += size;
        }
        for (int piece = 0; piece < PIECES; piece++) {
            light_use(1000, 100);
            rest(delay_ms() * 5 / 4 / PIECES); /* a second, of which purge_delay is 0.8 */
        }
    }
    size_t now = resident_bytes() - start;
    printf("sawtooth, %s: %zu KiB live, %zu MiB resident, ratio %.1f\n", thread ? "thread" : "no thread", live >> 10, now / MIB,
           (double)now / (double)live);
    expect(now <= MOST_RATIO * live);
    check_ledger();
}

/* --- 6 ------------------------------------------------------------------------------------------------------------- */

static void others_grow(bool thread)
{
    enum { COUNT = 2000, SIZE = 8300, OTHERS = 32, USED = 200, USED_SIZE = 3000 };
    static char *blocks[COUNT], *some[USED];
    for (int i = 0; i < COUNT; i++)
        memset(blocks[i] = malloc(SIZE), 1, SIZE);
    size_t before = resident_bytes();
    for (int i = 0; i < COUNT; i++)
        if (i % KEPT != 0) /* whole SuperSlabs stay, for huge blocks that grow in turn */
            free(blocks[i]);
    for (int step = 0; step < OTHERS; step++) {
        char *other = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        expect(other != MAP_FAILED);
        memset(other, 1, MIB);
        for (int i = 0; i < USED; i++)
            memset(some[i] = malloc(USED_SIZE), 1, USED_SIZE);
        for (int i = 0; i < USED; i++)
            free(some[i]);
        rest(10);
    }
    size_t now = resident_bytes(), sum = before + OTHERS * MIB;
    printf("others grow, %s: %zu MiB resident, then %zu (sum %zu)\n", thread ? "thread" : "no thread", before / MIB, now / MIB,
           sum / MIB);
    expect(now <= sum - COUNT * SIZE / 3 * 2);
}

/* --- the whole ------------------------------------------------------------------------------------------------------ */

static void run(void (*program)(bool), bool thread)
{
    int status;
    pid_t child = fork();
    expect(child >= 0);
    if (child == 0) {
        set("background", thread);
        program(thread);
        fflush(stdout);
        _exit(0);
    }
    expect(waitpid(child, &status, 0) == child && status == 0);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    run(others_grow, false);
    set("purge_delay", delay_ms());
    run(freed_then_asleep, true);
    run(freed_then_asleep, false);
    run(threads_asleep, true);
    run(threads_ended, true);
    run(threads_ended, false);
    run(generations_asleep, false);
    run(generations_asleep, true);
    run(sawtooth, true);
    run(sawtooth, false);
    return 0;
}
