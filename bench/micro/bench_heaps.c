/*
 * bench_heaps [WORK [SIZE [ITERATIONS [THREADS]]]]
 *
 * Exercises heaps of one's own by the interface that the preloaded allocator has: hak_heap_malloc, mimalloc's mi_heap_malloc, or an
 * arena of jemalloc's with a cache per thread. An allocator without any does the same by malloc and free, block by block.
 * Knobs: WORK; THREADS for `pairs`.
 */
#include "common.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

enum { HEAPS_BLOCKS = 1000, HEAPS_BATCH = 8, HEAPS_LEAST = 16, HEAPS_SPREAD = 1025 };
enum { PAIRS, REQUESTS };

static const char *const heaps_works[] = {"pairs", "requests", NULL};

static const struct bench_arg heaps_args[] = {
    {"WORK", "pairs: batches of 8 blocks are allocated and freed one by one; requests: a heap is made, gets 1,000 blocks of 16 to 1040"
             " bytes, and ends", REQUESTS, 0, 0, heaps_works},
    {"SIZE", "size of the blocks of pairs in bytes", 100, 1, BENCH_SIZE_MAX, NULL},
    {"ITERATIONS", "blocks allocated by each thread", 30000000, 1, BENCH_COUNT_MAX, NULL},
    {"THREADS", "threads on one heap; mimalloc's are for one thread, so each has its own there", 1, 1, BENCH_THREADS_MAX, NULL},
};

static const struct bench_spec heaps_spec = BENCH_SPEC("Heaps of one's own: a warm request and free, or a heap's whole life.", heaps_args);

/* --- the allocators' interfaces ------------------------------------------------------------------------------------- */

/* What a thread needs to use a heap. */
struct heaps_handle {
    void *heap;
    unsigned arena, cache;
};

/* NULL: the allocator has no heaps. */
static void *(*heap_new)(void *options), *(*heap_malloc)(void *heap, size_t size);
static void (*heap_end)(void *heap), (*heap_free)(void *block);
static void *(*arena_malloc)(size_t size, int flags);
static void (*arena_free)(void *block, int flags);
static int (*arena_control)(const char *name, void *old, size_t *length, void *value, size_t value_length);

/* The interface of functions named so; their types are those of the variables. */
static int heaps_find(const char *make, const char *allocate, const char *release, const char *end)
{
    *(void **)&heap_new = dlsym(RTLD_DEFAULT, make);
    *(void **)&heap_malloc = dlsym(RTLD_DEFAULT, allocate);
    *(void **)&heap_free = dlsym(RTLD_DEFAULT, release);
    *(void **)&heap_end = dlsym(RTLD_DEFAULT, end);
    return heap_new != NULL && heap_malloc != NULL && heap_free != NULL && heap_end != NULL;
}

static const char *heaps_choose(void)
{
    if (heaps_find("hak_heap_new", "hak_heap_malloc", "hak_free", "hak_heap_destroy"))
        return "hakmem";
    if (heaps_find("mi_heap_new", "mi_heap_malloc", "mi_free", "mi_heap_destroy"))
        return "mimalloc";
    *(void **)&arena_malloc = dlsym(RTLD_DEFAULT, "mallocx");
    *(void **)&arena_free = dlsym(RTLD_DEFAULT, "dallocx");
    *(void **)&arena_control = dlsym(RTLD_DEFAULT, "mallctl");
    if (arena_malloc != NULL && arena_free != NULL && arena_control != NULL)
        return "jemalloc";
    arena_malloc = NULL;
    return "none";
}

static unsigned heaps_create(const char *what)
{
    unsigned number = 0;
    size_t length = sizeof number;
    if (arena_control(what, &number, &length, NULL, 0) != 0)
        bench_die("jemalloc makes no arena");
    return number;
}

static int heaps_is(const char *api, const char *name) { return api[0] == name[0]; }

/* For a thread: the heap, made here or by another thread (`from`). */
static struct heaps_handle heaps_open(const char *api, const struct heaps_handle *from)
{
    struct heaps_handle handle = {NULL, 0, 0};
    if (heaps_is(api, "jemalloc")) {
        handle.arena = from != NULL ? from->arena : heaps_create("arenas.create");
        handle.cache = heaps_create("tcache.create");
    } else if (!heaps_is(api, "none")) {
        handle.heap = from != NULL && heaps_is(api, "hakmem") ? from->heap : heap_new(NULL);
        if (handle.heap == NULL)
            bench_die("no heap");
    }
    return handle;
}

static void heaps_close(const char *api, struct heaps_handle *handle)
{
    char name[40];
    if (heaps_is(api, "jemalloc")) {
        if (arena_control("tcache.destroy", NULL, NULL, &handle->cache, sizeof handle->cache) != 0)
            bench_die("a cache of jemalloc's does not end");
        snprintf(name, sizeof name, "arena.%u.destroy", handle->arena);
        if (arena_control(name, NULL, NULL, NULL, 0) != 0)
            bench_die("an arena of jemalloc's does not end");
    } else if (!heaps_is(api, "none")) {
        heap_end(handle->heap);
    }
}

/* MALLOCX_ARENA and MALLOCX_TCACHE of jemalloc's header. */
static int heaps_flags(const struct heaps_handle *handle) { return (int)((handle->arena + 1) << 20 | (handle->cache + 2) << 8); }

static void *heaps_take(const struct heaps_handle *handle, int flags, size_t size)
{
    void *block = handle->heap != NULL ? heap_malloc(handle->heap, size) : flags != 0 ? arena_malloc(size, flags) : malloc(size);
    if (__builtin_expect(block == NULL, 0))
        bench_die("out of memory");
    bench_touch(block, size);
    return block;
}

static void heaps_give(const struct heaps_handle *handle, int flags, void *block)
{
    if (handle->heap != NULL)
        heap_free(block);
    else if (flags != 0)
        arena_free(block, flags);
    else
        free(block);
}

/* --- the work --------------------------------------------------------------------------------------------------------- */

struct heaps_worker {
    const char *api;
    const struct heaps_handle *shared;
    uint64_t iterations;
    size_t size;
};

static void heaps_pairs(void *argument, struct bench_team *team)
{
    const struct heaps_worker *worker = argument;
    struct heaps_handle handle = heaps_open(worker->api, worker->shared);
    int flags = heaps_is(worker->api, "jemalloc") ? heaps_flags(&handle) : 0;
    void *blocks[HEAPS_BATCH];
    bench_team_start(team);
    for (uint64_t done = 0; done < worker->iterations; done += HEAPS_BATCH) {
        for (unsigned i = 0; i < HEAPS_BATCH; i++)
            blocks[i] = heaps_take(&handle, flags, worker->size);
        for (unsigned i = 0; i < HEAPS_BATCH; i++)
            heaps_give(&handle, flags, blocks[i]);
    }
    bench_team_stop(team);
}

/* Without heaps: the blocks are freed one by one. */
static void heaps_requests(const char *api, uint64_t iterations)
{
    static void *blocks[HEAPS_BLOCKS];
    for (uint64_t done = 0; done < iterations; done += HEAPS_BLOCKS) {
        struct heaps_handle handle = heaps_open(api, NULL);
        int flags = heaps_is(api, "jemalloc") ? heaps_flags(&handle) : 0;
        for (unsigned i = 0; i < HEAPS_BLOCKS; i++)
            blocks[i] = heaps_take(&handle, flags, HEAPS_LEAST + i * 7919 % HEAPS_SPREAD);
        for (unsigned i = 0; i < HEAPS_BLOCKS && heaps_is(api, "none"); i++)
            free(blocks[i]);
        heaps_close(api, &handle);
    }
}

int main(int argc, char **argv)
{
    static struct heaps_worker workers[BENCH_THREADS_MAX];
    struct bench_run run;
    bench_parse(&run, "bench_heaps", &heaps_spec, argc, argv);
    const char *api = heaps_choose();
    unsigned threads = (unsigned)run.value[3];
    bench_require(&run, run.value[0] == PAIRS || threads == 1, "THREADS is for pairs");
    if (run.value[0] == REQUESTS) {
        double start = bench_now();
        heaps_requests(api, run.value[2]);
        bench_report(&run, NULL, run.value[2], bench_now() - start);
        return 0;
    }
    struct heaps_handle shared = heaps_open(api, NULL);
    for (unsigned i = 0; i < threads; i++)
        workers[i] = (struct heaps_worker){api, &shared, run.value[2], run.value[1]};
    double seconds = bench_team_run(threads, heaps_pairs, workers, sizeof workers[0]);
    bench_report(&run, NULL, run.value[2] * threads, seconds);
    return 0;
}
