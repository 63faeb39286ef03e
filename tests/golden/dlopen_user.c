/* Loads libraries while it runs, and allocates with what they bring. Run by test_dlopen.py.
 *
 *   dlopen_user allocator LIBRARY   the allocator itself, by dlopen with RTLD_LOCAL: hak_* works beside the C library's
 *                                   malloc, from several threads, also from those that were there before
 *   dlopen_user plugin LIBRARY      a library that allocates when it is loaded, used and unloaded, many times over
 *   dlopen_user others LIBRARY HOW  blocks of the C library's malloc by the allocator's functions, by dlopen with RTLD_LOCAL,
 *                                   RTLD_GLOBAL or RTLD_DEEPBIND (local, global, deepbind), from a thread that was there before
 *   dlopen_user bound PLUGIN        a library that needs the allocator, and has malloc from it, is given such blocks
 *   dlopen_user keys LIBRARY        a program that has taken all keys of thread-specific values: nothing calls when a thread ends
 *   dlopen_user tls LIBRARY MODULE...  what becomes of the allocator when modules have used up the static thread-local memory */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 4, COUNT = 500 };

static void *(*own_malloc)(size_t);
static void (*own_free)(void *);
static pthread_barrier_t barrier;

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, dlerror());
    exit(1);
}

static void *load(const char *path, int flags)
{
    void *library = dlopen(path, flags);
    if (library == NULL)
        fail("dlopen");
    return library;
}

static void *find(void *library, const char *name)
{
    void *symbol = dlsym(library, name);
    if (symbol == NULL)
        fail(name);
    return symbol;
}

/* Blocks of both allocators side by side; none may overlap another. */
static void *allocate(void *argument)
{
    char *ours[COUNT], *theirs[COUNT];
    pthread_barrier_wait(&barrier);   /* the library is loaded after the thread has begun */
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < COUNT; i++) {
        size_t n = (size_t)i * i + 8;
        ours[i] = own_malloc(n);
        theirs[i] = malloc(n);
        memset(ours[i], 1, n);
        memset(theirs[i], 2, n);
    }
    for (int i = 0; i < COUNT; i++) {
        if (ours[i][0] != 1 || theirs[i][0] != 2)
            fail("content");
        own_free(ours[i]);
        free(theirs[i]);
    }
    return argument;
}

static void use_allocator(const char *path)
{
    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, allocate, NULL);
    pthread_barrier_wait(&barrier);
    void *library = load(path, RTLD_NOW | RTLD_LOCAL);
    *(void **)&own_malloc = find(library, "hak_malloc");
    *(void **)&own_free = find(library, "hak_free");
    if ((void *)(uintptr_t)malloc == find(library, "malloc"))
        fail("malloc has been replaced by a local library");
    char *kept = own_malloc(100000);
    memset(kept, 3, 100000);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    dlclose(library);   /* has no effect: blocks are still in use */
    if (kept[99999] != 3)
        fail("content after dlclose");
    own_free(kept);
}

static void use_plugin(const char *path)
{
    for (int round = 0; round < 50; round++) {
        void *library = load(path, RTLD_NOW);
        char *(*make)(size_t);
        *(void **)&make = find(library, "plugin_make");
        char *block = make(1000 + (size_t)round * 500);
        dlclose(library);
        if (strcmp(block, "made by the plugin") != 0)
            fail("content");
        free(block);   /* after the library has gone that allocated it */
    }
}

/* --- blocks of the malloc that was there before ------------------------------------------------------------------------ */

static void *(*own_realloc)(void *, size_t);
static size_t (*own_usable)(const void *);

/* Bytes that the C library's malloc has given out. */
static size_t in_use(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static void pass_on(void)
{
    for (size_t n = 1; n < 5000000; n = n * 5 / 3 + 1) {
        char *p = memset(malloc(n), 1, n), *q = memset(aligned_alloc(4096, n), 2, n);
        if (own_usable(p) != malloc_usable_size(p) || own_usable(q) != malloc_usable_size(q))
            fail("usable size");
        p = own_realloc(p, 3 * n);
        q = own_realloc(q, n / 2 + 1);
        if (p == NULL || q == NULL || p[n - 1] != 1 || q[n / 2] != 2)
            fail("content after realloc");
        if (malloc_usable_size(p) < 3 * n)   /* still the C library's */
            fail("usable size after realloc");
        own_free(p);
        free(q);
        if (own_realloc(malloc(n), 0) != NULL)
            fail("realloc to nothing");
    }
}

static void *pass_on_in_thread(void *argument)
{
    char *early = malloc(5000);
    pthread_barrier_wait(&barrier);   /* the library is loaded after the thread has begun */
    pthread_barrier_wait(&barrier);
    pass_on();
    own_free(early);
    return argument;
}

static void use_others(const char *path, const char *how)
{
    pthread_t thread;
    int flags = strcmp(how, "global") == 0 ? RTLD_GLOBAL : strcmp(how, "deepbind") == 0 ? RTLD_DEEPBIND : RTLD_LOCAL;
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_create(&thread, NULL, pass_on_in_thread, NULL);
    pthread_barrier_wait(&barrier);
    uint64_t *live = dlsym(RTLD_DEFAULT, "hak_live"), first_table = live == NULL ? 0 : live[2];   /* only if preloaded */
    void *library = load(path, RTLD_NOW | flags);
    if (live != NULL && live[2] != first_table)
        fail("hak_live is of the library loaded last");
    *(void **)&own_free = find(library, "hak_free");
    *(void **)&own_realloc = find(library, "hak_realloc");
    *(void **)&own_usable = find(library, "hak_usable_size");
    size_t before = in_use();
    pass_on();
    if (in_use() != before)
        fail("what the C library's malloc has given out");
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    void (*sized)(void *, size_t);
    *(void **)&sized = find(library, "free_sized");   /* a name that not every C library has */
    sized(malloc(100), 100);
    own_free(NULL);
    printf("%s\n", find(library, "malloc") == (void *)(uintptr_t)malloc ? "the same malloc" : "another malloc");
}

static void use_bound(const char *path)
{
    void *library = load(path, RTLD_NOW | RTLD_DEEPBIND);
    void *(*address)(void), *(*change)(void *, size_t), (*release)(void *);
    char *(*make)(size_t);
    *(void **)&address = find(library, "plugin_malloc");
    *(void **)&change = find(library, "plugin_realloc");
    *(void **)&release = find(library, "plugin_free");
    *(void **)&make = find(library, "plugin_make");
    for (size_t n = 1; n < 5000000; n *= 3) {
        char *p = change(memset(malloc(n), 1, n), 2 * n);
        if (p[n - 1] != 1)
            fail("content after realloc");
        n % 2 == 0 ? free(p) : release(p);
        release(strdup("of the C library"));
        release(make(n));
    }
    printf("%s\n", address() == (void *)(uintptr_t)malloc ? "the same malloc" : "another malloc");
}

static void use_up_tls(const char *path, int count, char **modules)
{
    int loaded = 0;
    for (int i = 0; i < count; i++)
        loaded += dlopen(modules[i], RTLD_NOW) != NULL;
    if (loaded == 0 || loaded == count)
        fail("the modules do not use it up");
    void *library = dlopen(path, RTLD_NOW);
    printf("%s\n", library == NULL ? dlerror() : "loaded");
    for (size_t n = 1; n < 5000000; n *= 3)
        free(memset(malloc(n), 1, n));
}

/* --- no key is left ----------------------------------------------------------------------------------------------------- */

static size_t resident_kib(void)
{
    size_t size = 0, resident = 0;
    FILE *in = fopen("/proc/self/statm", "r");
    if (in == NULL || fscanf(in, "%zu %zu", &size, &resident) != 2)
        fail("/proc/self/statm");
    fclose(in);
    return resident * (size_t)sysconf(_SC_PAGESIZE) >> 10;
}

static void *uses_a_little(void *argument)
{
    for (size_t n = 16; n < 60000; n += n / 2) {
        char *block = memset(own_malloc(n), 1, n);
        own_free(block);
    }
    return argument;
}

static void run_threads(int count)
{
    for (int i = 0; i < count; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, uses_a_little, NULL) != 0)
            fail("pthread_create");
        pthread_join(thread, NULL);
    }
}

/* Memory in the second half of many threads is what it was in the first. */
static void use_without_keys(const char *path)
{
    pthread_key_t key;
    while (pthread_key_create(&key, NULL) == 0)
        continue;
    void *library = load(path, RTLD_NOW | RTLD_LOCAL);
    *(void **)&own_malloc = find(library, "hak_malloc");
    *(void **)&own_free = find(library, "hak_free");
    run_threads(5000);
    size_t settled = resident_kib();
    run_threads(5000);
    printf("%zu KiB more\n", resident_kib() > settled ? resident_kib() - settled : 0);
}

int main(int count, char **arguments)
{
    const char *what = count >= 3 ? arguments[1] : "";
    if (strcmp(what, "allocator") == 0)
        use_allocator(arguments[2]);
    else if (strcmp(what, "plugin") == 0)
        use_plugin(arguments[2]);
    else if (strcmp(what, "others") == 0 && count == 4)
        use_others(arguments[2], arguments[3]);
    else if (strcmp(what, "bound") == 0)
        use_bound(arguments[2]);
    else if (strcmp(what, "keys") == 0)
        use_without_keys(arguments[2]);
    else if (strcmp(what, "tls") == 0)
        use_up_tls(arguments[2], count - 3, arguments + 3);
    else
        return 2;
    return 0;
}
