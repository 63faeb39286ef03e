/* Every name that the C library's malloc has is the library's, in each way of linking, and does what it is for. */
#include "expect.h"

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>

#include "hakmem.h"

/* Not declared by every C library. */
void cfree(void *p);
void free_sized(void *p, size_t n);
void free_aligned_sized(void *p, size_t align, size_t n);
void malloc_stats(void);
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t count, size_t n);
void *__libc_realloc(void *p, size_t n);
void __libc_free(void *p);
void *__libc_memalign(size_t align, size_t n);
void *__libc_valloc(size_t n);
void *__libc_pvalloc(size_t n);

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* mallinfo is, and programs use it all the same */

#define SAME(name, own) { #name, (void *)(uintptr_t)name, (void *)(uintptr_t)own }

static const struct {
    const char *name;
    void *volatile libc, *volatile own; /* a compiler may take it that no two names have one address */
} names[] = {
    SAME(malloc, hak_malloc),
    SAME(calloc, hak_calloc),
    SAME(realloc, hak_realloc),
    SAME(reallocarray, NULL),
    SAME(free, hak_free),
    SAME(free_sized, hak_free_sized),
    SAME(free_aligned_sized, hak_free_aligned_sized),
    SAME(aligned_alloc, hak_aligned_alloc),
    SAME(memalign, hak_memalign),
    SAME(posix_memalign, hak_posix_memalign),
    SAME(valloc, hak_valloc),
    SAME(malloc_usable_size, NULL),
#if defined(__GLIBC__)
    SAME(cfree, hak_free),
    SAME(pvalloc, hak_pvalloc),
    SAME(malloc_trim, NULL),
    SAME(malloc_info, NULL),
    SAME(malloc_stats, NULL),
    SAME(mallinfo, NULL),
    SAME(mallinfo2, NULL),
    SAME(mallopt, NULL),
    SAME(__libc_malloc, hak_malloc),
    SAME(__libc_calloc, hak_calloc),
    SAME(__libc_realloc, hak_realloc),
    SAME(__libc_free, hak_free),
    SAME(__libc_memalign, hak_memalign),
    SAME(__libc_valloc, hak_valloc),
    SAME(__libc_pvalloc, hak_pvalloc),
#endif
};

/* A true alias has its target's address; the rest lies at least in the same object. */
static void addresses(void)
{
    Dl_info ours, theirs;
    int known = dladdr((void *)(uintptr_t)hak_malloc, &ours);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        expect(names[i].own == NULL || names[i].libc == names[i].own);
        expect(!known || (dladdr(names[i].libc, &theirs) && theirs.dli_fbase == ours.dli_fbase));
    }
}

static void behaviour(void)
{
    for (size_t n = 1; n < 5000000; n = n * 3 + 1) {
        void *p = NULL;
        expect_block(p = malloc(n), n);
        expect(malloc_usable_size(p) >= n);
        expect_block(p = realloc(p, 2 * n), 2 * n);
        expect_block(p = reallocarray(p, 3, n), 3 * n);
        free(p);
        p = calloc(n, 1);
        expect(((char *)p)[0] == 0 && ((char *)p)[n - 1] == 0);
        cfree(p);
        expect_block(p = aligned_alloc(64, n), n);
        expect((uintptr_t)p % 64 == 0);
        free_aligned_sized(p, 64, n);
        expect_block(p = memalign(4096, n), n);
        expect((uintptr_t)p % 4096 == 0);
        free(p);
        expect(posix_memalign(&p, 256, n) == 0);
        expect((uintptr_t)p % 256 == 0);
        free(p);
        expect_block(p = valloc(n), n);
        free(p);
        expect_block(p = pvalloc(n), n);
        free(p);
        expect_block(p = malloc(n), n);
        free_sized(p, n);
    }
}

static void errors(void)
{
    void *p;
    errno = 0;
    expect(malloc(SIZE_MAX) == NULL && errno == ENOMEM);
    errno = 0;
    expect(calloc(SIZE_MAX, 2) == NULL && errno == ENOMEM);
    errno = 0;
    expect(reallocarray(NULL, SIZE_MAX, 2) == NULL && errno == ENOMEM);
    errno = 77;
    expect(posix_memalign(&p, 3, 1) == EINVAL && errno == 77);
    expect(aligned_alloc(3, 1) == NULL && errno == EINVAL);
    errno = 77;
    free(NULL);
    free(malloc(1000));
    expect(errno == 77);
    expect(malloc_usable_size(NULL) == 0);
    expect(realloc(malloc(10), 0) == NULL);
}

/* What the C library allocates by itself comes from here as well: its strings are ours to measure. */
static void blocks_of_the_c_library(void)
{
    char *line = NULL, *text = strdup("some text");
    size_t size = 0;
    FILE *file = tmpfile();
    expect(malloc_usable_size(text) >= 10);
    free(text);
    expect(asprintf(&text, "%s %d", "text", 5) == 6 && malloc_usable_size(text) >= 7);
    free(text);
    expect(file != NULL && fputs("a line\n", file) >= 0);
    rewind(file);
    expect(getline(&line, &size, file) == 7 && malloc_usable_size(line) >= size);
    free(line);
    fclose(file);
}

int main(void)
{
    addresses();
    behaviour();
    errors();
    blocks_of_the_c_library();
    return 0;
}
