/* Threads whose heaps nobody would park: they never allocate, but the C library frees for them after their last destructor
 * (what pthread_create allocated, when they are detached or on stacks of the program's own); they free a few blocks of
 * others'; they allocate for the first time when no destructor will be called any more. Resident memory and the number of
 * threads that can allocate do not change, however many of them there were. */
// test: timeout=300
#include "cases.h"

#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/syscall.h>

enum { AT_ONCE = 60 };
#define MIB ((size_t)1 << 20)

static sem_t room;

/* Stacks that are the program's: a thread that is not joined uses its stack for a moment after it has said that it ends, so
 * the next one waits until the kernel knows it no more. */
enum { STACKS = 4 * AT_ONCE, STACK_BYTES = 128 << 10 };
static char *stacks;
static _Atomic(long) users[STACKS]; /* the last thread on each; 0: none yet, -1: one that has not run yet */

static char *free_stack(unsigned number)
{
    long user;
    while ((user = atomic_load(&users[number % STACKS])) == -1 || (user != 0 && syscall(SYS_tgkill, getpid(), user, 0) == 0))
        usleep(50);
    atomic_store(&users[number % STACKS], -1);
    return stacks + number % STACKS * STACK_BYTES;
}

static void start(void *(*body)(void *), unsigned number, bool own_stack)
{
    pthread_attr_t attributes;
    pthread_t thread;
    while (sem_wait(&room) != 0)
        ;
    expect(pthread_attr_init(&attributes) == 0);
    expect(pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0);
    if (own_stack)
        expect(pthread_attr_setstack(&attributes, free_stack(number), STACK_BYTES) == 0);
    int code;
    while ((code = pthread_create(&thread, &attributes, body, (void *)(uintptr_t)number)) == EAGAIN)
        usleep(1000); /* ended ones are still being cleared away */
    expect(code == 0);
    pthread_attr_destroy(&attributes);
}

static void wait_for_all(void)
{
    for (int i = 0; i < AT_ONCE; i++)
        while (sem_wait(&room) != 0)
            ;
    for (int i = 0; i < AT_ONCE; i++)
        sem_post(&room);
    usleep(20000);
}

/* What memory grows by during the second half of the threads is no share of them: heaps are parked by those who need one, so the
 * number of heaps follows that of threads at once, which on a busy machine may double. A KiB or two lost by each would show. */
static void run_many(void *(*body)(void *), bool own_stack)
{
    unsigned brief = getenv("HAK_TEST_EMULATOR") == NULL ? 20000 : 1000, count = in_long_form(brief, 1000000);
    size_t settled = 0;
    expect(sem_init(&room, 0, AT_ONCE) == 0);
    for (unsigned i = 0; i < count; i++) {
        if (i == brief / 2) {
            wait_for_all();
            settled = resident_bytes();
        }
        start(body, i, own_stack);
    }
    wait_for_all();
    size_t now = resident_bytes();
    size_t most = 3 * settled + 8 * MIB;
    if (now > most)
        printf("%zu KiB resident, then %zu\n", settled >> 10, now >> 10), fflush(stdout);
    expect(now <= most);
}

static void *does_nothing(void *argument)
{
    atomic_store(&users[(uintptr_t)argument % STACKS], syscall(SYS_gettid));
    sem_post(&room);
    return argument;
}

/* Many at once: the C library keeps the stacks of a few for others, and frees for those only whose stacks it gives up. */
static void *sleeps(void *argument)
{
    usleep(500);
    return does_nothing(argument);
}

static void detached(void) { run_many(sleeps, false); }

static void on_the_programs_stacks(void)
{
    stacks = mmap(NULL, (size_t)STACKS * STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect(stacks != MAP_FAILED);
    run_many(does_nothing, true);
}

/* Up to three blocks of the main thread's, of every pool. */
static _Atomic(void *) handed[64];

static void *frees_a_few(void *argument)
{
    uintptr_t number = (uintptr_t)argument;
    for (uintptr_t i = 0; i < number % 4; i++)
        free(atomic_exchange(&handed[(number * 3 + i) % 64], NULL));
    return does_nothing(argument);
}

static void *fills(void *argument)
{
    static const size_t sizes[] = { 16, 100, 1000, 5000, 40000, 100000, 700000, 2000000 };
    unsigned next = 0;
    while (!atomic_load((_Atomic(bool) *)argument))
        for (unsigned i = 0; i < 64; i++) {
            void *none = NULL, *block = atomic_load(&handed[i]) == NULL ? malloc(sizes[next++ % 8]) : NULL;
            if (block != NULL && !atomic_compare_exchange_strong(&handed[i], &none, block))
                free(block);
        }
    return NULL;
}

static void that_free_a_few(void)
{
    static _Atomic(bool) over;
    pthread_t filler;
    expect(pthread_create(&filler, NULL, fills, (void *)(uintptr_t)&over) == 0);
    run_many(frees_a_few, false);
    atomic_store(&over, true);
    expect(pthread_join(filler, NULL) == 0);
}

/* The C library keeps the stack of an ended thread for the next one, and with it what was stored under a key after the last
 * destructor: the next thread's destructors are called with that. Every other thread leaves such a stack; the rest find their
 * blocks as they left them. */
static void *keeps_blocks(void *argument)
{
    enum { KEPT = 24 };
    uint64_t *blocks[KEPT], own = (uint64_t)(uintptr_t)argument;
    for (int round = 0; round < 8 && own % 2 != 0; round++) {
        for (int i = 0; i < KEPT; i++) {
            size_t words = (size_t)16 << i % 8;
            expect((blocks[i] = malloc(words * sizeof *blocks[i])) != NULL);
            for (size_t word = 0; word < words; word++)
                blocks[i][word] = own + word;
        }
        usleep(50);
        for (int i = 0; i < KEPT; i++) {
            for (size_t word = 0; word < (size_t)16 << i % 8; word++)
                expect(blocks[i][word] == own + word);
            free(blocks[i]);
        }
    }
    return sleeps(argument);
}

static void beside_those_that_keep_blocks(void) { run_many(keeps_blocks, false); }

/* --- the first malloc when no destructor comes any more ------------------------------------------------------------------- */

static pthread_key_t key;

/* The library's key was made before this one, so its destructor has had its turn in this round. */
static void allocates_in_the_last_round(void *value)
{
    uintptr_t round = (uintptr_t)value;
    if (round < PTHREAD_DESTRUCTOR_ITERATIONS) {
        expect(pthread_setspecific(key, (void *)(round + 1)) == 0);
        return;
    }
    void *blocks[8];
    for (int i = 0; i < 8; i++)
        expect((blocks[i] = malloc(100 << i)) != NULL);
    for (int i = 0; i < 8; i++)
        free(blocks[i]);
    sem_post(&room);
}

static void *comes_late(void *argument)
{
    expect(pthread_setspecific(key, (void *)1) == 0);
    return argument;
}

static void that_allocate_last_of_all(void)
{
    expect(pthread_key_create(&key, allocates_in_the_last_round) == 0);
    run_many(comes_late, false);
}

/* --- and then one that is like all others ------------------------------------------------------------------------------------ */

static void *uses_everything(void *argument)
{
    for (size_t n = 1; n < 4 * MIB; n += n / 2 + 1) {
        void *block = malloc(n);
        expect_block(block, n);
        free(block);
    }
    return argument;
}

static void others_allocate_afterwards(void)
{
    that_allocate_last_of_all();
    for (int i = 0; i < 100; i++) {
        pthread_t thread;
        expect(pthread_create(&thread, NULL, uses_everything, NULL) == 0);
        expect(pthread_join(thread, NULL) == 0);
    }
}

static const struct test_case cases[] = {
    CASE(detached),
    CASE(on_the_programs_stacks),
    CASE(that_free_a_few),
    CASE(beside_those_that_keep_blocks),
    CASE(that_allocate_last_of_all),
    CASE(others_allocate_afterwards),
};

int main(int argc, char **argv) { return RUN_CASES(cases); }
