/* Says which allocator serves this process, as a crash reporter or the head of a benchmark's results would. Needs no header and no
 * library of any of them: it asks for the symbols by which they tell their names. Build: cc which_allocator.c -ldl */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The name and version of the allocator that the program's malloc leads to. Allocates nothing; dlsym is not for signal handlers, so a
 * crash reporter calls it at start. */
static const char *allocator(char *text, size_t size)
{
    Dl_info place;
    const char *name = dlsym(RTLD_DEFAULT, "hakmem_allocator_version");   /* a text in the library's read-only data */
    const void *served = dlsym(RTLD_DEFAULT, "malloc");
    int (*mimalloc)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "mi_version");
    int (*jemalloc)(const char *, void *, size_t *, void *, size_t) = (int (*)(const char *, void *, size_t *, void *, size_t))dlsym(RTLD_DEFAULT, "mallctl");
    const char *version = "";
    size_t length = sizeof version;
    if (name != NULL)
        return name;
    if (mimalloc != NULL)
        snprintf(text, size, "mimalloc %d", mimalloc());
    else if (jemalloc != NULL && jemalloc("version", &version, &length, NULL, 0) == 0)
        snprintf(text, size, "jemalloc %s", version);
    else
        snprintf(text, size, "malloc of %s", served != NULL && dladdr(served, &place) != 0 ? place.dli_fname : "this program");
    return text;
}

int main(void)
{
    char text[256];
    puts(allocator(text, sizeof text));
    return 0;
}
