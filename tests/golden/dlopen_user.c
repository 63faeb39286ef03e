/* Loads libraries while it runs, and allocates with what they bring. Run by test_dlopen.py.
 *
 *   dlopen_user allocator LIBRARY   the allocator itself, by dlopen with RTLD_LOCAL: hak_* works beside the C library's
 *                                   malloc, from several threads, also from those that were there before
 *   dlopen_user plugin LIBRARY      a library that allocates when it is loaded, used and unloaded, many times over */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

int main(int count, char **arguments)
{
    if (count != 3)
        return 2;
    if (strcmp(arguments[1], "allocator") == 0)
        use_allocator(arguments[2]);
    else
        use_plugin(arguments[2]);
    return 0;
}
