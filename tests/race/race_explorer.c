/* The explorer itself. The number of schedules of small cases is computed here by counting, without the explorer, and
 * must be met exactly: it leaves nothing out and does nothing twice. And each classic pattern of two to four threads has
 * exactly the outcomes that it must have: by interleaving alone, and under the weak orders of weak.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "support/explore.h"

#pragma weak weak_begin

static bool is_weak(void) { return weak_begin != NULL; }

static void expect(bool condition, const char *name, const char *what, unsigned long got, unsigned long wanted)
{
    if (condition)
        return;
    printf("%s: %s: %lu, not %lu\n", name, what, got, wanted);
    exit(1);
}

/* --- the number of schedules ---------------------------------------------------------------------------------------------- */

enum { OPERATIONS_MAX = 4 };

static unsigned operations[EXPLORE_THREADS], thread_count;
static _Atomic unsigned words[EXPLORE_THREADS];   /* one each: nobody reads what others write */
static unsigned char order[EXPLORE_THREADS * OPERATIONS_MAX], order_length;
static struct { unsigned char text[sizeof order]; } orders[4096];
static unsigned order_count;

/* A thread with n operations is n + 1 pieces: to the first point, from point to point, to the end. Counts the ways to
 * line up the pieces of all threads with at most so many switches away from a thread that could go on. */
static unsigned long count_ways(const unsigned left[], unsigned current, unsigned switches)
{
    unsigned long ways = 0;
    bool any = false;
    for (unsigned t = 0; t < thread_count; t++) {
        bool preempts = t != current && current < thread_count && left[current] != 0;
        any |= left[t] != 0;
        if (left[t] == 0 || (preempts && switches == 0))
            continue;
        unsigned rest[EXPLORE_THREADS];
        memcpy(rest, left, sizeof rest);
        rest[t]--;
        ways += count_ways(rest, t, switches - preempts);
    }
    return any ? ways : 1;
}

/* Of the operations alone, without the pieces before the first points. */
static unsigned long count_orders(void)
{
    unsigned long orders_all = 1, placed = 0;
    for (unsigned t = 0; t < thread_count; t++)
        for (unsigned i = 1; i <= operations[t]; i++)
            orders_all = orders_all * ++placed / i;
    return orders_all;
}

__attribute__((noinline, no_sanitize("thread"))) static void note_operation(unsigned t)
{
    order[order_length++] = (unsigned char)t;
}

static void run_thread(unsigned t)
{
    for (unsigned i = 0; i < operations[t]; i++) {
        hak_fetch_add(&words[t], 1, HAK_RELAXED);
        note_operation(t);
    }
}
static void thread_0(void) { run_thread(0); }
static void thread_1(void) { run_thread(1); }
static void thread_2(void) { run_thread(2); }

static void no_order(void) { order_length = 0; }
static void note_order(void)
{
    unsigned i = 0;
    while (i < order_count && memcmp(orders[i].text, order, order_length) != 0)
        i++;
    if (i == order_count)
        memcpy(orders[order_count++].text, order, order_length);
}

static void count_case(unsigned threads, unsigned a, unsigned b, unsigned c, unsigned bound)
{
    unsigned left[EXPLORE_THREADS] = { a + 1, b + 1, threads > 2 ? c + 1 : 0 };
    char name[64];
    snprintf(name, sizeof name, "%u threads of %u %u %u operations, bound %u", threads, a, b, c, bound);
    struct explore_case one = { name, bound, threads, no_order, { thread_0, thread_1, thread_2 }, note_order, bound, 1 };
    operations[0] = a, operations[1] = b, operations[2] = c;
    thread_count = threads;
    order_count = 0;
    unsigned long got = explore_case_run(&one), wanted = count_ways(left, threads, bound);
    expect(got == wanted, name, "schedules", got, wanted);
    if (bound == EXPLORE_ALL)
        expect(order_count == count_orders(), name, "orders of the operations", order_count, count_orders());
    printf("%-50s schedules %-7lu orders %u\n", name, got, order_count);
}

/* --- classic patterns --------------------------------------------------------------------------------------------------------- */

static _Atomic unsigned x, y;
static unsigned data, r[4];
static uint64_t outcomes;   /* a bit per combination of r[0..3], each below 4 */

static void clean(void)
{
    atomic_store(&x, 0);
    atomic_store(&y, 0);
    data = 0;
    memset(r, 0, sizeof r);
}
static unsigned outcome(unsigned a, unsigned b, unsigned c, unsigned d) { return a + 2 * b + 4 * c + 8 * d; }
static void note_outcome(void) { outcomes |= 1ull << outcome(r[0], r[1], r[2], r[3]); }

#define STORE(name, word, order) static void name(void) { hak_store(&word, 1, order); }
STORE(x_relaxed, x, HAK_RELAXED)
STORE(x_release, x, HAK_RELEASE)
STORE(y_release, y, HAK_RELEASE)
STORE(x_seq, x, HAK_SEQ_CST)
STORE(y_seq, y, HAK_SEQ_CST)

#define STORE_LOAD(name, mine, theirs, i, stored, loaded) \
    static void name(void) { hak_store(&mine, 1, stored); r[i] = hak_load(&theirs, loaded); }
STORE_LOAD(sb_weak_0, x, y, 0, HAK_RELEASE, HAK_ACQUIRE)
STORE_LOAD(sb_weak_1, y, x, 1, HAK_RELEASE, HAK_ACQUIRE)
STORE_LOAD(sb_seq_0, x, y, 0, HAK_SEQ_CST, HAK_SEQ_CST)
STORE_LOAD(sb_seq_1, y, x, 1, HAK_SEQ_CST, HAK_SEQ_CST)

#define LOADS(name, first, i, second, k, order) \
    static void name(void) { r[i] = hak_load(&first, order); r[k] = hak_load(&second, order); }
LOADS(mp_relaxed, y, 0, x, 1, HAK_RELAXED)
LOADS(mp_acquire, y, 0, x, 1, HAK_ACQUIRE)
LOADS(same_twice, x, 0, x, 1, HAK_RELAXED)
LOADS(xy_acquire, x, 0, y, 1, HAK_ACQUIRE)
LOADS(yx_acquire, y, 2, x, 3, HAK_ACQUIRE)
LOADS(xy_seq, x, 0, y, 1, HAK_SEQ_CST)
LOADS(yx_seq, y, 2, x, 3, HAK_SEQ_CST)

static void send_relaxed(void) { hak_store(&x, 1, HAK_RELAXED); hak_store(&y, 1, HAK_RELAXED); }
static void send_release(void) { hak_store(&x, 1, HAK_RELAXED); hak_store(&y, 1, HAK_RELEASE); }
/* A read-modify-write between a release and an acquire hands the message on, whatever its own order. */
static void add_relaxed(void) { hak_fetch_or(&y, 2, HAK_RELAXED); }
static void after_chain(void)
{
    r[0] = hak_load(&y, HAK_ACQUIRE) == 3;
    r[1] = hak_load(&x, HAK_RELAXED);
}
/* What the second thread knows of the first reaches the third (cumulativity). */
static void pass_on(void)
{
    if (hak_load(&x, HAK_ACQUIRE))
        hak_store(&y, 1, HAK_RELEASE);
}
static void add_one_x(void) { r[0] = hak_fetch_add(&x, 1, HAK_RELAXED); }
static void add_one_x_too(void) { r[1] = hak_fetch_add(&x, 1, HAK_RELAXED); }

#define O(a, b) (1u << ((a) + 2 * (b)))
#define ALL_FOUR (O(0, 0) | O(0, 1) | O(1, 0) | O(1, 1))
enum { FOUR_ALL = 0xffff };
/* r0 = x seen and y not, by one; r2 = y seen and x not, by the other. */
#define READERS_DISAGREE (1u << (1 + 2 * 0 + 4 * 1 + 8 * 0))

static const struct pattern {
    const char *name;
    unsigned threads;
    void (*body[EXPLORE_THREADS])(void);
    uint64_t interleaved, weak;
} patterns[] = {
    { "store buffering, release and acquire", 2, { sb_weak_0, sb_weak_1 }, ALL_FOUR & ~O(0, 0), ALL_FOUR },
    { "store buffering, seq_cst", 2, { sb_seq_0, sb_seq_1 }, ALL_FOUR & ~O(0, 0), ALL_FOUR & ~O(0, 0) },
    { "message, relaxed", 2, { send_relaxed, mp_relaxed }, ALL_FOUR & ~O(1, 0), ALL_FOUR },
    { "message, release and relaxed", 2, { send_release, mp_relaxed }, ALL_FOUR & ~O(1, 0), ALL_FOUR },
    { "message, relaxed and acquire", 2, { send_relaxed, mp_acquire }, ALL_FOUR & ~O(1, 0), ALL_FOUR },
    { "message, release and acquire", 2, { send_release, mp_acquire }, ALL_FOUR & ~O(1, 0), ALL_FOUR & ~O(1, 0) },
    { "two loads of one word", 2, { x_relaxed, same_twice }, ALL_FOUR & ~O(1, 0), ALL_FOUR & ~O(1, 0) },
    { "release sequence", 3, { send_release, add_relaxed, after_chain }, ALL_FOUR & ~O(1, 0), ALL_FOUR & ~O(1, 0) },
    { "message through a third", 3, { x_release, pass_on, mp_acquire }, ALL_FOUR & ~O(1, 0), ALL_FOUR & ~O(1, 0) },
    { "two additions", 2, { add_one_x, add_one_x_too }, O(0, 1) | O(1, 0), O(0, 1) | O(1, 0) },
    { "independent writers, acquire", 4, { x_release, y_release, xy_acquire, yx_acquire },
      FOUR_ALL & ~READERS_DISAGREE, FOUR_ALL },
    { "independent writers, seq_cst", 4, { x_seq, y_seq, xy_seq, yx_seq }, FOUR_ALL & ~READERS_DISAGREE,
      FOUR_ALL & ~READERS_DISAGREE },
};

static void run_pattern(const struct pattern *pattern)
{
    struct explore_case one = { pattern->name, 4, pattern->threads, clean, { 0 }, note_outcome, 4, 4 };
    memcpy(one.body, pattern->body, sizeof one.body);
    outcomes = 0;
    uint64_t schedules = explore_case_run(&one), wanted = is_weak() ? pattern->weak : pattern->interleaved;
    expect(outcomes == wanted, pattern->name, "outcomes", (unsigned long)outcomes, (unsigned long)wanted);
    printf("%-50s schedules %-7lu outcomes %#lx\n", pattern->name, (unsigned long)schedules, (unsigned long)outcomes);
}

int main(void)
{
    count_case(2, 1, 1, 0, EXPLORE_ALL);
    count_case(2, 2, 2, 0, EXPLORE_ALL);
    count_case(2, 4, 3, 0, EXPLORE_ALL);
    count_case(3, 2, 2, 1, EXPLORE_ALL);
    count_case(3, 2, 2, 2, EXPLORE_ALL);
    count_case(2, 4, 4, 0, 0);
    count_case(2, 4, 4, 0, 1);
    count_case(2, 4, 4, 0, 3);
    count_case(3, 3, 2, 4, 2);
    for (unsigned i = 0; i < sizeof patterns / sizeof patterns[0]; i++)
        run_pattern(&patterns[i]);
    return 0;
}
