/* Programs that make the dynamic linker work while they allocate. Run by test_loader.py, which preloads the library.
 *
 *   loader_user plain                    allocates in threads; says whose malloc it uses and what a second library counted
 *   loader_user large                    allocates, grows and frees large blocks; says whether a second library has counted calls
 *   loader_user cycles PLUGIN COUNT      loads and unloads a library with thread-local memory, with a second thread there
 *   loader_user namespace PLUGIN CALL    a library in a namespace of its own, by dlmopen; CALL is none, or what is done
 *   loader_user deepbind PLUGIN CALL     here with its pointer: free, realloc, malloc_usable_size
 *   loader_user twice LIBRARY CALL       the allocator once more in a namespace of its own */
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

static void fail(const char *what)
{
    const char *why = dlerror();
    fprintf(stderr, "%s: %s\n", what, why == NULL ? "is wrong" : why);
    exit(1);
}

static void *find(void *library, const char *name)
{
    void *symbol = dlsym(library, name);
    if (symbol == NULL)
        fail(name);
    return symbol;
}

static void *allocate(void *argument)
{
    char *blocks[100] = { NULL };
    for (size_t i = 0; i < 20000; i++) {
        size_t n = (i * 7919) % 3000 + (i % 1000 == 0 ? 100000 : 1);
        char **block = &blocks[i % 100];
        if (*block != NULL && (*block)[0] != (char)(i % 100))
            fail("content");
        *block = i % 2 ? realloc(*block, n) : (free(*block), malloc(n));
        (*block)[0] = (*block)[n - 1] = (char)(i % 100);
    }
    for (int i = 0; i < 100; i++)
        free(blocks[i]);
    return argument;
}

static void use_threads(void)
{
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        if (pthread_create(&threads[i], NULL, allocate, NULL) != 0)
            fail("pthread_create");
    allocate(NULL);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
}

static const char *object_of(void *address)
{
    Dl_info info;
    if (dladdr(address, &info) == 0)
        return "nobody";
    const char *name = strrchr(info.dli_fname, '/');
    return name == NULL ? info.dli_fname : name + 1;
}

static void plain(void)
{
    use_threads();
    unsigned *calls = dlsym(RTLD_DEFAULT, "second_calls");
    void *(*own)(size_t), (*own_free)(void *);
    *(void **)&own = dlsym(RTLD_DEFAULT, "hak_malloc");
    *(void **)&own_free = dlsym(RTLD_DEFAULT, "hak_free");
    for (size_t n = 1; own != NULL && n < 5000000; n *= 3)
        own_free(memset(own(n), 1, n));
    printf("malloc of %s, %s\n", object_of(find(RTLD_DEFAULT, "malloc")), calls == NULL || *calls == 0 ? "no calls" : "calls");
}

static void large(void)
{
    char *blocks[200];
    unsigned *calls = find(RTLD_DEFAULT, "second_calls");
    *calls = 0;
    for (size_t round = 0; round < 3; round++) {
        for (size_t i = 0; i < 200; i++) {
            size_t n = i * 40000 % 5000000 + 1;
            blocks[i] = memset(malloc(n), 1, n);
        }
        for (size_t i = 0; i < 200; i++)
            if ((blocks[i] = realloc(blocks[i], i * 54000 % 7000000 + 1)) == NULL || blocks[i][0] != 1)
                fail("content");
        for (size_t i = 0; i < 200; i++)
            free(blocks[i]);
        malloc_trim(0);
    }
    puts(*calls == 0 ? "no calls" : "calls");
}

/* --- dlopen ----------------------------------------------------------------------------------------------------------- */

static int (*use_thread_memory)(int);
static void (*forget)(void);
static pthread_barrier_t barrier;
static int rounds;

static void *second_thread(void *argument)
{
    for (int round = 0; round < rounds; round++) {
        pthread_barrier_wait(&barrier);   /* loaded */
        if (use_thread_memory(round) != 0 || use_thread_memory(round) != 0)
            fail("thread-local memory of the second thread");
        forget();
        pthread_barrier_wait(&barrier);
    }
    return argument;
}

static size_t resident(void)
{
    unsigned long total, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%lu %lu", &total, &pages) != 2)
        fail("statm");
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void cycles(const char *path)
{
    pthread_t thread;
    size_t settled = 0;
    pthread_barrier_init(&barrier, NULL, 2);
    if (pthread_create(&thread, NULL, second_thread, NULL) != 0)
        fail("pthread_create");
    for (int round = 0; round < rounds; round++) {
        void *library = dlopen(path, RTLD_NOW);
        if (library == NULL)
            fail("dlopen");
        char *(*make)(size_t);
        *(void **)&make = find(library, "plugin_make");
        *(void **)&use_thread_memory = find(library, "plugin_use_thread_memory");
        *(void **)&forget = find(library, "plugin_forget");
        char *block = make(1000);
        pthread_barrier_wait(&barrier);
        if (use_thread_memory(round) != 0 || use_thread_memory(round) != 0)
            fail("thread-local memory");
        pthread_barrier_wait(&barrier);
        forget();
        if (dlclose(library) != 0)
            fail("dlclose");
        free(block);   /* after the library has gone */
        if (round == rounds / 4)
            settled = resident();
    }
    pthread_join(thread, NULL);
    if (dlopen(path, RTLD_NOW | RTLD_NOLOAD) != NULL)
        fail("the library is still loaded");
    size_t now = resident();
    printf("grown by %zu\n", now > settled ? now - settled : 0);
}

/* --- pointers of another malloc --------------------------------------------------------------------------------------- */

static void call(const char *name, void *p)
{
    if (strcmp(name, "free") == 0)
        free(p);
    else if (strcmp(name, "realloc") == 0)
        p = realloc(p, 200000);
    else if (strcmp(name, "malloc_usable_size") == 0)
        printf("%zu\n", malloc_usable_size(p));
    else if (strcmp(name, "none") != 0)
        fail(name);
}

static void foreign(void *library, const char *what)
{
    if (library == NULL)
        fail("dlopen");
    char *(*make)(size_t);
    void (*release)(void *);
    void *(*address)(void);
    *(void **)&make = find(library, "plugin_make");
    *(void **)&release = find(library, "plugin_free");
    *(void **)&address = find(library, "plugin_malloc");
    for (size_t n = 10; n < 3000000; n *= 7) {
        char *block = make(n), *own = malloc(n);
        memset(own, 1, n);
        if (block[0] != 0x5a || block[n - 1] != 0x5a)
            fail("content");
        release(block);
        free(own);
    }
    use_threads();
    printf("%s\n", address() == (void *)(uintptr_t)malloc ? "the same malloc" : "another malloc");
    fflush(stdout);
    call(what, make(1000));
}

static void twice(const char *path, const char *what)
{
    void *library = dlmopen(LM_ID_NEWLM, path, RTLD_NOW);
    if (library == NULL)
        fail("dlmopen");
    void *(*own)(size_t);
    void (*own_free)(void *);
    *(void **)&own = find(library, "hak_malloc");
    *(void **)&own_free = find(library, "hak_free");
    for (size_t n = 1; n < 5000000; n *= 3) {
        void *theirs = memset(own(n), 1, n), *ours = memset(malloc(n), 2, n);
        own_free(theirs);
        free(ours);
    }
    use_threads();
    printf("%s\n", (void *)own == dlsym(RTLD_DEFAULT, "hak_malloc") ? "the same malloc" : "another malloc");
    fflush(stdout);
    call(what, own(1000));
}

int main(int count, char **arguments)
{
    const char *what = count > 1 ? arguments[1] : "";
    if (strcmp(what, "plain") == 0) {
        plain();
    } else if (strcmp(what, "large") == 0) {
        large();
    } else if (count != 4) {
        return 2;
    } else if (strcmp(what, "cycles") == 0) {
        rounds = atoi(arguments[3]);
        cycles(arguments[2]);
    } else if (strcmp(what, "namespace") == 0) {
        foreign(dlmopen(LM_ID_NEWLM, arguments[2], RTLD_NOW), arguments[3]);
    } else if (strcmp(what, "deepbind") == 0) {
        foreign(dlopen(arguments[2], RTLD_NOW | RTLD_DEEPBIND), arguments[3]);
    } else if (strcmp(what, "twice") == 0) {
        twice(arguments[2], arguments[3]);
    } else {
        return 2;
    }
    return 0;
}
