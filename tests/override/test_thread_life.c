/* What threads leave behind: blocks that outlive their thread, freed, resized and measured by others; destructors that
 * allocate in all their rounds; threads that are cancelled between calls of malloc, and that calls of malloc are no
 * points of cancellation. Memory stays bounded over thousands of threads. */
#include "cases.h"
#include "churn.h"

#include <limits.h>
#include <malloc.h>

#define MIB ((size_t)1 << 20)

/* --- blocks that outlive their thread ----------------------------------------------------------------------------------- */

enum { LEFT = 60 };

static void *left[LEFT];

static void *leaves_blocks(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    for (int i = 0; i < LEFT; i++)
        left[i] = churn_make(&seed);
    return NULL;
}

/* What ended threads have left in their heaps, and what their blocks' frees have not yet brought back, varies by this much
 * from one moment to the next; the long form's many threads make it small beside anything that is lost by each. */
#define WAITING (32 * MIB)

/* What is resident once all that the calling thread can give back has gone. */
static size_t resident_in_use(void)
{
    for (unsigned i = 0; i < CHURN_SHARED; i++)
        churn_free(atomic_exchange(&churn_shared[i], NULL));
    malloc_trim(0);
    return resident_bytes();
}

static void expect_grown_at_most(size_t bytes, size_t settled, size_t now)
{
    if (now > settled + bytes)
        printf("%zu KiB resident, then %zu\n", settled >> 10, now >> 10), fflush(stdout);
    expect(now <= settled + bytes || not_emulated("account of resident pages without its own"));
}

static void run_one(void *(*body)(void *), uintptr_t argument)
{
    pthread_t thread;
    expect(pthread_create(&thread, NULL, body, (void *)argument) == 0);
    expect(pthread_join(thread, NULL) == 0);
}

static void use_what_is_left(unsigned round)
{
    for (int i = 0; i < LEFT; i++) {
        unsigned seed = round + (unsigned)i;
        size_t size = churn_size(&seed);
        churn_verify(left[i]);
        expect(malloc_usable_size(left[i]) >= ((struct churn_head *)left[i])->size);
        if (i % 3 == 0)
            left[i] = churn_fill(realloc(left[i], size), size);
    }
}

static void *frees_what_is_left(void *argument)
{
    for (int i = 0; i < LEFT; i++)
        churn_free(left[i]);
    return argument;
}

static void free_after_the_owners_end(void)
{
    size_t settled = 0;
    for (unsigned round = 0, count = in_long_form(400, 20000); round < count; round++) {
        run_one(leaves_blocks, round);
        use_what_is_left(round);
        if (round % 2 == 0)
            frees_what_is_left(NULL);
        else
            run_one(frees_what_is_left, 0);
        if (round == count / 4)
            settled = resident_in_use();
    }
    expect_grown_at_most(WAITING, settled, resident_in_use());
}

/* The owner ends while others are freeing its blocks. */
static pthread_barrier_t ending;
static _Atomic(void *) given[1000];

static void *gives_and_ends(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    for (int i = 0; i < 1000; i++) {
        size_t size = 32 + churn_size(&seed) % 2000;
        atomic_store(&given[i], churn_fill(malloc(size), size));
    }
    pthread_barrier_wait(&ending);
    return NULL;
}

static void free_while_the_owner_ends(void)
{
    pthread_barrier_init(&ending, NULL, 2);
    for (unsigned round = 0; round < in_long_form(200, 10000); round++) {
        pthread_t thread;
        expect(pthread_create(&thread, NULL, gives_and_ends, (void *)(uintptr_t)round) == 0);
        pthread_barrier_wait(&ending);
        for (int i = 0; i < 1000; i++)
            churn_free(atomic_exchange(&given[i], NULL));
        expect(pthread_join(thread, NULL) == 0);
    }
    expect(resident_in_use() < 32 * MIB || not_emulated("account of resident pages without its own"));
}

/* --- destructors that allocate ------------------------------------------------------------------------------------------- */

enum { AT_ONCE = 16, ROUNDS = 4, THREADS = 4000 };

static pthread_key_t key;
static atomic_uint last_rounds;

static void allocates_at_the_end(void *value)
{
    unsigned *round = value, seed = *round;
    void *blocks[10];
    for (int i = 0; i < 10; i++)
        blocks[i] = malloc(100 + churn_size(&seed) % 10000);
    for (int i = 0; i < 10; i++) {
        expect(blocks[i] != NULL);
        *(char *)blocks[i] = 1;
        free(blocks[i]);
    }
    unsigned *next = malloc(sizeof *next);
    *next = *round + 1;
    free(round);
    if (*next < PTHREAD_DESTRUCTOR_ITERATIONS) {
        expect(pthread_setspecific(key, next) == 0);
    } else {
        free(next);
        atomic_fetch_add(&last_rounds, 1);
    }
}

static void *has_a_value(void *argument)
{
    unsigned *round = malloc(sizeof *round);
    *round = 0;
    expect(pthread_setspecific(key, round) == 0);
    return argument;
}

static void threads_with_destructors(unsigned count)
{
    pthread_t threads[AT_ONCE];
    for (unsigned done = 0; done < count; done += AT_ONCE) {
        for (int i = 0; i < AT_ONCE; i++)
            expect(pthread_create(&threads[i], NULL, has_a_value, NULL) == 0);
        for (int i = 0; i < AT_ONCE; i++)
            expect(pthread_join(threads[i], NULL) == 0);
    }
}

static void destructors_that_allocate(void)
{
    unsigned count = getenv("HAK_TEST_EMULATOR") == NULL ? THREADS : THREADS / 10;
    expect(pthread_key_create(&key, allocates_at_the_end) == 0);
    threads_with_destructors(count); /* until as many heaps are full as threads have ever been at once */
    size_t settled = resident_bytes();
    for (int round = 0; round < ROUNDS; round++)
        threads_with_destructors(count);
    expect_grown_at_most(4 * MIB, settled, resident_bytes());
    expect(atomic_load(&last_rounds) == (ROUNDS + 1) * count);
}

/* --- cancellation -------------------------------------------------------------------------------------------------------- */

static void free_it(void *p) { churn_free(*(void **)p); }

static void *is_cancelled(void *argument)
{
    static __thread unsigned seed; /* not a register's, which cancellation may lose */
    seed = (unsigned)(uintptr_t)argument;
    for (;;) {
        void *block = churn_make(&seed);
        pthread_cleanup_push(free_it, &block);
        pthread_testcancel();
        void *copy = strdup("some text");
        free(copy);
        pthread_cleanup_pop(1);
    }
    return NULL;
}

static void cancel_in_malloc_loops(void)
{
    size_t settled = 0;
    for (unsigned round = 0, count = in_long_form(200, 10000); round < count; round++) {
        pthread_t threads[8];
        void *result;
        for (uintptr_t i = 0; i < 8; i++)
            expect(pthread_create(&threads[i], NULL, is_cancelled, (void *)(round + i)) == 0);
        churn_steps(round, 50);
        for (int i = 0; i < 8; i++)
            expect(pthread_cancel(threads[i]) == 0);
        for (int i = 0; i < 8; i++)
            expect(pthread_join(threads[i], &result) == 0 && result == PTHREAD_CANCELED);
        if (round == count / 4)
            settled = resident_in_use();
    }
    expect_grown_at_most(WAITING, settled, resident_in_use());
}

/* A call that was a point of cancellation would end the thread inside of the allocator. */
static atomic_bool was_reached;

static void *has_a_cancellation_pending(void *argument)
{
    expect(pthread_cancel(pthread_self()) == 0);
    churn_steps(1, 3000);
    for (size_t n = 1; n < 64 * MIB; n = n * 3 + 1) {
        void *p = NULL;
        free(calloc(n, 1));
        free(realloc(malloc(n), n * 2));
        free(memalign(64, n));
        expect(posix_memalign(&p, 4096, n) == 0);
        free(p);
        free(valloc(n));
    }
    expect(malloc(SIZE_MAX) == NULL);
    malloc_trim(0);
#if defined(__GLIBC__)
    mallinfo2();
#endif
    atomic_store(&was_reached, true);
    pthread_testcancel();
    expect(!"the thread goes on");
    return argument;
}

static void calls_are_no_points_of_cancellation(void)
{
    pthread_t thread;
    void *result;
    for (int i = 0; i < 20; i++) {
        atomic_store(&was_reached, false);
        expect(pthread_create(&thread, NULL, has_a_cancellation_pending, NULL) == 0);
        expect(pthread_join(thread, &result) == 0);
        expect(result == PTHREAD_CANCELED && atomic_load(&was_reached));
    }
}

/* The destructors of a cancelled thread allocate as well. */
static void *is_cancelled_with_a_value(void *argument)
{
    has_a_value(NULL);
    return is_cancelled(argument);
}

static void destructors_of_cancelled_threads(void)
{
    expect(pthread_key_create(&key, allocates_at_the_end) == 0);
    for (int i = 0; i < 500; i++) {
        pthread_t thread;
        void *result;
        expect(pthread_create(&thread, NULL, is_cancelled_with_a_value, (void *)(uintptr_t)i) == 0);
        if (i % 2)
            sched_yield();
        expect(pthread_cancel(thread) == 0);
        expect(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    }
    expect(atomic_load(&last_rounds) <= 500);
}

/* --- threads that find no heap -------------------------------------------------------------------------------------------- */

enum { WITHOUT_HEAP = 4, LATE_BLOCKS = 500 };

static pthread_key_t late_key;
static __thread int late_round;
static _Atomic bool may_ask, may_end, has_heap;

/* In the third round the thread has given its heap back: the heap for such threads gets free blocks. */
static void frees_late(void *value)
{
    void *p[LATE_BLOCKS];
    if (++late_round < 3) {
        expect(pthread_setspecific(late_key, value) == 0);
        return;
    }
    for (int i = 0; i < LATE_BLOCKS; i++)
        p[i] = malloc(100);
    for (int i = 0; i < LATE_BLOCKS; i++)
        free(p[i]);
}

static void *ends_late(void *argument)
{
    free(malloc(100));
    expect(pthread_setspecific(late_key, &late_key) == 0);
    return argument;
}

static void *keeps_its_heap(void *argument)
{
    free(malloc(100));
    has_heap = true;
    while (!may_end)
        usleep(1000);
    return argument;
}

static void *asks_without_heap(void *argument)
{
    while (!may_ask)
        usleep(1000);
    char *p = malloc(100);
    expect(p != NULL);
    memset(p, 1, 100);
    free(p);
    return argument;
}

static void no_more_address_space(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long pages = 0;
    expect(file != NULL && fscanf(file, "%lu", &pages) == 1 && fclose(file) == 0);
    struct rlimit limit = { pages * (rlim_t)sysconf(_SC_PAGESIZE), pages * (rlim_t)sysconf(_SC_PAGESIZE) };
    expect(setrlimit(RLIMIT_AS, &limit) == 0);
}

/* The one heap that an ended thread has left is taken, and the system refuses another. */
static void served_where_no_heap_can_be_had(void)
{
    pthread_t thread, keeper, askers[WITHOUT_HEAP];
    if (not_emulated("RLIMIT_AS"))
        return;
    expect(pthread_key_create(&late_key, frees_late) == 0);
    expect(pthread_create(&thread, NULL, ends_late, NULL) == 0 && pthread_join(thread, NULL) == 0);
    expect(pthread_create(&keeper, NULL, keeps_its_heap, NULL) == 0);
    for (int i = 0; i < WITHOUT_HEAP; i++)
        expect(pthread_create(&askers[i], NULL, asks_without_heap, NULL) == 0);
    while (!has_heap)
        usleep(1000);
    no_more_address_space();
    may_ask = true;
    for (int i = 0; i < WITHOUT_HEAP; i++)
        expect(pthread_join(askers[i], NULL) == 0);
    may_end = true;
    expect(pthread_join(keeper, NULL) == 0);
}

static const struct test_case cases[] = {
    CASE(free_after_the_owners_end),
    CASE(free_while_the_owner_ends),
    CASE(destructors_that_allocate),
    CASE(cancel_in_malloc_loops),
    CASE(calls_are_no_points_of_cancellation),
    CASE(destructors_of_cancelled_threads),
    CASE(served_where_no_heap_can_be_had),
};

int main(int argc, char **argv) { return RUN_CASES(cases); }
