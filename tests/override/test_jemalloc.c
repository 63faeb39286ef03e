/* A program written for jemalloc, which calls its functions beside malloc's: whichever of them takes a block back, it is one of ours. */
#include "expect.h"

#include <malloc.h>
#include <pthread.h>

#include "hakmem.h"

/* As <jemalloc/jemalloc.h> declares them; weak, because the preloaded flavour is linked without. */
#define WEAK __attribute__((weak))
WEAK void *mallocx(size_t n, int flags);
WEAK void *rallocx(void *p, size_t n, int flags);
WEAK size_t xallocx(void *p, size_t n, size_t extra, int flags);
WEAK size_t sallocx(const void *p, int flags);
WEAK void dallocx(void *p, int flags);
WEAK void sdallocx(void *p, size_t n, int flags);
WEAK size_t nallocx(size_t n, int flags);

#define ALIGN(a) __builtin_ctzl(a)
#define ZERO 64
#define TCACHE_NONE 256
#define ARENA(a) (((a) + 1) << 20)

static const size_t sizes[] = { 1, 16, 100, 1024, 5000, 60000, 300000, 2000000 };
enum { SIZES = sizeof sizes / sizeof *sizes };

static bool is_clear(const char *from, const char *to)
{
    while (from < to && *from == 0)
        from++;
    return from >= to;
}

static void *dirty(size_t n)
{
    void *p = malloc(n);
    expect_block(p, n);
    return p;
}

static void frees_by_either(void)
{
    for (size_t i = 0; i < SIZES; i++) {
        size_t n = sizes[i];
        void *p = mallocx(n, TCACHE_NONE | ARENA(3));
        expect_block(p, n);
        expect(sallocx(p, 0) >= n && sallocx(p, 0) == malloc_usable_size(p) && sallocx(p, 0) == hak_usable_size(p));
        free(p);
        dallocx(dirty(n), TCACHE_NONE);
        sdallocx(dirty(n), n, 0);
        expect_block(p = mallocx(n, 0), n);
        sdallocx(p, sallocx(p, 0), 0);
        expect_block(p = rallocx(dirty(n), 2 * n, 0), 2 * n);
        expect_block(p = realloc(p, n), n);
        dallocx(p, 0);
    }
}

static void alignments(void)
{
    for (size_t i = 0; i < SIZES; i++)
        for (size_t align = 1; align <= 4 << 20; align *= 8) {
            size_t n = sizes[i];
            int flags = ALIGN(align);
            char *p = mallocx(n, flags);
            expect_block(p, n);
            expect((uintptr_t)p % align == 0 && sallocx(p, flags) >= n);
            expect_block(p = rallocx(p, 3 * n, flags), 3 * n);
            expect((uintptr_t)p % align == 0);
            sdallocx(p, 3 * n, flags);
        }
}

static void cleared(void)
{
    for (size_t i = 0; i < SIZES; i++)
        for (size_t align = 1; align <= 4096; align *= 64) {
            size_t n = sizes[i];
            int flags = ALIGN(align) | ZERO;
            free(dirty(n));
            char *p = mallocx(n, flags);
            size_t before = sallocx(p, flags);
            expect(p != NULL && is_clear(p, p + before));
            memset(p, 1, before);
            free(dirty(5 * n));
            expect((p = rallocx(p, 5 * n, flags)) != NULL);
            expect(is_clear(p + before, p + 5 * n));
            expect(p[0] == 1 && p[(before < 5 * n ? before : 5 * n) - 1] == 1);
            dallocx(p, flags);
        }
}

static void in_place(void)
{
    for (size_t i = 0; i < SIZES; i++) {
        void *p = mallocx(sizes[i], 0);
        size_t size = xallocx(p, sizes[i], 100, 0);
        expect(size >= sizes[i] && size == sallocx(p, 0));
        expect(xallocx(p, 10 * size, 0, 0) < 10 * size);
        expect(nallocx(sizes[i], 0) <= size && nallocx(sizes[i], 0) >= sizes[i]);
        dallocx(p, 0);
    }
}

static void refused(void)
{
    expect(mallocx(SIZE_MAX / 2 + 2, 0) == NULL && mallocx(SIZE_MAX / 2 + 2, ZERO) == NULL);
    char *p = dirty(100);
    expect(rallocx(p, SIZE_MAX / 2 + 2, 0) == NULL && p[99] == 0x5a);
    dallocx(p, 0);
}

static void *other_thread(void *p)
{
    sdallocx(p, 100, 0);
    return mallocx(200, ZERO);
}

static void threads(void)
{
    pthread_t thread;
    void *p = NULL;
    expect(pthread_create(&thread, NULL, other_thread, mallocx(100, 0)) == 0 && pthread_join(thread, &p) == 0);
    expect(p != NULL && is_clear(p, (char *)p + 200));
    free(p);
}

int main(void)
{
    frees_by_either();
    alignments();
    cleared();
    in_place();
    refused();
    threads();
    return 0;
}
