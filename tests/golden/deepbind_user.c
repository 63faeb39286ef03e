/* Opens libraries with RTLD_DEEPBIND and exchanges blocks with them, and has them opened by others. Run by test_deepbind.py.
 *
 *   deepbind_user malloc PLUGIN                whose malloc an opened library uses: "the same malloc" or "another malloc"
 *   deepbind_user exchange PLUGIN              frees and reallocs its blocks, and lets it free and realloc the program's
 *   deepbind_user threads PLUGIN               the same from four threads that all open and close it
 *   deepbind_user callers CALLER CALLER NAME   what each of two libraries gets when it opens the name, one after the other
 *   deepbind_user namespace CALLER NAME        the same for a library in a namespace of its own
 *   deepbind_user missing                      what dlerror() says of a library that is not there */
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

enum { THREADS = 4, ROUNDS = 200, DEEP = RTLD_NOW | RTLD_DEEPBIND };

static void fail(const char *what)
{
    const char *why = dlerror();
    fprintf(stderr, "%s: %s\n", what, why == NULL ? "is wrong" : why);
    exit(1);
}

static void *find(void *library, const char *name)
{
    void *symbol = library == NULL ? NULL : dlsym(library, name);
    if (symbol == NULL)
        fail(name);
    return symbol;
}

static void say_malloc(const char *path)
{
    void *(*address)(void);
    *(void **)&address = find(dlopen(path, DEEP), "plugin_malloc");
    printf("%s\n", address() == (void *)(uintptr_t)malloc ? "the same malloc" : "another malloc");
}

static void exchange_with(void *library)
{
    char *(*make)(size_t);
    void (*release)(void *);
    void *(*change)(void *, size_t);
    *(void **)&make = find(library, "plugin_make");
    *(void **)&release = find(library, "plugin_free");
    *(void **)&change = find(library, "plugin_realloc");
    for (size_t n = 1; n < 3000000; n *= 3) {
        char *theirs = make(n), *ours = memset(malloc(n), 1, n);
        if (theirs[n - 1] != 0x5a || malloc_usable_size(theirs) < n)
            fail("content");
        theirs = realloc(theirs, 2 * n);
        ours = change(ours, 2 * n);
        if (theirs == NULL || theirs[n - 1] != 0x5a || ours == NULL || ours[n - 1] != 1)
            fail("content after realloc");
        free(theirs);
        release(ours);
        release(strdup("of the C library"));
        free(change(NULL, n));
    }
}

static void exchange(const char *path)
{
    exchange_with(dlopen(path, DEEP));
    exchange_with(dlmopen(LM_ID_BASE, path, DEEP));
    exchange_with(dlopen(path, RTLD_LAZY | RTLD_GLOBAL | RTLD_DEEPBIND));
    printf("exchanged\n");
}

static void *opens_and_closes(void *path)
{
    for (int round = 0; round < ROUNDS; round++) {
        void *library = dlopen(path, DEEP);
        exchange_with(library);
        dlclose(library);
    }
    return NULL;
}

static void use_threads(char *path)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, opens_and_closes, path) != 0)
            fail("pthread_create");
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("exchanged\n");
}

static void say_opened(void *caller, const char *name, int mode)
{
    int (*opens)(const char *, int);
    *(void **)&opens = find(caller, "caller_opens");
    printf(" %d", opens(name, mode));
}

static void callers(char **arguments)
{
    static const int modes[] = { RTLD_NOW, DEEP, RTLD_NOW | RTLD_GLOBAL };
    for (int mode = 0; mode < 3; mode++)
        for (int i = 0; i < 2; i++)
            say_opened(dlopen(arguments[i], modes[mode]), arguments[2], modes[mode]);
    void *mine = dlopen(arguments[2], RTLD_NOW);
    printf(" %s\n", mine == NULL ? "none" : "one");
}

static void namespace(const char *path, const char *name)
{
    void *caller = dlmopen(LM_ID_NEWLM, path, DEEP);
    Lmid_t space = LM_ID_BASE;
    say_opened(caller, name, RTLD_NOW);
    if (dlinfo(caller, RTLD_DI_LMID, &space) != 0)
        fail("dlinfo");
    printf(" %s\n", space == LM_ID_BASE ? "here" : "elsewhere");
}

static void missing(void)
{
    void *library = dlopen("libnosuch.so", DEEP);
    printf("%s %s\n", library == NULL ? "none" : "one", dlerror());
}

int main(int count, char **arguments)
{
    const char *what = count > 1 ? arguments[1] : "";
    if (strcmp(what, "malloc") == 0 && count == 3)
        say_malloc(arguments[2]);
    else if (strcmp(what, "exchange") == 0 && count == 3)
        exchange(arguments[2]);
    else if (strcmp(what, "threads") == 0 && count == 3)
        use_threads(arguments[2]);
    else if (strcmp(what, "callers") == 0 && count == 5)
        callers(arguments + 2);
    else if (strcmp(what, "namespace") == 0 && count == 4)
        namespace(arguments[2], arguments[3]);
    else if (strcmp(what, "missing") == 0)
        missing();
    else
        return 2;
    return 0;
}
