/* Heaps in the caller's memory by their public functions: every kind of request, free by handle and without, two processes with the
 * region at different addresses, threads, forks, callbacks, and the reports of misuse. */
#include <pthread.h>
#include <stdatomic.h>

#include "hakmem_region.h"
#include "support/check.h"
#include "support/memory.h"

enum { REGION_BYTES = 4 << 20, BLOCKS = 200, LINE = 250 };

static hak_heap_t *heap_in(void *region, size_t size, uint32_t flags)
{
    hak_heap_t *heap = hak_heap_new(&(struct hak_heap_options){
        .size = sizeof(struct hak_heap_options), .name = "region", .flags = flags, .region = region, .region_size = size });
    expect(heap != NULL);
    return heap;
}

static struct hak_heap_figures stats_of(hak_heap_t *heap)
{
    struct hak_heap_figures stats;
    expect_eq(hak_heap_stats(heap, &stats, sizeof stats), 0);
    return stats;
}

static void every_kind_of_request(void **state)
{
    static char memory[REGION_BYTES];
    (void)state;
    hak_heap_t *heap = heap_in(memory, sizeof memory, 0);
    for (size_t n = 1; n < 300000; n = n * 3 + 1) {
        unsigned char *dirty = hak_heap_malloc(heap, n);
        memset(dirty, 0xff, n);
        hak_heap_free(heap, dirty);
        unsigned char *p = hak_heap_calloc(heap, n, 1);
        expect(is_zero((char *)p, n));
        memset(p, 0xa5, n);
        p = hak_heap_realloc(heap, p, 2 * n + 3);
        expect(p[n - 1] == 0xa5 && p >= (unsigned char *)memory && p + n < (unsigned char *)memory + sizeof memory);
        expect_ptr(hak_heap_of(p), heap);
        p = hak_realloc(p, n / 2 + 1);
        expect_eq(p[n / 2], 0xa5);
        expect_ptr(hak_heap_of(p), heap);
        expect_op(hak_usable_size(p), >=, n / 2 + 1);
        hak_free(p);
        for (size_t align = 16; align <= (size_t)64 << 10; align *= 4) {
            void *q = hak_heap_aligned_alloc(heap, align, n);
            expect(q != NULL && (uintptr_t)q % align == 0);
            hak_free_sized(q, n);
        }
    }
    expect_eq(stats_of(heap).live_blocks, 0);
    expect(hak_realloc(hak_heap_malloc(heap, 100), 0) == NULL);
    void *p = hak_heap_malloc(heap, 0);
    expect(p != NULL && hak_heap_malloc(heap, 0) != p);
    hak_heap_reset(heap);
    expect_eq(stats_of(heap).live_blocks, 0);
    expect(stats_of(heap).name != NULL && strcmp(stats_of(heap).name, "region") == 0);
    hak_heap_destroy(heap);
    expect(hak_heap_of(p) == NULL);
}

/* Where five-level paging has addresses above those that a program gets without asking. */
static void a_region_above_the_usual_addresses(void **state)
{
    (void)state;
    void *far = (void *)((uintptr_t)1 << 50);
    char *memory = mmap(far, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect(memory != MAP_FAILED);
    if ((uintptr_t)memory >> 47 == 0)
        skip();
    hak_heap_t *heap = heap_in(memory, REGION_BYTES, 0);
    for (size_t n = 1; n < 300000; n = n * 3 + 1) {
        char *p = hak_heap_malloc(heap, n);
        memset(p, 0xa5, n);
        p = hak_realloc(p, 2 * n);
        expect(p != NULL && p[n - 1] == (char)0xa5 && (uintptr_t)p >> 47 != 0);
        expect_ptr(hak_heap_of(p), heap);
        hak_free(p);
    }
    expect_eq(stats_of(heap).live_blocks, 0);
    hak_heap_destroy(heap);
    munmap(memory, REGION_BYTES);
}

static int add_block(void *block, size_t size, void *sums)
{
    (void)block;
    return ((size_t *)sums)[0]++, ((size_t *)sums)[1] += size, 0;
}

static int add_span(const struct hak_heap_span *span, void *sums)
{
    expect(span->blocks != 0 && (char *)span->begin + span->reached <= (char *)span->end);
    return ((size_t *)sums)[0] += span->blocks, ((size_t *)sums)[1] += span->bytes, 0;
}

static void spans_hold_the_same_blocks(void **state)
{
    static char memory[REGION_BYTES];
    size_t by_block[2] = { 0 }, by_span[2] = { 0 };
    (void)state;
    hak_heap_t *heap = heap_in(memory, sizeof memory, 0);
    for (size_t i = 0; i < BLOCKS; i++) {
        void *p = hak_heap_malloc(heap, 1 + i * 7 % 3000);
        if (i % 2 == 0)
            hak_free(p);
    }
    expect(hak_heap_malloc(heap, 300000) != NULL);
    expect(hak_heap_visit(heap, add_block, by_block) == 0 && hak_heap_visit_spans(heap, add_span, by_span) == 0);
    expect_eq(by_block[0], BLOCKS / 2 + 1);
    expect(by_span[0] == by_block[0] && by_span[1] == by_block[1]);
    hak_heap_destroy(heap);
}

/* Its blocks would be the inside of another one to free. */
static void a_region_is_no_block_of_malloc(void **state)
{
    static const size_t sizes[] = { 100000, 900000, 5 << 20 };
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *p = hak_malloc(sizes[i]);
        for (size_t from = 0; from < 80000; from += 40000) {
            errno = 0;
            expect(hak_heap_new(&(struct hak_heap_options){ .size = sizeof(struct hak_heap_options), .region = p + from,
                                                            .region_size = sizes[i] - from }) == NULL);
            expect_eq(errno, EINVAL);
        }
        hak_free(p);
    }
}

static void a_full_region_is_no_memory(void **state)
{
    static char memory[64 << 10];
    (void)state;
    hak_heap_t *heap = heap_in(memory, sizeof memory, 0);
    errno = 0;
    expect(hak_heap_malloc(heap, sizeof memory) == NULL && errno == ENOMEM);
    errno = 0;
    expect(hak_heap_calloc(heap, SIZE_MAX / 2, 3) == NULL && errno == ENOMEM);
    char *p = hak_heap_aligned_alloc(heap, 64, 1000);
    errno = 0;
    expect(hak_heap_realloc(heap, p, PTRDIFF_MAX) == NULL && errno == ENOMEM);
    expect(hak_realloc(p, 1 << 20) == NULL && errno == ENOMEM);
    errno = 0;
    expect(hak_heap_aligned_alloc(heap, 48, 1) == NULL && errno == EINVAL);
    while (hak_heap_malloc(heap, 50) != NULL)
        continue;
    expect_ptr(hak_realloc(p, 400), p);
    expect_ptr(hak_heap_realloc(heap, p, 300), p);
    expect_ptr(hak_aligned_realloc(p, 64, 200), p);
    expect_ptr(hak_heap_aligned_realloc(heap, p, 64, 100), p);
    expect_op(stats_of(heap).live_bytes, >=, sizeof memory * 8 / 10);
    expect_eq(hak_heap_merge_into_default(heap), ENOTSUP);
    hak_heap_destroy(heap);
}

static int relieve(hak_heap_t *heap, size_t used, size_t limit, size_t wanted, void *argument)
{
    void **block = argument;
    expect(used <= limit && wanted == 3000);
    if (*block == NULL)
        return 0;
    hak_heap_free(heap, *block);
    *block = NULL;
    return 1;
}

static void the_callback_may_free(void **state)
{
    static char memory[64 << 10];
    static void *last;
    (void)state;
    hak_heap_t *heap = hak_heap_new(&(struct hak_heap_options){ .size = sizeof(struct hak_heap_options), .pressure = relieve,
        .argument = &last, .region = memory, .region_size = sizeof memory });
    void *p = NULL, *before = NULL;
    expect(heap != NULL);
    while ((p = hak_heap_malloc(heap, 3000)) != NULL)
        before = p;
    last = before;
    expect_ptr(hak_heap_malloc(heap, 3000), before);
    expect(last == NULL && hak_heap_malloc(heap, 3000) == NULL);
    hak_heap_destroy(heap);
}

struct pressed {
    unsigned calls;
    size_t used, limit, wanted;
};

static int note_pressure(hak_heap_t *heap, size_t used, size_t limit, size_t wanted, void *argument)
{
    struct pressed *pressed = argument;
    *pressed = (struct pressed){ pressed->calls + 1, used, limit, wanted };
    return heap == NULL;
}

static void note_process(size_t mapped, size_t limit, void *calls) { *(unsigned *)calls += mapped <= SIZE_MAX && limit <= SIZE_MAX; }

/* A full region is its own heap's affair: the limit is the heap's, or the bytes that the region has for blocks. */
static void a_full_region_calls_its_heap(void **state)
{
    static char memory[1 << 20];
    static const size_t limits[] = { 0, 200000, 8 << 20 };
    unsigned process = 0;
    (void)state;
    hak_set_pressure_callback(note_process, &process);
    for (unsigned i = 0; i < sizeof limits / sizeof *limits; i++) {
        struct pressed pressed = { 0, 0, 0, 0 };
        hak_heap_t *heap = hak_heap_new(&(struct hak_heap_options){ .size = sizeof(struct hak_heap_options), .limit = limits[i],
            .pressure = note_pressure, .argument = &pressed, .region = memory, .region_size = sizeof memory });
        while (hak_heap_malloc(heap, 3000) != NULL)
            ;
        expect_eq(pressed.calls, 1);
        expect_eq(pressed.wanted, 3000);
        expect_eq(pressed.used, stats_of(heap).used_bytes);
        expect_op(pressed.used + 3000, >, pressed.limit);
        expect(i == 1 ? pressed.limit == limits[1] : pressed.limit < sizeof memory && pressed.limit > sizeof memory * 9 / 10);
        expect_eq(stats_of(heap).limit, limits[i]);
        hak_heap_destroy(heap);
    }
    hak_set_pressure_callback(NULL, NULL);
    expect_eq(process, 0);
}

/* The library's own callback raises a limit, but not in vain: where it is the region that is full. */
static void a_limit_of_large_blocks_ends_with_the_region(void **state)
{
    static char memory[1 << 20];
    static const size_t limits[] = { 0, 200000, 8 << 20 };
    (void)state;
    for (unsigned i = 0; i < sizeof limits / sizeof *limits; i++) {
        hak_heap_t *heap = hak_heap_new(&(struct hak_heap_options){ .size = sizeof(struct hak_heap_options), .limit = limits[i],
            .pressure = hak_heap_limit_large, .argument = (void *)512, .region = memory, .region_size = sizeof memory });
        while (hak_heap_malloc(heap, 3000) != NULL)
            ;
        expect_eq(stats_of(heap).limit, limits[i]);
        size_t large = stats_of(heap).used_bytes;
        while (hak_heap_malloc(heap, 100) != NULL)
            ;
        expect_eq(errno, ENOMEM);
        struct hak_heap_figures full = stats_of(heap);
        expect_op(full.used_bytes, >, sizeof memory * 9 / 10);
        expect(i != 1 || large <= limits[i]);
        expect(i == 1 ? full.limit > limits[i] && full.limit < sizeof memory + (64 << 10) : full.limit == limits[i]);
        expect(hak_heap_malloc(heap, 100) == NULL && stats_of(heap).refused == full.refused + 1);
        expect_eq(stats_of(heap).limit, full.limit);
        hak_heap_destroy(heap);
    }
}

/* --- several processes ------------------------------------------------------------------------------------------------------ */

static int shared_file;

static void *map_shared(void)
{
    void *start = mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, shared_file, 0);
    expect(start != MAP_FAILED);
    return start;
}

/* What two processes tell one another, by offsets, in a block of the heap itself. */
struct exchanged {
    _Atomic size_t blocks[BLOCKS];
    _Atomic unsigned turns[2];
};

/* Puts blocks in places that are empty and frees those that the other has put there, both as fast as they can. */
static void exchange_blocks(char *start, hak_heap_t *heap, struct exchanged *exchanged, uint64_t seed)
{
    struct rng rng = { seed };
    for (unsigned turn = 0; turn < 30000; turn++) {
        _Atomic size_t *place = &exchanged->blocks[rng_below(&rng, BLOCKS)];
        size_t n = rng_below(&rng, 16) == 0 ? 20000 : 8 + rng_below(&rng, 500), *p = NULL;
        if (atomic_load(place) == 0 && (p = hak_heap_malloc(heap, n)) != NULL) {
            *p = n;
            memory_fill(p + 1, n - 8, n);
        }
        size_t was = atomic_exchange(place, p == NULL ? 0 : (size_t)((char *)p - start));
        if (was == 0)
            continue;
        p = (size_t *)(void *)(start + was);
        expect(memory_holds(p + 1, *p - 8, *p - 8, *p));
        if (turn % 2 == 0)
            hak_heap_free(heap, p);
        else
            hak_free(p);
    }
}

static void other_process(void *argument)
{
    const size_t *offset = argument;
    void *hole = map_shared();   /* so that the region lies elsewhere */
    char *start = map_shared();
    munmap(hole, REGION_BYTES);
    hak_heap_t *heap = hak_heap_attach(start, REGION_BYTES);
    expect_ptr(heap, start);
    exchange_blocks(start, heap, (struct exchanged *)(void *)(start + *offset), 2);
    hak_heap_detach(heap);
    munmap(start, REGION_BYTES);
}

static void two_processes_share_a_region(void **state)
{
    (void)state;
    shared_file = memfd_create("region", 0);
    expect_eq(ftruncate(shared_file, REGION_BYTES), 0);
    char *start = map_shared();
    expect(hak_heap_attach(start, REGION_BYTES) == NULL && errno == EINVAL);
    hak_heap_t *heap = heap_in(start, REGION_BYTES, HAK_HEAP_SHARED);
    expect(hak_heap_aligned_alloc(heap, 8192, 1) == NULL && errno == EINVAL);
    struct exchanged *exchanged = hak_heap_calloc(heap, 1, sizeof *exchanged);
    size_t offset = (size_t)((char *)exchanged - start);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        hak_heap_detach(heap);
        munmap(start, REGION_BYTES);
        other_process(&offset);
        _exit(0);
    }
    exchange_blocks(start, heap, exchanged, 1);
    int status;
    expect_eq(waitpid(child, &status, 0), child);
    expect_eq(status, 0);
    for (unsigned i = 0; i < BLOCKS; i++)
        if (atomic_load(&exchanged->blocks[i]) != 0)
            hak_heap_free(heap, start + atomic_load(&exchanged->blocks[i]));
    expect_eq(stats_of(heap).live_blocks, 1);
    hak_heap_destroy(heap);
    expect(hak_heap_attach(start, REGION_BYTES) == NULL && errno == EINVAL);
    munmap(start, REGION_BYTES);
    close(shared_file);
}

static unsigned times_listed(const hak_heap_t *heap)
{
    unsigned met = 0;
    for (hak_heap_t *at = hak_heap_next(NULL); at != NULL; at = hak_heap_next(at))
        met += at == heap;
    return met;
}

static bool has_row(hak_heap_t *heap, const void *p)
{
    unsigned met = times_listed(heap);
    expect(met <= 1 && (stats_of(heap).serial != 0) == (met == 1) && hak_heap_of(p) == (met == 1 ? heap : NULL));
    return met == 1;
}

/* Parts of a process that know nothing of one another: each ends its own use of the heap. */
static void each_attaching_has_its_detaching(void **state)
{
    enum { TIMES = 4 };
    (void)state;
    shared_file = memfd_create("region", 0);
    expect_eq(ftruncate(shared_file, REGION_BYTES), 0);
    char *start = map_shared();
    for (unsigned round = 0; round < 3; round++) {
        hak_heap_t *heap = heap_in(start, REGION_BYTES, HAK_HEAP_SHARED);
        void *p = hak_heap_malloc(heap, 100);
        uint64_t serial = stats_of(heap).serial;
        for (unsigned i = 1; i < TIMES; i++)
            expect_ptr(hak_heap_attach(start, REGION_BYTES), heap);
        for (unsigned i = 0; i < TIMES; i++) {
            expect(has_row(heap, p));
            expect_eq(stats_of(heap).serial, serial);
            if (i < TIMES - 1)
                hak_free(hak_heap_malloc(heap, 100));
            if (i != 1 || round != 1) /* one is left, which the next heap there ends */
                hak_heap_detach(heap);
        }
        expect_eq(has_row(heap, p), round == 1);
        if (round == 1)
            continue;
        expect_ptr(hak_heap_attach(start, REGION_BYTES), heap);
        expect_ptr(hak_heap_attach(start, REGION_BYTES), heap);
        expect(has_row(heap, p));
        hak_heap_destroy(heap); /* whoever has it attached */
        expect(hak_heap_of(p) == NULL && hak_heap_next(NULL) != heap);
        expect(hak_heap_attach(start, REGION_BYTES) == NULL && errno == EINVAL);
    }
    munmap(start, REGION_BYTES);
    close(shared_file);
}

/* One process may map a region twice: each mapping has a handle, and is detached by itself. */
static void two_mappings_have_two_handles(void **state)
{
    (void)state;
    shared_file = memfd_create("region", 0);
    expect_eq(ftruncate(shared_file, REGION_BYTES), 0);
    char *start = map_shared(), *other = map_shared();
    hak_heap_t *heap = heap_in(start, REGION_BYTES, HAK_HEAP_SHARED), *again = hak_heap_attach(other, REGION_BYTES);
    expect_ptr(again, other);
    char *p = hak_heap_malloc(heap, 100), *q = other + (p - start);
    expect(hak_heap_of(p) == heap && hak_heap_of(q) == again && stats_of(heap).serial != stats_of(again).serial);
    hak_free(q);
    expect_eq(stats_of(heap).live_blocks, 0);
    expect_ptr(hak_heap_malloc(again, 100), q);
    hak_heap_detach(again);
    expect(times_listed(heap) == 1 && times_listed(again) == 0 && hak_heap_of(q) == NULL);
    hak_free(p);
    hak_heap_destroy(heap);
    munmap(start, REGION_BYTES);
    munmap(other, REGION_BYTES);
    close(shared_file);
}

static void in_a_child(void body(hak_heap_t *heap), hak_heap_t *heap)
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        body(heap);
        _exit(0);
    }
    expect_eq(waitpid(child, &status, 0), child);
    expect_eq(status, 0);
}

static void write_over(hak_heap_t *heap)
{
    hak_heap_destroy(heap);
    memset((void *)heap, 0x55, 65536);
}

static void make_anew(hak_heap_t *heap)
{
    hak_heap_destroy(heap);
    expect_ptr(heap_in(heap, REGION_BYTES, HAK_HEAP_SHARED), heap);
}

/* Each process detaches what it has attached, whatever has become of the heap. */
static void others_may_destroy_it_first(void **state)
{
    static void (*const ends[])(hak_heap_t *) = { hak_heap_destroy, write_over, make_anew, hak_heap_detach };
    (void)state;
    shared_file = memfd_create("region", 0);
    expect_eq(ftruncate(shared_file, REGION_BYTES), 0);
    char *start = map_shared();
    for (unsigned i = 0; i < sizeof ends / sizeof *ends; i++) {
        hak_heap_t *heap = heap_in(start, REGION_BYTES, HAK_HEAP_SHARED);
        void *p = hak_heap_malloc(heap, 100);
        expect_ptr(hak_heap_attach(start, REGION_BYTES), heap);
        in_a_child(ends[i], heap);
        expect_ptr(hak_heap_of(p), i == 3 ? heap : NULL);
        in_a_child(hak_heap_detach, heap);
        hak_heap_detach(heap);
        expect_eq(times_listed(heap), i >= 2);
        hak_heap_detach(heap);
        expect(times_listed(heap) == 0 && hak_heap_of(p) == NULL);
    }
    munmap(start, REGION_BYTES);
    close(shared_file);
}

/* --- threads and forks -------------------------------------------------------------------------------------------------------- */

static hak_heap_t *threads_heap;
static _Atomic bool threads_go_on;

static void *use_heap(void *argument)
{
    struct rng rng = { *(unsigned *)argument };
    void *blocks[50] = { NULL };
    for (unsigned turn = 0; turn < 20000 || atomic_load(&threads_go_on); turn++) {
        size_t i = rng_below(&rng, 50), n = rng_below(&rng, 700);
        hak_free(blocks[i]);
        blocks[i] = hak_heap_malloc(threads_heap, n);
        expect(blocks[i] != NULL);
        memset(blocks[i], (int)i, n);
    }
    for (unsigned i = 0; i < 50; i++)
        hak_heap_free(threads_heap, blocks[i]);
    return NULL;
}

static void threads_share_a_region(void **state)
{
    static char memory[REGION_BYTES];
    unsigned seeds[4] = { 1, 2, 3, 4 };
    (void)state;
    threads_heap = heap_in(memory, sizeof memory, 0);
    run_threads(4, use_heap, seeds, sizeof seeds[0]);
    expect_eq(stats_of(threads_heap).live_blocks, 0);
    hak_heap_destroy(threads_heap);
}

/* Forks find the lock held by a thread that the child does not have. */
static void forked_children_go_on(void **state)
{
    static char memory[REGION_BYTES];
    unsigned seeds[2] = { 1, 2 };
    pthread_t threads[2];
    (void)state;
    threads_heap = heap_in(memory, sizeof memory, 0);
    atomic_store(&threads_go_on, true);
    for (unsigned i = 0; i < 2; i++)
        expect_eq(pthread_create(&threads[i], NULL, use_heap, &seeds[i]), 0);
    for (unsigned round = 0; round < 100; round++) {
        int status;
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            for (unsigned i = 0; i < 100; i++)
                hak_heap_free(threads_heap, hak_heap_malloc(threads_heap, i * 20));
            _exit(stats_of(threads_heap).live_blocks <= 102 ? 0 : 1);
        }
        expect_eq(waitpid(child, &status, 0), child);
        expect_eq(status, 0);
    }
    atomic_store(&threads_go_on, false);
    for (unsigned i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    hak_heap_destroy(threads_heap);
}

static void a_child_without_the_region_goes_on(void **state)
{
    int status;
    (void)state;
    void *memory = mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect(memory != MAP_FAILED);
    hak_heap_t *heap = heap_in(memory, REGION_BYTES, 0);
    void *block = hak_heap_malloc(heap, 100);
    expect_eq(madvise(memory, REGION_BYTES, MADV_DONTFORK), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        unsigned char resident;
        bool gone = mincore(memory, 1, &resident) != 0;   /* an emulator does not let it go */
        hak_free(hak_malloc(100));
        _exit((hak_heap_of(block) == NULL) == gone && hak_check_heap() ? 0 : 1);
    }
    expect_eq(waitpid(child, &status, 0), child);
    expect_eq(status, 0);
    hak_free(block);
    hak_heap_destroy(heap);
    munmap(memory, REGION_BYTES);
}

/* --- misuse --------------------------------------------------------------------------------------------------------------------- */

static char misused[64 << 10] __attribute__((aligned(4096)));
static hak_heap_t *misused_heap;
static char *misused_block, *misused_large;

static void free_twice(void *argument) { (void)argument; hak_heap_free(misused_heap, misused_block); hak_free(misused_block); }
static void free_large_twice(void *argument) { (void)argument; hak_free(misused_large); hak_heap_free(misused_heap, misused_large); }
static void free_inside(void *argument) { (void)argument; hak_heap_free(misused_heap, misused_block + 16); }
static void free_inside_large(void *argument) { (void)argument; hak_free(misused_large + 4096); }
static void free_header(void *argument) { (void)argument; hak_heap_free(misused_heap, misused + 64); }
static void free_others(void *argument) { hak_heap_free(misused_heap, argument); }
static void change_inside(void *argument) { (void)argument; hak_realloc(misused_block + 8, 10); }
static void use_ended(void *argument) { (void)argument; hak_heap_destroy(misused_heap); hak_heap_malloc(misused_heap, 1); }
static void detach_ended(void *argument) { (void)argument; hak_heap_destroy(misused_heap); hak_heap_detach(misused_heap); }
static void make_default(void *argument) { (void)argument; hak_heap_set_default(misused_heap); }
static void detach_other(void *argument) { hak_heap_detach(argument); }

static void expect_report(check_body *body, void *argument, const char *format, const void *p)
{
    char line[200];
    snprintf(line, sizeof line, format, p, (void *)misused_heap);
    expect_abort(body, argument, line);
}

/* The statistics' line of the heap with this number; false: there is none. */
static bool line_of(uint64_t serial, char line[LINE])
{
    static char text[64 << 10];
    char begin[40], path[] = "/tmp/regions-XXXXXX";
    snprintf(begin, sizeof begin, "hakmem: heap %llu ", (unsigned long long)serial);
    int fd = mkstemp(path);
    hak_stats_print(fd);
    ssize_t length = pread(fd, text, sizeof text - 1, 0);
    close(fd);
    unlink(path);
    expect(length > 0);
    text[length] = 0;
    const char *at = strstr(text, begin);
    if (at != NULL)
        snprintf(line, LINE, "%.*s", (int)strcspn(at, "\n"), at);
    return at != NULL;
}

static char *fresh_pages(void)
{
    char *pages = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect(pages != MAP_FAILED);
    return pages;
}

static void statistics_have_its_row(void **state)
{
    char line[LINE], wanted[LINE];
    (void)state;
    char *region = fresh_pages();
    hak_heap_t *heap = heap_in(region, 1 << 20, 0);
    for (unsigned i = 0; i < 3; i++)
        expect(hak_heap_malloc(heap, 100) != NULL);
    struct hak_heap_figures stats = stats_of(heap);
    expect(stats.serial != 0 && line_of(stats.serial, line));
    snprintf(wanted, sizeof wanted,
             "hakmem: heap %llu \"region\": used_bytes=%llu peak_bytes=%llu live_bytes=336 live_blocks=3 cached_bytes=0 limit=0 refused=0",
             (unsigned long long)stats.serial, (unsigned long long)stats.used_bytes, (unsigned long long)stats.peak_bytes);
    assert_string_equal(line, wanted);
    munmap(region, 1 << 20);   /* without a word: a mistake, which statistics forgive */
    expect(!line_of(stats.serial, line));
    hak_heap_detach(heap_in(fresh_pages(), 1 << 20, 0));
    expect(!line_of(stats.serial + 1, line));
}

static void misuse_is_reported(void **state)
{
    (void)state;
    void *mallocs = hak_malloc(10);
    misused_heap = heap_in(misused, sizeof misused, 0);
    misused_block = hak_heap_malloc(misused_heap, 100);
    misused_large = hak_heap_malloc(misused_heap, 9000);
    expect_report(free_twice, NULL, "hakmem: free(): double free of %p (112-byte block)", misused_block);
    expect_report(free_large_twice, NULL, "hakmem: hak_heap_free(): invalid pointer %p: no block is here, or it was freed before",
                  misused_large);
    expect_report(free_inside, NULL, "hakmem: hak_heap_free(): invalid pointer %p: not the start of a block", misused_block + 16);
    expect_report(free_inside_large, NULL, "hakmem: free(): invalid pointer %p: not the start of a block", misused_large + 4096);
    expect_report(free_header, NULL, "hakmem: hak_heap_free(): invalid pointer %p: not the start of a block", misused + 64);
    expect_report(free_others, mallocs, "hakmem: hak_heap_free(): %p is not a block of heap %p", mallocs);
    expect_report(change_inside, NULL, "hakmem: realloc(): invalid pointer %p: not the start of a block", misused_block + 8);
    expect_report(use_ended, NULL, "hakmem: hak_heap_malloc(): heap %p has been destroyed", misused_heap);
    expect_report(detach_ended, NULL, "hakmem: hak_heap_detach(): heap %p has been destroyed", misused_heap);
    expect_report(make_default, NULL, "hakmem: hak_heap_set_default(): heap %p is one in a region", misused_heap);
    hak_heap_t *other = hak_heap_new(NULL);
    expect_report(detach_other, other, "hakmem: hak_heap_detach(): heap %p is in no region", other);
    hak_free(mallocs);
    hak_heap_destroy(other);
}

static int asks_to_be_cancelled(void *block, size_t size, void *calls)
{
    pthread_testcancel();
    ++*(int *)calls;
    return block == NULL || size == 0;
}

static void *visit_when_cancelled(void *calls)
{
    static char memory[REGION_BYTES];
    hak_heap_t *heap = heap_in(memory, sizeof memory, 0);
    expect(hak_heap_malloc(heap, 100) != NULL);
    expect_eq(pthread_cancel(pthread_self()), 0);
    expect_eq(hak_heap_visit(heap, asks_to_be_cancelled, calls), 0);
    hak_heap_destroy(heap);
    pthread_testcancel();
    return NULL;
}

static void visitors_are_not_cancelled(void **state)
{
    (void)state;
    int calls = 0;
    pthread_t thread;
    void *result = NULL;
    expect_eq(pthread_create(&thread, NULL, visit_when_cancelled, &calls), 0);
    expect_eq(pthread_join(thread, &result), 0);
    expect(result == PTHREAD_CANCELED && calls == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_request),
        cmocka_unit_test(a_region_above_the_usual_addresses),
        cmocka_unit_test(spans_hold_the_same_blocks),
        cmocka_unit_test(a_region_is_no_block_of_malloc),
        cmocka_unit_test(a_full_region_is_no_memory),
        cmocka_unit_test(the_callback_may_free),
        cmocka_unit_test(a_full_region_calls_its_heap),
        cmocka_unit_test(a_limit_of_large_blocks_ends_with_the_region),
        cmocka_unit_test(two_processes_share_a_region),
        cmocka_unit_test(each_attaching_has_its_detaching),
        cmocka_unit_test(two_mappings_have_two_handles),
        cmocka_unit_test(others_may_destroy_it_first),
        cmocka_unit_test(threads_share_a_region),
        cmocka_unit_test(forked_children_go_on),
        cmocka_unit_test(a_child_without_the_region_goes_on),
        cmocka_unit_test(statistics_have_its_row),
        cmocka_unit_test(visitors_are_not_cancelled),
        cmocka_unit_test(misuse_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
