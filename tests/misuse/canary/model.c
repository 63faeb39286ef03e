// A program that makes mistakes all the time, on HAKMEM_MISUSE=report, and knows what must be left of its memory:
//
//     model SECONDS THREADS SEED [heaps]     heaps: its blocks come from user heaps too
//
// Each thread has blocks, whose contents follow from a number, and frees, resizes and verifies them, also those that others have
// allocated. In between it makes mistakes that any allocator can recognise: a pointer into a block, to the stack or to a mapping, a
// second free before the address can be another block's (nobody else allocates meanwhile), a wrong size, another heap's block, an ended
// heap, and in a hardened process writes past the end. Then it forks, and the child does the same for a while. It prints the first
// thing that is not as it should be and ends by abort(), or "fine: N mistakes, M counted".
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "hakmem.h"
#include "hakmem_stats.h"

enum { THREADS = 16, MINE = 96, SHARED = 64, HEAPS = 3, LONGEST = 3 << 20 };

struct block {
    unsigned char *p;
    size_t n;
    uint64_t seed;
    int heap; /* -1: malloc's */
};

struct worker {
    pthread_t thread;
    uint64_t random;
    unsigned number;
    struct block mine[MINE];
    struct block handed[8];
};

static struct worker workers[THREADS];
static struct block shared[SHARED];
static pthread_mutex_t shared_lock[SHARED];
static pthread_rwlock_t world = PTHREAD_RWLOCK_INITIALIZER; /* held for writing: no other thread allocates */
static pthread_barrier_t meeting;
static hak_heap_t *heaps[HEAPS], *ended;
static double until;
static unsigned threads;
static bool hardened, with_heaps, over;
static _Thread_local bool is_child;
static _Atomic uint64_t mistakes;
static char *mapping;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint64_t next(struct worker *w)
{
    w->random ^= w->random << 13, w->random ^= w->random >> 7, w->random ^= w->random << 17;
    return w->random * 0x2545f4914f6cdd1dull >> 11;
}

static void wrong(const char *what, const void *p)
{
    fprintf(stderr, "model: %s at %p%s\n", what, p, is_child ? " (in a child)" : "");
    abort();
}

static void expect(bool holds, const char *what, const void *p)
{
    if (!holds)
        wrong(what, p);
}

/* Several mistakes that count as one each. */
static void mistaken(unsigned n) { mistakes += n; }

/* --- contents ------------------------------------------------------------------------------------------------------------- */

static unsigned char byte_at(uint64_t seed, size_t i) { return (unsigned char)((seed + i) * 0x9e3779b97f4a7c15ull >> 56); }

/* Of long blocks a byte in each 509. */
static size_t step_of(size_t n, size_t i) { return n > 16384 && i >= 64 && i + 600 < n ? 509 : 1; }

static void fill(struct block *b, size_t from)
{
    for (size_t i = 0; i < b->n; i += step_of(b->n, i))
        if (i >= from)
            b->p[i] = byte_at(b->seed, i);
}

static void verify(const struct block *b, size_t n)
{
    for (size_t i = 0; i < n; i += step_of(b->n, i))
        expect(b->p[i] == byte_at(b->seed, i), "a block has changed", b->p);
}

static size_t a_size(struct worker *w)
{
    uint64_t kind = next(w) % 100;
    size_t most = kind < 70 ? 512 : kind < 90 ? 8192 : kind < 97 ? 60000 : kind < 99 ? 900000 : LONGEST;
    return next(w) % most + 1;
}

/* --- right calls ------------------------------------------------------------------------------------------------------------- */

static void take(struct worker *w, struct block *b)
{
    b->n = a_size(w);
    b->seed = next(w);
    b->heap = with_heaps && next(w) % 3 == 0 ? (int)(next(w) % HEAPS) : -1;
    unsigned way = next(w) % 8;
    size_t align = (size_t)16 << next(w) % 6;
    if (b->heap >= 0)
        b->p = way == 0 ? hak_heap_calloc(heaps[b->heap], 1, b->n) : hak_heap_malloc(heaps[b->heap], b->n);
    else if (way == 0)
        b->p = calloc(1, b->n);
    else if (way == 1)
        b->p = memalign(align, b->n);
    else
        b->p = malloc(b->n);
    if (b->p == NULL)
        wrong("no memory", NULL);
    if (way == 0)
        for (size_t i = 0; i < b->n; i += step_of(b->n, i))
            expect(b->p[i] == 0, "calloc's block is not zero", b->p);
    fill(b, 0);
}

static void release(struct worker *w, struct block *b)
{
    verify(b, b->n);
    if (b->heap >= 0 && next(w) % 2 == 0)
        hak_heap_free(heaps[b->heap], b->p);
    else
        free(b->p);
    b->p = NULL;
}

static void resize(struct worker *w, struct block *b)
{
    size_t n = a_size(w), kept = n < b->n ? n : b->n;
    unsigned char *p = realloc(b->p, n);
    if (p == NULL)
        wrong("no memory", NULL);
    b->p = p;
    verify(b, step_of(b->n, 64) == step_of(n, 64) ? kept : 0);
    b->n = n;
    fill(b, 0);
}

/* --- mistakes ------------------------------------------------------------------------------------------------------------------ */

static void *not_a_block(struct worker *w, const struct block *b)
{
    static char data[64];
    char local[64];
    char *outside[] = { data + 16, local + 16, mapping + 16, mapping + 5000, (char *)1, (char *)0x8000000000001000, (char *)-16 };
    if (b->n >= 32 && next(w) % 4 != 0)
        return b->p + 1 + next(w) % (b->n - 1);
    return outside[next(w) % 7];
}

static void mistake_pointer(struct worker *w, struct block *b)
{
    void *p = not_a_block(w, b);
    errno = 0;
    switch (next(w) % 6) {
    case 0: expect(realloc(p, 1 + next(w) % 5000) == NULL && errno == EINVAL, "realloc of no block", p); break;
    case 1: expect(malloc_usable_size(p) == 0, "usable size of no block", p); break;
    case 2: hak_free_sized(p, 64); break;
    case 3: hak_free_aligned_sized(p, 64, 64); break;
    case 4: expect(hak_aligned_realloc(p, 256, 300) == NULL && errno == EINVAL, "aligned_realloc of no block", p); break;
    default: free(p);
    }
    verify(b, b->n);
    mistaken(1);
}

/* The block is gone afterwards, and its size was wrong. */
static void mistake_size(struct worker *w, struct block *b)
{
    verify(b, b->n);
    if (next(w) % 2 == 0)
        hak_free_sized(b->p, b->n * 3 + 8 * LONGEST);
    else
        hak_free_aligned_sized(b->p, 16, b->n * 3 + 8 * LONGEST);
    b->p = NULL;
    mistaken(1);
}

/* Nobody else allocates. */
static void mistake_again(struct worker *w, struct block *b)
{
    void *p = b->p;
    release(w, b);
    switch (next(w) % 5) {
    case 0: errno = 0, expect(realloc(p, 100) == NULL && errno == EINVAL, "realloc of a freed block", p); break;
    case 1: free(p), free(p), mistaken(1); break;
    case 2: hak_free_sized(p, b->n); break;
    default: free(p);
    }
    mistaken(1);
}

static int visit_span(const struct hak_heap_span *span, void *argument) { return (void)span, (void)argument, 0; }
static int visit(void *block, size_t size, void *argument) { return (void)block, (void)size, (void)argument, 0; }

/* No heap at all, at any address: every function says so. */
static void mistake_handle(hak_heap_t *none, struct block *b)
{
    struct hak_heap_figures figures;
    hak_heap_destroy(none);
    hak_heap_reset(none);
    hak_heap_set_limit(none, 1);
    hak_heap_free(none, b->p);
    hak_heap_set_default_of_new_threads(none);
    hak_heap_set_default(none);
    expect(hak_heap_get_default() == NULL, "what is no heap became the default", none);
    expect(hak_heap_malloc(none, 10) == NULL && hak_heap_calloc(none, 1, 900000) == NULL, "a block of no heap", none);
    expect(hak_heap_aligned_alloc(none, 64, 100) == NULL && hak_heap_realloc(none, b->p, 20) == NULL, "a block of no heap", none);
    expect(hak_heap_merge_into_default(none) == EINVAL && hak_heap_set_name(none, "") == EINVAL, "no heap was merged", none);
    expect(hak_heap_stats(none, &figures, sizeof figures) == EINVAL && hak_heap_next(none) == NULL, "no heap has figures", none);
    expect(hak_heap_visit(none, visit, NULL) == EINVAL && hak_heap_at_end(none, free, NULL) == EINVAL, "no heap has blocks", none);
    expect(hak_heap_visit_spans(none, visit_span, NULL) == EINVAL, "no heap has spans", none);
    expect(hak_heap_at_end_cancel(none, free, NULL) == EINVAL, "no heap has cleanups", none);
    expect(hak_heap_data(none) == NULL && hak_heap_set_data(none, &figures) == NULL, "no heap has data", none);
    mistaken(20);
}

static void mistake_heap(struct worker *w, struct block *b)
{
    switch (next(w) % 5) {
    case 4: mistake_handle(not_a_block(w, b), b); return;
    case 0: hak_heap_free(heaps[b->heap < 0 ? 0 : (b->heap + 1) % HEAPS], b->p); break;
    case 1: errno = 0, expect(hak_heap_malloc(ended, 10) == NULL && errno == EINVAL, "a block of an ended heap", ended); break;
    case 2: hak_heap_destroy(ended); break;
    default:
        errno = 0;
        expect(hak_heap_realloc(heaps[b->heap < 0 ? 0 : (b->heap + 1) % HEAPS], b->p, 10) == NULL && errno == EINVAL,
               "another heap's", b->p);
    }
    verify(b, b->n);
    mistaken(1);
}

/* Past the end; then the block is freed, resized or only looked at. */
static void mistake_overflow(struct worker *w, struct block *b)
{
    if (b->n > 60000 || getenv("HAKMEM_SAMPLE_GUARDS") != NULL) /* there may be a guard page */
        return;
    b->p[b->n] ^= 0x5a;
    b->p[b->n] += b->p[b->n] == 0;
    mistaken(1);
    switch (next(w) % 3) {
    case 0: release(w, b); break;
    case 1: resize(w, b); break;
    default: expect(malloc_usable_size(b->p) >= b->n, "the usable size", b->p);
    }
}

static void mistake(struct worker *w, struct block *b)
{
    unsigned kind = next(w) % 8;
    if (kind < 3)
        mistake_pointer(w, b);
    else if (kind == 3)
        mistake_size(w, b);
    else if (kind == 4 && with_heaps)
        mistake_heap(w, b);
    else if (kind == 5 && hardened)
        mistake_overflow(w, b);
}

/* --- threads ------------------------------------------------------------------------------------------------------------------------ */

static void work(struct worker *w, struct block *b)
{
    if (b->p == NULL)
        take(w, b);
    else if (next(w) % 24 == 0)
        mistake(w, b);
    else if (next(w) % 3 == 0)
        resize(w, b);
    else if (next(w) % 3 == 0)
        verify(b, b->n);
    else
        release(w, b);
}

static void alone(struct worker *w)
{
    struct block *b = &w->mine[next(w) % MINE];
    if (b->p == NULL)
        take(w, b);
    mistake_again(w, b);
}

/* Blocks of another thread's, freed twice or more by this one, or freed by this one and again by their owner. */
static void others(struct worker *w)
{
    for (unsigned i = 0; i < 8; i++)
        take(w, &w->handed[i]);
    pthread_barrier_wait(&meeting);
    struct worker *other = &workers[(w->number + 1) % threads];
    for (unsigned i = 0; i < 8; i++) {
        free(other->handed[i].p);
        if (i % 2 == 0)
            free(other->handed[i].p), mistaken(1);
    }
    pthread_barrier_wait(&meeting);
    for (unsigned i = 0; i < 8; i++)
        free(w->handed[i].p), mistaken(1);
    pthread_barrier_wait(&meeting);
}

static void child(struct worker *w)
{
    is_child = true;
    for (unsigned i = 0; i < MINE; i++)
        if (w->mine[i].p != NULL)
            verify(&w->mine[i], w->mine[i].n);
    for (unsigned i = 0; i < 2000; i++) {
        work(w, &w->mine[next(w) % MINE]);
        if (i % 20 == 0)
            alone(w);
    }
    for (unsigned i = 0; i < MINE; i++)
        if (w->mine[i].p != NULL)
            release(w, &w->mine[i]);
    expect(hak_check_heap(), "the heap is broken", NULL);
    _exit(0);
}

static void fork_once(struct worker *w)
{
    int status;
    pid_t pid = getenv("HAK_TEST_EMULATOR") == NULL ? fork() : -1; /* not every emulator tells the library of its children */
    if (pid < 0)
        return;
    if (pid == 0)
        child(w);
    expect(waitpid(pid, &status, 0) == pid && status == 0, "a child has failed", NULL);
}

static void *run(void *argument)
{
    struct worker *w = argument;
    for (unsigned round = 0; round < 1000; round++) {
        if (w->number == 0)
            expect(now() < until + 300, "it hangs", NULL);
        for (unsigned i = 0; i < 400; i++) {
            uint64_t what = next(w) % 100;
            bool last = what == 0;
            last ? pthread_rwlock_wrlock(&world) : pthread_rwlock_rdlock(&world);
            unsigned slot = (unsigned)(next(w) % SHARED);
            if (last) {
                alone(w);
            } else if (what < 30) {
                pthread_mutex_lock(&shared_lock[slot]);
                work(w, &shared[slot]);
                pthread_mutex_unlock(&shared_lock[slot]);
            } else {
                work(w, &w->mine[next(w) % MINE]);
            }
            pthread_rwlock_unlock(&world);
        }
        if (round % 8 == w->number % 8)
            fork_once(w);
        if (round % 4 == 0)
            others(w);
        pthread_barrier_wait(&meeting);
        if (w->number == 0) /* one clock for all */
            over = now() > until;
        pthread_barrier_wait(&meeting);
        if (over)
            break;
    }
    return NULL;
}

static uint64_t counted(void)
{
    static struct hak_stats stats;
    expect(hak_stats_snapshot(&stats, sizeof stats) == 0, "no statistics", NULL);
    return stats.misuse_invalid + stats.misuse_double_frees + stats.misuse_sizes + stats.misuse_written;
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    threads = (unsigned)atoi(argv[2]);
    with_heaps = argc > 4 && strcmp(argv[4], "heaps") == 0;
    hardened = getenv("HAKMEM_HARDEN") != NULL;
    until = now() + atof(argv[1]);
    mapping = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (unsigned i = 0; with_heaps && i < HEAPS; i++)
        heaps[i] = hak_heap_new(NULL);
    ended = with_heaps ? hak_heap_new(NULL) : NULL;
    hak_heap_destroy(ended);
    for (unsigned i = 0; i < SHARED; i++)
        pthread_mutex_init(&shared_lock[i], NULL);
    pthread_barrier_init(&meeting, NULL, threads);
    for (unsigned i = 0; i < threads; i++) {
        workers[i].number = i;
        workers[i].random = strtoull(argv[3], NULL, 0) * 0x9e3779b97f4a7c15ull + i + 1;
        if (pthread_create(&workers[i].thread, NULL, run, &workers[i]) != 0)
            return 3;
    }
    for (unsigned i = 0; i < threads; i++)
        pthread_join(workers[i].thread, NULL);
    for (unsigned i = 0; i < threads; i++)
        for (unsigned k = 0; k < MINE; k++)
            if (workers[i].mine[k].p != NULL)
                release(&workers[0], &workers[i].mine[k]);
    for (unsigned i = 0; i < SHARED; i++)
        if (shared[i].p != NULL)
            release(&workers[0], &shared[i]);
    expect(hak_check_heap(), "the heap is broken", NULL);
    printf("fine: %lu mistakes, %lu counted\n", (unsigned long)mistakes, (unsigned long)counted());
    return 0;
}
