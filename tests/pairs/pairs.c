/* Features of the library in combination, under threads, with a model beside them. Built and run by test_pairs.py, which switches
 * the features that are options on by the environment and names the others here:
 *
 *   pairs SECONDS SEED [FEATURE...]
 *
 *   heap        each thread has a heap of its own, resets and destroys it; one more is everybody's
 *   default     ... which is the thread's default heap at times
 *   merge       the common heap is merged into malloc's while its blocks are freed, and another takes its place
 *   region      each thread has a heap in memory of the program's
 *   bounded     heaps have limits
 *   protect     rights and advice of blocks' pages change, and the blocks are freed like that
 *   fork        threads fork; the child goes on with the thread's blocks, and starts another thread
 *   handler     a signal's handler forks, in whatever it has interrupted; the child goes on from there
 *   restart     the same, with SA_RESTART
 *   ends        threads end, and others go on with their blocks
 *   trim        malloc_trim and hak_collect
 *   load        a library is opened and closed; what the dynamic linker calls back allocates
 *   profile     the heap profiler starts and stops, with large and small intervals
 *   space, data RLIMIT_AS or RLIMIT_DATA leaves little room; at the end blocks of another size can have what was free
 *   cut         large blocks are cut off in place, and what is cut goes back
 *   huge        a huge block of each thread's changes its size all the time
 *   move        threads ask which blocks are worth moving, and move them
 *
 * The model: each block's size, contents, alignment and heap; of a thread's own heap also how many blocks it has, and their bytes. At the
 * end everything is freed, and memory is where it was. The first thing that is wrong is said, and the status is 1. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <hakmem_region.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 3, SLOTS = 240, BOXES = 16, PAGE = 65536, CHILDREN = 3, CHILD_STEPS = 40, HANG_SECONDS = 20 };
enum { LIVE_MOST = 12 << 20, REGION = 8 << 20, ROOM = 160 << 20, LIMIT = 24 << 20, LEFT_MOST = 40 << 20 };

static const char *const names[] = { "heap", "default", "merge", "region", "bounded", "protect", "fork", "handler", "restart", "ends",
                                     "trim", "load", "profile", "space", "data", "cut", "huge", "move" };
enum { HEAP, DEFAULT, MERGE, IN_REGION, BOUNDED, PROTECT, FORK, HANDLER, RESTART, ENDS, TRIM, LOAD, PROFILE, SPACE, DATA, CUT, HUGE_BLOCKS, MOVE, FEATURES };
static bool on[FEATURES];

struct block {
    unsigned char *p;
    size_t size, align;   /* as asked for; 1: not */
    size_t usable;
    uint32_t stamp;
    hak_heap_t *heap;   /* NULL: malloc's */
};
#define COMMON ((hak_heap_t *)-1)   /* the common heap's, or malloc's since a merge */

struct worker {
    pthread_t thread;
    uint64_t random;
    struct block slots[SLOTS];
    size_t live;
    hak_heap_t *heap, *region;
    void *memory;       /* the region's */
    size_t bytes;       /* of blocks in `heap`, by usable size */
    unsigned count;
    struct child { pid_t pid; double since; } children[CHILDREN];
    volatile sig_atomic_t in_libc;   /* in a call of the C library that a handler must not fork in: it has locks of its own */
};

static struct worker workers[THREADS];
static _Thread_local struct worker *me;
static _Atomic(struct block *) boxes[BOXES];
static atomic_bool stop;
static volatile sig_atomic_t is_child;
static hak_heap_t *common;
static atomic_int common_users;   /* calls with the common heap or its blocks, frees aside; -1: a merge */
static _Atomic(struct worker *) merging;
static bool is_hardened;
static const char *plugin;

/* --- the end ------------------------------------------------------------------------------------------------------------ */

static _Noreturn void wrong(const char *what, const void *p, size_t n)
{
    char text[200];
    int length = snprintf(text, sizeof text, "wrong: %s: %p, %zu%s\n", what, p, n, is_child ? ", in a child" : "");
    if (write(2, text, (size_t)length) < 0)
        _exit(3);
    _exit(1);
}

static void expect(bool holds, const char *what, const void *p, size_t n)
{
    if (!holds)
        wrong(what, p, n);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static bool is_limited(void) { return on[SPACE] || on[DATA] || getenv("HAKMEM_LIMIT") != NULL; }

/* A child needs no turns, and nobody would give it one. */
static void common_enter(void)
{
    for (int users = 0; !is_child && !atomic_compare_exchange_weak(&common_users, &users, users + 1);) {
        sched_yield();
        users = users < 0 ? 0 : users;
    }
}

static void common_leave(void)
{
    if (!is_child)
        atomic_fetch_sub(&common_users, 1);
}

static void common_enter_alone(void)
{
    for (int none = 0; !is_child && !atomic_compare_exchange_weak(&common_users, &none, -1); none = 0)
        sched_yield();
    atomic_store(&merging, me);
}

static void common_leave_alone(void)
{
    atomic_store(&merging, NULL);
    if (!is_child)
        atomic_store(&common_users, 0);
}

/* In a child that was forked in the middle of a merge of a thread that it does not have. */
static bool common_is_lost(void)
{
    struct worker *by = atomic_load(&merging);
    return common == NULL || (is_child && by != NULL && by != me);
}

/* --- blocks --------------------------------------------------------------------------------------------------------------- */

static uint64_t draw(void)
{
    uint64_t *x = &me->random;
    *x ^= *x << 13, *x ^= *x >> 7, *x ^= *x << 17;
    return *x;
}

static size_t draw_size(void)
{
    unsigned kind = draw() % 100;
    size_t most = kind < 70 ? 1100 : kind < 90 ? 57000 : kind < 98 ? 1100000 : 5000000;
    return draw() % most + (kind % 7 != 0);
}

static uint32_t word(const struct block *b, size_t at) { return b->stamp ^ (uint32_t)(at * 2654435761u); }

/* The ends of the block and of its pages: where something else would lie. */
static size_t next_place(size_t at, size_t size)
{
    if (at < 16 || size - at <= 24)
        return at + 4;
    size_t next = (at | 2047) + 1;
    return next + 24 <= size ? next : (size - 20) & ~(size_t)3;
}

static void fill(const struct block *b)
{
    for (size_t at = 0; at + 4 <= b->size; at = next_place(at, b->size))
        memcpy(b->p + at, &(uint32_t){ word(b, at) }, 4);
    for (size_t at = b->size & ~(size_t)3; at < b->size; at++)
        b->p[at] = (unsigned char)b->stamp;
}

static void check_to(const struct block *b, size_t size, const char *what)
{
    uint32_t found;
    for (size_t at = 0; at + 4 <= size; at = next_place(at, b->size)) {
        memcpy(&found, b->p + at, 4);
        expect(found == word(b, at), what, b->p, at);
    }
    for (size_t at = b->size & ~(size_t)3; at < b->size && size == b->size; at++)
        expect(b->p[at] == (unsigned char)b->stamp, what, b->p, at);
}

static void check_heap_of(const struct block *b, const char *why)
{
    if (b->heap != COMMON)
        expect(hak_heap_of(b->p) == b->heap, why, b->p, b->size);
}

/* The block has come to the slot, or leaves it. */
static void count(const struct block *b, int sign)
{
    me->live += (size_t)sign * b->size;
    if (b->heap == NULL || b->heap != me->heap)
        return;
    me->count += (unsigned)sign;
    me->bytes += (size_t)sign * b->usable;
}

static void take_in(struct block *b, void *p, size_t align, size_t size, hak_heap_t *heap, const char *why)
{
    *b = (struct block){ p, size, align, malloc_usable_size(p), (uint32_t)draw(), heap };
    expect(b->usable >= size, "usable size", p, size);
    check_heap_of(b, why);
    fill(b);
    count(b, 1);
}

static bool may_fail(const hak_heap_t *heap)
{
    return is_limited() || (heap != NULL && (heap == me->region || on[BOUNDED] || (heap == COMMON && common_is_lost())));
}

static hak_heap_t *draw_heap(void)
{
    unsigned kind = draw() % 4;
    return kind == 0 ? me->heap : kind == 1 && !common_is_lost() ? COMMON : kind == 2 ? me->region : NULL;
}

static void *request_common(size_t size)
{
    common_enter();
    void *p = NULL;
    errno = ENOMEM;
    if (!common_is_lost())
        p = hak_heap_malloc(common, size);
    common_leave();
    return p;
}

static void *request(hak_heap_t *heap, size_t size, size_t *align)
{
    unsigned kind = draw() % 8;
    *align = kind == 0 ? (size_t)16 << draw() % 9 : 1;
    if (heap == COMMON)
        return *align = 1, request_common(size);
    if (heap == me->heap && heap != NULL && on[DEFAULT] && draw() % 2 == 0) {
        hak_heap_t *before = hak_heap_set_default(heap);
        void *p = kind == 0 ? aligned_alloc(*align, size) : kind == 1 ? calloc(1, size) : malloc(size);
        hak_heap_set_default(before);
        return p;
    }
    if (kind == 0)
        return heap == NULL ? aligned_alloc(*align, size) : hak_heap_aligned_alloc(heap, *align, size);
    if (kind == 1) {
        unsigned char *p = heap == NULL ? calloc(1, size) : hak_heap_calloc(heap, 1, size);
        for (size_t at = 0; p != NULL && at < size; at = next_place(at, size))
            expect(p[at] == 0, "calloc", p, at);
        return p;
    }
    return heap == NULL ? malloc(size) : hak_heap_malloc(heap, size);
}

static void allocate(struct block *b)
{
    size_t size = draw_size(), align;
    hak_heap_t *heap = draw_heap();
    if (me->live + size > LIVE_MOST || (heap == me->region && heap != NULL && size > 100000))
        return;
    void *p = request(heap, size, &align);
    if (p == NULL) {
        expect(errno == ENOMEM && may_fail(heap), "no memory", p, size);
        return;
    }
    expect((uintptr_t)p % align == 0, "alignment", p, align);
    take_in(b, p, align, size, heap, "heap of a new block");
}

static void release(struct block *b)
{
    unsigned char *p = b->p;
    check_to(b, b->size, "contents at free");
    check_heap_of(b, "heap of a block that is freed");
    count(b, -1);
    b->p = NULL;
    if (draw() % 2 == 0 && b->align == 1)
        hak_free_sized(p, b->size);
    else if (draw() % 2 == 0 && b->align != 1)
        hak_free_aligned_sized(p, b->align, b->size);
    else
        free(p);
}

static void resize(struct block *b, size_t size)
{
    if (me->live + size > LIVE_MOST || (b->heap == me->region && b->heap != NULL && size > 100000))
        return;
    check_to(b, b->size, "contents before realloc");
    count(b, -1);
    if (b->heap == COMMON)
        common_enter();
    void *p = realloc(b->p, size);
    if (b->heap == COMMON)
        common_leave();
    if (p == NULL) {
        expect(errno == ENOMEM && may_fail(b->heap), "no memory in realloc", b->p, size);
        count(b, 1);
        return;
    }
    struct block before = { p, b->size, 1, 0, b->stamp, b->heap };
    check_to(&before, b->size < size ? b->size : size, "contents after realloc");
    take_in(b, p, 1, size, b->heap, "heap after realloc");
}

/* Blocks of malloc's and of the common heap go to whoever comes next. */
static void exchange(struct block *b)
{
    if (b->heap == me->heap && b->heap != NULL)
        return;
    if (b->heap == me->region && b->heap != NULL)
        return;
    struct block *sent = malloc(sizeof *sent);
    if (sent == NULL)
        return;
    count(b, -1);
    *sent = *b;
    b->p = NULL;
    struct block *got = atomic_exchange(&boxes[draw() % BOXES], sent);
    if (got != NULL) {
        *b = *got;
        count(b, 1);
        check_to(b, b->size, "contents when handed over");
        free(got);
    }
}

/* --- what features do ------------------------------------------------------------------------------------------------------ */

static void forget_blocks(hak_heap_t *heap)
{
    for (unsigned i = 0; i < SLOTS; i++)
        if (me->slots[i].p != NULL && me->slots[i].heap == heap) {
            check_to(&me->slots[i], me->slots[i].size, "contents in a heap");
            count(&me->slots[i], -1);
            me->slots[i].p = NULL;
        }
}

static hak_heap_t *heap_new(void)
{
    struct hak_heap_options options = { .size = sizeof options, .name = "pairs", .limit = on[BOUNDED] ? LIMIT : 0 };
    return hak_heap_new(&options);
}

static void check_figures(void)
{
    struct hak_heap_figures figures;
    expect(hak_heap_stats(me->heap, &figures, sizeof figures) == 0, "hak_heap_stats", me->heap, 0);
    expect(figures.live_blocks == me->count, "live blocks of a heap", me->heap, (size_t)figures.live_blocks - me->count);
    expect(is_hardened ? figures.live_bytes >= me->bytes : figures.live_bytes == me->bytes, "live bytes of a heap", me->heap,
           (size_t)figures.live_bytes - me->bytes);
    expect(figures.used_bytes < (size_t)1 << 40, "used bytes of a heap", me->heap, (size_t)figures.used_bytes);
}

static void use_heap(void)
{
    if (me->heap == NULL) {
        me->heap = heap_new();
        return;
    }
    check_figures();
    if (draw() % 3 != 0)
        return;
    forget_blocks(me->heap);
    if (draw() % 2 == 0) {
        hak_heap_reset(me->heap);
        check_figures();
    } else {
        hak_heap_destroy(me->heap);
        me->heap = heap_new();
    }
}

static void use_region(void)
{
    if (me->memory == NULL) {
        me->memory = mmap(NULL, REGION, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (me->memory == MAP_FAILED)
            me->memory = NULL;
    } else if (me->region != NULL) {
        forget_blocks(me->region);
        hak_heap_destroy(me->region);
        me->region = NULL;
    }
    struct hak_heap_options options = { .size = sizeof options, .region = me->memory, .region_size = REGION };
    if (me->memory != NULL)
        me->region = hak_heap_new(&options);
}

static void merge(void)
{
    common_enter_alone();
    if (common != NULL && hak_heap_merge_into_default(common) == 0 && draw() % 2 == 0) {
        hak_heap_destroy(common);
        common = heap_new();
    }
    common_leave_alone();
}

/* A block of whole pages loses rights or gets advice, and is freed so, or has its rights back and goes on. */
static void protect(void)
{
    static const int advices[] = { MADV_DONTFORK, 18 /* MADV_WIPEONFORK */, 102 /* MADV_GUARD_INSTALL */ };
    size_t size = (draw() % 4 == 0 ? 20 : 1) * PAGE;
    char *p = aligned_alloc(PAGE, size);
    if (p == NULL)
        return;
    memset(p, 1, size);
    unsigned kind = draw() % 5;
    if (kind < 2)
        mprotect(p, size, kind == 0 ? PROT_NONE : PROT_READ);
    else
        madvise(p, size, advices[kind - 2]);
    expect(malloc_usable_size(p) >= size, "usable size of a protected block", p, size);
    if (kind == 1 && draw() % 2 == 0) {
        char *q = realloc(p, 2 * size);
        expect(q == NULL || q[size - 1] == 1, "contents of a block that was read-only", q, size);
        p = q != NULL ? q : p;
    }
    free(p);
}

static int called_back(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)info, (void)size;
    void *p = realloc(malloc(draw() % 3000), draw() % 5000 + 1);
    expect(malloc_usable_size(p) != 0 || p == NULL, "usable size in a callback", p, 0);
    free(p);
    return *(bool *)argument;
}

static void resize_huge(void)
{
    struct block *b = &me->slots[0];
    size_t size = 1100000 + draw() % 6000000;
    if (b->p != NULL) {
        resize(b, size);
        return;
    }
    void *p = malloc(size);
    expect(p != NULL || is_limited(), "no memory for a huge block", NULL, size);
    if (p != NULL)
        take_in(b, p, 1, size, NULL, "heap of a huge block");
}

static void load(void)
{
    bool enough = draw() % 2 == 0;
    me->in_libc = 1;
    void *library = dlopen(plugin, RTLD_NOW);
    expect(library != NULL || is_limited(), "dlopen", NULL, 0);
    dl_iterate_phdr(called_back, &enough);
    if (library != NULL)
        dlclose(library);
    me->in_libc = 0;
}

static void profile(void)
{
    if (draw() % 3 == 0)
        hak_profile_stop();
    else
        hak_profile_start(draw() % 2 == 0 ? 1 : 20000);
}

/* Each thread asks about the blocks that it has; of a heap of its own the copy stays there. */
static void move(void)
{
    for (unsigned i = 0; i < SLOTS; i++) {
        struct block *b = &me->slots[i];
        if (b->p == NULL || b->heap == COMMON || !hak_is_sparse(b->p, 60 + draw() % 50))
            continue;
        expect(!is_hardened && b->usable <= 57344, "what is worth moving", b->p, b->usable);
        check_to(b, b->size, "contents before a move");
        void *p = b->heap != NULL ? hak_heap_malloc(b->heap, b->size) : malloc(b->size);
        if (p == NULL) {
            expect(errno == ENOMEM && may_fail(b->heap), "no memory for a move", b->p, b->size);
            continue;
        }
        memcpy(p, b->p, b->size);
        count(b, -1);
        free(b->p);
        b->p = p, b->align = 1, b->usable = malloc_usable_size(p);
        count(b, 1);
        check_to(b, b->size, "contents after a move");
        check_heap_of(b, "heap after a move");
    }
}

/* --- forks -------------------------------------------------------------------------------------------------------------- */

static void step(void);

static void *in_child(void *argument)
{
    static struct worker another;
    me = &another;
    me->random = (uint64_t)(uintptr_t)argument;
    for (unsigned i = 0; i < CHILD_STEPS; i++)
        step();
    return NULL;
}

/* The child has the blocks of the thread that has forked. */
static _Noreturn void live_in_child(void)
{
    pthread_t thread;
    for (unsigned i = 0; i < CHILD_STEPS; i++)
        step();
    if (draw() % 2 == 0 && pthread_create(&thread, NULL, in_child, (void *)(uintptr_t)draw()) == 0)
        pthread_join(thread, NULL);
    if (draw() % 2 == 0)
        malloc_trim(0);
    for (unsigned i = 0; i < SLOTS; i++)
        if (me->slots[i].p != NULL)
            release(&me->slots[i]);
    _exit(0);
}

/* Whether the child has ended. It is the thread's that has forked; a handler may fork in here. */
static bool has_ended(struct child *child)
{
    int status = 0;
    if (child->pid == 0)
        return true;
    pid_t ended = waitpid(child->pid, &status, WNOHANG);
    if (is_child)
        return true;
    if (ended == 0 && now() - child->since > HANG_SECONDS)
        wrong("a child hangs", NULL, (size_t)child->pid);
    if (ended != 0) {
        expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a child's end", NULL, (size_t)status);
        child->pid = 0;
    }
    return ended != 0;
}

static void await(struct child *child)
{
    while (!has_ended(child))
        usleep(200);
}

static struct child *free_place(void)
{
    for (unsigned i = 0; i < CHILDREN; i++)
        if (me->children[i].pid == 0)
            return &me->children[i];
    return NULL;
}

static void fork_here(void)
{
    struct child *place = free_place();
    if (place == NULL)
        return;
    me->in_libc = 1;
    pid_t child = fork();
    if (child == 0) {
        is_child = 1;
        live_in_child();
    }
    if (child > 0)
        *place = (struct child){ child, now() };
    me->in_libc = 0;
}

/* Only what a handler may do: the child goes on with what it has interrupted, and finds out behind it. */
static void handle(int number)
{
    int saved = errno;
    (void)number;
    struct child *place = me != NULL && !me->in_libc ? free_place() : NULL;
    if (place != NULL && !is_child) {
        pid_t child = fork();
        if (child == 0)
            is_child = 1;
        else if (child > 0)
            *place = (struct child){ child, now() };
    }
    errno = saved;
}

static void reap(void)
{
    if (is_child)
        live_in_child();
    for (unsigned i = 0; i < CHILDREN; i++)
        has_ended(&me->children[i]);
}

/* --- threads ------------------------------------------------------------------------------------------------------------- */

static const struct { int feature; unsigned every; void (*act)(void); bool in_child; } acts[] = {
    { HEAP, 60, use_heap, true }, { IN_REGION, 400, use_region, true }, { MERGE, 150, merge, false }, { PROTECT, 25, protect, true },
    { FORK, 40, fork_here, false }, { TRIM, 200, (void (*)(void))hak_collect, true }, { LOAD, 40, load, false },
    { PROFILE, 120, profile, true }, { HUGE_BLOCKS, 4, resize_huge, true }, { MOVE, 20, move, true },
};

/* Sizes stay what they are. A block of the common heap may be merged just now, so only a free may go on. */
static void look_around(void)
{
    for (unsigned i = 0; i < 8; i++) {
        struct block *b = &me->slots[draw() % SLOTS];
        if (b->p != NULL && b->heap != COMMON)
            expect(malloc_usable_size(b->p) == b->usable, "usable size later", b->p, b->usable);
    }
}

static void step(void)
{
    struct block *b = &me->slots[draw() % SLOTS];
    for (unsigned i = 0; i < sizeof acts / sizeof *acts; i++)
        if (on[acts[i].feature] && (!is_child || acts[i].in_child) && draw() % acts[i].every == 0)
            acts[i].act();
    unsigned kind = draw() % 10;
    look_around();
    if (b->p == NULL)
        allocate(b);
    else if (kind < 3)
        resize(b, draw_size() + 1);
    else if (kind < 5 && !is_child)
        exchange(b);
    else
        release(b);
}

static void *work(void *argument)
{
    me = argument;
    for (unsigned steps = 0; !atomic_load(&stop) && !(on[ENDS] && steps > 400); steps++) {
        step();
        if (on[FORK] || on[HANDLER] || on[RESTART])
            reap();
    }
    for (unsigned i = 0; i < CHILDREN; i++)
        await(&me->children[i]);
    if (is_child)
        live_in_child();
    return NULL;
}

/* Threads that have ended are followed by others, which take over their blocks. */
static void drive(double seconds)
{
    double end = now() + seconds;
    while (now() < end) {
        for (unsigned i = 0; i < THREADS; i++) {
            if (on[ENDS] && pthread_tryjoin_np(workers[i].thread, NULL) == 0)
                expect(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0, "pthread_create", NULL, 0);
            else if (on[HANDLER] || on[RESTART])
                pthread_kill(workers[i].thread, SIGUSR1);
        }
        usleep(3000);
    }
    atomic_store(&stop, true);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
}

static size_t resident(void)
{
    unsigned long total, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    expect(file != NULL && fscanf(file, "%lu %lu", &total, &pages) == 2, "statm", NULL, 0);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void free_everything(void)
{
    for (unsigned i = 0; i < THREADS; i++) {
        me = &workers[i];
        for (unsigned k = 0; k < SLOTS; k++)
            if (me->slots[k].p != NULL)
                release(&me->slots[k]);
        if (me->heap != NULL)
            check_figures(), hak_heap_destroy(me->heap);
        if (me->region != NULL)
            hak_heap_destroy(me->region);
        if (me->memory != NULL)
            munmap(me->memory, REGION);
    }
    for (unsigned i = 0; i < BOXES; i++) {
        struct block *got = atomic_load(&boxes[i]);
        if (got != NULL)
            check_to(got, got->size, "contents in a box"), free(got->p), free(got);
    }
    if (common != NULL)
        hak_heap_destroy(common);
}

/* --- limits and cuts -------------------------------------------------------------------------------------------------------- */

static void limit_room(int what)
{
    unsigned long pages = 0, data = 0, ignored;
    FILE *file = fopen("/proc/self/statm", "r");
    expect(file != NULL && fscanf(file, "%lu %lu %lu %lu %lu %lu", &pages, &ignored, &ignored, &ignored, &ignored, &data) == 6, "statm",
           NULL, 0);
    fclose(file);
    size_t had = (what == RLIMIT_AS ? pages : data) * (size_t)sysconf(_SC_PAGESIZE);
    setrlimit(what, &(struct rlimit){ had + ROOM, RLIM_INFINITY });
}

/* All that the threads and the size before had is free: blocks of one size can have most of the room. */
static void refill(size_t size)
{
    void **first = NULL;
    size_t got = 0;
    for (void **p; (p = malloc(size)) != NULL; first = p, got += size)
        *p = first;
    while (first != NULL) {
        void *next = *first;
        free(first);
        first = next;
    }
    expect(got > ROOM / 2, "room after all is free", NULL, size);
}

static void cut(void)
{
    enum { LARGE = 300, LARGE_BEFORE = 900000, LARGE_AFTER = 100000, HUGE_ONES = 60, HUGE_BEFORE = 4000000, HUGE_AFTER = 1500000 };
    static char *blocks[LARGE + HUGE_ONES];
    size_t before = resident(), live = 0;
    for (unsigned i = 0; i < LARGE + HUGE_ONES; i++) {
        size_t size = i < LARGE ? LARGE_BEFORE : HUGE_BEFORE;
        blocks[i] = memset(malloc(size), 1, size);
    }
    for (unsigned i = 0; i < LARGE + HUGE_ONES; i++) {
        size_t size = i < LARGE ? LARGE_AFTER : HUGE_AFTER;
        expect((blocks[i] = realloc(blocks[i], size)) != NULL, "realloc that cuts", NULL, i);
        live += size;
    }
    for (double end = now() + 5; now() < end; usleep(20000))
        for (unsigned i = 0; i < 50000; i++)
            free(malloc(i % 7 * 20 + 16));
    size_t held = resident() - before;
    for (unsigned i = 0; i < LARGE + HUGE_ONES; i++)
        free(blocks[i]);
    expect(held < 2 * live, "resident after cuts", NULL, held);
}

static bool on_background(void) { return getenv("HAKMEM_BACKGROUND") != NULL; }

static void begin(unsigned long seed)
{
    struct sigaction action = { .sa_handler = handle, .sa_flags = on[RESTART] ? SA_RESTART : 0 };
    sigaction(SIGUSR1, &action, NULL);
    if (on[HEAP])
        common = heap_new();
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i].random = seed * 0x9e3779b97f4a7c15ull + i + 1;
        expect(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0, "pthread_create", NULL, 0);
    }
}

int main(int argc, char **argv)
{
    for (int i = 3; i < argc; i++) {
        int known = 0;
        while (known < FEATURES && strcmp(names[known], argv[i]) != 0)
            known++;
        if (known == FEATURES)
            return fprintf(stderr, "no feature %s\n", argv[i]), 2;
        on[known] = true;
    }
    if (argc < 3)
        return 2;
    on[HEAP] |= on[DEFAULT] || on[MERGE] || on[BOUNDED];
    plugin = getenv("PAIRS_PLUGIN");
    is_hardened = getenv("HAKMEM_HARDEN") != NULL;
    struct worker main_worker = { .random = 1 };
    me = &main_worker;
    if (on[CUT])
        cut();
    size_t before = resident();
    if (on[SPACE] || on[DATA])
        limit_room(on[SPACE] ? RLIMIT_AS : RLIMIT_DATA);
    me = NULL;
    begin(strtoul(argv[2], NULL, 10));
    drive(atof(argv[1]));
    me = &main_worker;
    free_everything();
    me = &main_worker;
    hak_profile_stop();   /* which would have each block in a place of its own, whose record stays */
    if (is_limited())
        refill(100), refill(2097152), refill(100), refill(30000), refill(700);
    hak_collect();
    size_t after = resident();
    for (double end = now() + 5; on_background() && after >= before + LEFT_MOST && now() < end; after = resident())
        usleep(10000);   /* the library's thread is giving it back just now */
    expect(after < before + LEFT_MOST, "resident after all is free", NULL, after - before);
    expect(hak_check_heap() == 1, "hak_check_heap", NULL, 0);
    return 0;
}
