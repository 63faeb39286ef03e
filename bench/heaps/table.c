/*
 * table WORK NUMBER COUNT [THREADS]
 *
 * One row of `./dev bench --heaps`, in whatever library is preloaded or can be opened: HAKMEM's heaps, mimalloc's, jemalloc's arenas, APR's
 * pools, talloc's contexts, by their own interfaces; or malloc and free (--malloc). heaps.py counts what it executes.
 *   turns:   a block of 100 bytes is allocated and freed in each of NUMBER heaps by turns, COUNT times; 0: in the thread's default heap
 *   switch:  the thread's default heap is set and set back, COUNT times
 *   fill:    a heap is made, gets 1,000 blocks of NUMBER bytes (0: of 16 to 1040), and ends; COUNT times
 *   reset:   the same, but the heap is reset
 *   limit:   THREADS threads fill a heap of NUMBER bytes with blocks of 1 to 1024 bytes by turns until one fails; prints their usable bytes
 *   one:     COUNT heaps with one block of NUMBER bytes at once; prints the resident bytes of each
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hakmem.h"

enum { BLOCKS = 1000, HEAPS_MAX = 1 << 20, THREADS_MAX = 64 };

static void *(*make)(void *options), *(*take)(void *heap, size_t n), *(*choose)(void *heap);
static size_t (*usable)(const void *block);
static void (*give)(void *block), (*end)(void *heap), (*reset)(void *heap);
static const char *kind = "malloc";

static void fail(const char *what)
{
    fprintf(stderr, "table: %s\n", what);
    exit(2);
}

/* --- interfaces ---------------------------------------------------------------------------------------------------------- */

static void *find(void *library, const char *name) { return name == NULL ? NULL : dlsym(library, name); }

static int found(const char *called, void *library, const char *const names[6])
{
    *(void **)&make = find(library, names[0]), *(void **)&take = find(library, names[1]);
    *(void **)&give = find(library, names[2]), *(void **)&end = find(library, names[3]);
    *(void **)&reset = find(library, names[4]), *(void **)&choose = find(library, names[5]);
    if (make != NULL || take != NULL)
        kind = called;
    return make != NULL || take != NULL;
}

static int (*apr_make)(void **pool, void *parent, void *abort, void *allocator);
static void *apr_new(void *options)
{
    void *pool = NULL;
    return apr_make(&pool, options, NULL, NULL) == 0 ? pool : NULL;
}

static void *(*talloc_make)(const void *parent, size_t n, const char *name);
static int (*talloc_end)(void *p, const char *where);
static void *talloc_new(void *options) { return talloc_make(options, 0, "heap"); }
static void *talloc_take(void *heap, size_t n) { return talloc_make(heap, n, "block"); }
static void talloc_drop(void *p) { talloc_end(p, ""); }

static int (*control)(const char *name, void *old, size_t *length, void *value, size_t value_length);
static void *(*arena_take)(size_t n, int flags);
static void (*arena_give)(void *block, int flags);
static void *arena_new(void *options)
{
    unsigned arena = 0, cache = 0;
    size_t length = sizeof arena;
    if (options != NULL || control("arenas.create", &arena, &length, NULL, 0) != 0 || control("tcache.create", &cache, &length, NULL, 0) != 0)
        return NULL;
    return (void *)(((size_t)arena + 1) << 20 | ((size_t)cache + 2) << 8);
}
static void *arena_malloc(void *heap, size_t n) { return arena_take(n, (int)(size_t)heap); }
static void arena_free(void *block) { arena_give(block, 0); }
static void arena_end(void *heap)
{
    char name[40];
    unsigned cache = ((unsigned)(size_t)heap >> 8 & 0xfff) - 2;
    control("tcache.destroy", NULL, NULL, &cache, sizeof cache);
    snprintf(name, sizeof name, "arena.%u.destroy", ((unsigned)(size_t)heap >> 20) - 1);
    control(name, NULL, NULL, NULL, 0);
}

static void *open_or_not(const char *file) { return file == NULL ? NULL : dlopen(file, RTLD_NOW | RTLD_GLOBAL); }

static void find_interface(int plain)
{
    static const char *const hakmem[] = {"hak_heap_new", "hak_heap_malloc", "hak_free", "hak_heap_destroy", "hak_heap_reset", "hak_heap_set_default"};
    static const char *const mimalloc[] = {"mi_heap_new", "mi_heap_malloc", "mi_free", "mi_heap_destroy", NULL, "mi_heap_set_default"};
    static const char *const apr[] = {NULL, "apr_palloc", NULL, "apr_pool_destroy", "apr_pool_clear", NULL};
    static const char *const monotonic[] = {"monotonic_new", "monotonic_take", NULL, "monotonic_end", "monotonic_reset", NULL};
    void *library = open_or_not(getenv("TABLE_OPENED"));
    if (plain || (library == NULL && found("hakmem", RTLD_DEFAULT, hakmem)) || found("mimalloc", RTLD_DEFAULT, mimalloc))
        return;
    if (library == NULL) {
        *(void **)&control = dlsym(RTLD_DEFAULT, "mallctl");
        *(void **)&arena_take = dlsym(RTLD_DEFAULT, "mallocx"), *(void **)&arena_give = dlsym(RTLD_DEFAULT, "dallocx");
        if (control == NULL)
            fail("no heaps here");
        kind = "jemalloc", make = arena_new, take = arena_malloc, give = arena_free, end = arena_end;
    } else if (found("monotonic", library, monotonic)) {
    } else if (found("apr", library, apr)) {
        int (*begin)(void);
        *(void **)&begin = dlsym(library, "apr_initialize"), *(void **)&apr_make = dlsym(library, "apr_pool_create_ex");
        make = apr_new;
        if (begin() != 0)
            fail("APR does not start");
    } else {
        *(void **)&talloc_make = dlsym(library, "talloc_named_const"), *(void **)&talloc_end = dlsym(library, "_talloc_free");
        if (talloc_make == NULL || talloc_end == NULL)
            fail("no heaps in TABLE_OPENED");
        kind = "talloc", make = talloc_new, take = talloc_take, give = talloc_drop, end = talloc_drop;
        *(void **)&reset = dlsym(library, "talloc_free_children");
    }
}

/* HAK_HEAP_BUMP, if the environment asks for it. */
static void *heap_new(size_t limit)
{
    struct hak_heap_options options = {.size = sizeof options, .limit = limit};
    if (strcmp(kind, "hakmem") != 0)
        return make(NULL);
    if (getenv("TABLE_FLAGS") != NULL)
        options.flags = (uint32_t)strtoul(getenv("TABLE_FLAGS"), NULL, 0);
    return make(&options);
}

/* --- works ----------------------------------------------------------------------------------------------------------------- */

static size_t size_of(size_t i, size_t fixed) { return fixed != 0 ? fixed : 16 + i * 7919 % 1025; }

static void turns(size_t heaps, size_t count)
{
    void **all = calloc(heaps + 1, sizeof *all);
    for (size_t h = 0; h < heaps; h++)
        if (strcmp(kind, "malloc") != 0 && (all[h] = heap_new(0)) == NULL)
            fail("no heap");
    if (heaps == 0 && (choose == NULL || choose(heap_new(0)) == (void *)-1))
        fail("no default heap");
    if (heaps != 0 && give == NULL && strcmp(kind, "malloc") != 0)
        fail("no frees");
    for (size_t i = 0; i < count + 8 * heaps; i++) {
        if (heaps == 0 || take == NULL)
            free(malloc(100));
        else
            give(take(all[i % heaps], 100));
    }
}

static void fill(size_t size, size_t count, int resets)
{
    static void *blocks[BLOCKS];
    void *heap = NULL;
    if (resets && reset == NULL)
        fail("no reset");
    for (size_t done = 0; done < count; done++) {
        if (take != NULL && (heap == NULL || !resets) && (heap = heap_new(0)) == NULL)
            fail("no heap");
        for (size_t i = 0; i < BLOCKS; i++)
            blocks[i] = take == NULL ? malloc(size_of(i, size)) : take(heap, size_of(i, size));
        for (size_t i = 0; i < BLOCKS && take == NULL; i++)
            free(blocks[i]);
        if (take != NULL)
            (resets ? reset : end)(heap);
    }
}

struct turn {
    void *heap;
    size_t number;
};
static size_t threads, filled, turn_now;
static int full;
static pthread_mutex_t turn_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn_comes = PTHREAD_COND_INITIALIZER;

static void *limited(void *argument)
{
    const struct turn *turn = argument;
    size_t n = 1 + turn->number * 131 % 1024;
    pthread_mutex_lock(&turn_lock);
    while (!full) {
        while (turn_now != turn->number && !full)
            pthread_cond_wait(&turn_comes, &turn_lock);
        void *block = full ? NULL : take(turn->heap, n);
        full |= block == NULL;
        filled += full ? 0 : usable(block);
        n = (n * 7919 + 7) % 1024 + 1;
        turn_now = (turn_now + 1) % threads;
        pthread_cond_broadcast(&turn_comes);
    }
    pthread_mutex_unlock(&turn_lock);
    return NULL;
}

static void limit(size_t bytes)
{
    pthread_t ids[THREADS_MAX];
    struct turn all[THREADS_MAX];
    void *heap = strcmp(kind, "hakmem") == 0 ? heap_new(bytes) : NULL;
    *(void **)&usable = dlsym(RTLD_DEFAULT, "hak_usable_size");
    if (heap == NULL)
        fail("no limits");
    for (size_t i = 0; i < threads; i++) {
        all[i] = (struct turn){heap, i};
        pthread_create(&ids[i], NULL, limited, &all[i]);
    }
    for (size_t i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    printf("bytes=%zu\n", filled);
}

static size_t resident(void)
{
    size_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%*u %zu", &pages) != 1)
        fail("no /proc");
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void one(size_t size, size_t count)
{
    size_t before = 0;
    for (size_t i = 0; i <= count; i++) { /* the first one is not counted */
        void *heap = heap_new(0), *block = heap == NULL ? NULL : take(heap, size);
        if (block == NULL)
            fail("no heap");
        memset(block, 1, size);
        if (i == 0)
            before = resident();
    }
    printf("bytes=%zu\n", (resident() - before) / count);
}

int main(int argc, char **argv)
{
    int plain = argc > 1 && strcmp(argv[1], "--malloc") == 0;
    argc -= plain, argv += plain;
    if (argc < 4)
        fail("usage: table [--malloc] WORK NUMBER COUNT [THREADS]");
    const char *work = argv[1];
    size_t number = strtoul(argv[2], NULL, 10), count = strtoul(argv[3], NULL, 10);
    threads = argc > 4 ? strtoul(argv[4], NULL, 10) % (THREADS_MAX + 1) : 1;
    find_interface(plain);
    if (strcmp(work, "turns") == 0)
        turns(number, count);
    else if (strcmp(work, "fill") == 0 || strcmp(work, "reset") == 0)
        fill(number, count, work[0] == 'r');
    else if (strcmp(work, "limit") == 0)
        limit(number);
    else if (strcmp(work, "one") == 0)
        one(number, count);
    else if (strcmp(work, "switch") == 0 && choose != NULL)
        for (void *heap = heap_new(0); count > 0; count--)
            choose(choose(heap));
    else
        fail("no such work here");
    return 0;
}
