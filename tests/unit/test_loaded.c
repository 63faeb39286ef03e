/* What the loaded objects export is found without the dynamic linker's help, and as it finds it. */
#include "os/loaded.h"
#include "support/check.h"

#include <dlfcn.h>
#include <string.h>

/* Of several versions the default one, objects as well as functions, first and last entries of long chains: many names. */
static const char *const names[] = {
    "abort", "atexit", "atoi", "calloc", "clock", "close", "dl_iterate_phdr", "dup2", "environ", "execv", "exit", "fclose",
    "fopen", "fputs", "getenv", "getpid", "glob", "kill", "labs", "lseek", "mkdir", "nftw", "open", "optarg", "pipe", "poll",
    "posix_spawn", "pthread_cond_wait", "pthread_create", "pthread_key_create", "puts", "qsort", "raise", "read", "readdir",
    "regexec", "rename", "sem_open", "setenv", "signal", "sleep", "snprintf", "stderr", "strdup", "strtol", "system", "wait",
    "write",
};

static void found_as_by_dlsym(void **state)
{
    (void)state;
    unsigned known = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *expected = dlsym(RTLD_DEFAULT, names[i]);
        known += expected != NULL;
        expect(hak__loaded_first(names[i]) == expected);
    }
    expect(known > 40);
}

static void found_for_an_object(void **state)
{
    (void)state;
    void *open_file = dlsym(RTLD_DEFAULT, "fopen");
    expect(hak__loaded_for((const void *)(uintptr_t)found_for_an_object, "fopen") == open_file); /* its library's */
    expect(hak__loaded_for(open_file, "fopen") == open_file); /* its own */
    expect(hak__loaded_for(&open_file, "fopen") == open_file); /* anybody's */
    expect(hak__loaded_for(NULL, "fopen") == open_file);
}

static void order(void **state)
{
    (void)state;
    const void *here = (const void *)(uintptr_t)order, *library = dlsym(RTLD_DEFAULT, "labs");
    int local = 0; /* labs: sanitizers put nothing before it */
    expect(hak__loaded_before(here, library));
    expect(!hak__loaded_before(library, here));
    expect(hak__loaded_before(library, library));
    expect(hak__loaded_before(here, &local));
    expect(!hak__loaded_before(&local, &local)); /* in none */
}

static void missing(void **state)
{
    (void)state;
    static const char *const none[] = { "", "fope", "fopenn", "no such function", "__libc_no_such_function" };
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        expect(hak__loaded_first(none[i]) == NULL);
        expect(hak__loaded_for((const void *)(uintptr_t)missing, none[i]) == NULL);
    }
}

/* Without a lock: a function's module, with its name and its tables; none of the stack. (Mapped memory may fill a hole in a module.) */
static void modules_by_address(void **state)
{
    static int data;
    struct hak_module program, library, none = { .name = "as before" };
    uintptr_t libc_at = (uintptr_t)dlsym(RTLD_DEFAULT, "labs"), main_at = (uintptr_t)modules_by_address;
    (void)state;
    hak__loaded_begin();
    expect(hak__loaded_at(main_at, &program) && hak__loaded_at(libc_at, &library));
    expect(program.start <= main_at && main_at < program.end && program.name[0] == 0);
    expect(library.start <= libc_at && libc_at < library.end && strstr(library.name, "/lib") != NULL);
    expect((uintptr_t)program.tables - program.start < program.end - program.start);
    expect(hak__loaded_at((uintptr_t)&data, &library) && library.base == program.base);
    expect(!hak__loaded_at((uintptr_t)&none, &none) && strcmp(none.name, "as before") == 0);
}

/* On a C library without the search the same holds for what was there at the start; a name is found behind the asking module alone. */
static void without_the_search(void **state)
{
    struct hak_module program, library;
    int (*search)(void *, struct unwind_object *) = hak__loaded_search;
    uintptr_t libc_at = (uintptr_t)dlsym(RTLD_DEFAULT, "labs"), main_at = (uintptr_t)without_the_search;
    (void)state;
    hak__loaded_search = NULL;
    hak__loaded_know();
    expect(hak__loaded_at(main_at, &program) && hak__loaded_at(libc_at, &library) && library.start != program.start);
    expect(hak__loaded_after((void *)main_at, "labs") == (void *)libc_at);
    expect(hak__loaded_after((void *)main_at, "no_such_function") == NULL);
    expect(hak__loaded_after((void *)libc_at, "labs") == NULL && hak__loaded_after(&search, "labs") == NULL);
    hak__loaded_search = search;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(found_as_by_dlsym), cmocka_unit_test(found_for_an_object), cmocka_unit_test(missing),
        cmocka_unit_test(order), cmocka_unit_test(modules_by_address),
        cmocka_unit_test(without_the_search),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
