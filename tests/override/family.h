/* The functions that give blocks, by the C library's names and under one type. */
#ifndef HAK_TESTS_OVERRIDE_FAMILY_H
#define HAK_TESTS_OVERRIDE_FAMILY_H

#include "expect.h"

#include <errno.h>
#include <malloc.h>

/* Not declared by every C library. */
void cfree(void *p);
void free_sized(void *p, size_t n);
void free_aligned_sized(void *p, size_t align, size_t n);
void malloc_stats(void);

typedef void *give(size_t n);

static inline void *by_malloc(size_t n) { return malloc(n); }
static inline void *by_calloc(size_t n) { return calloc(1, n); }
static inline void *by_calloc_of_bytes(size_t n) { return calloc(n, 1); }
static inline void *by_realloc(size_t n) { return realloc(NULL, n); }
static inline void *by_reallocarray(size_t n) { return reallocarray(NULL, n, 1); }
static inline void *by_aligned_alloc(size_t n) { return aligned_alloc(64, n); }
static inline void *by_aligned_alloc_page(size_t n) { return aligned_alloc(4096, n); }
static inline void *by_memalign(size_t n) { return memalign(256, n); }
static inline void *by_valloc(size_t n) { return valloc(n); }
static inline void *by_pvalloc(size_t n) { return pvalloc(n); }
static inline void *by_posix_memalign(size_t n)
{
    void *p = NULL;
    int code = posix_memalign(&p, 128, n);
    expect(code == 0 || (code == ENOMEM && p == NULL));
    errno = code != 0 ? code : errno;   /* the others say it so */
    return p;
}

static const struct {
    const char *name;
    give *call;
    size_t align;
} family[] = {
    { "malloc", by_malloc, 16 },
    { "calloc", by_calloc, 16 },
    { "calloc of bytes", by_calloc_of_bytes, 16 },
    { "realloc", by_realloc, 16 },
    { "reallocarray", by_reallocarray, 16 },
    { "aligned_alloc", by_aligned_alloc, 64 },
    { "aligned_alloc of a page", by_aligned_alloc_page, 4096 },
    { "memalign", by_memalign, 256 },
    { "posix_memalign", by_posix_memalign, 128 },
    { "valloc", by_valloc, 4096 },
    { "pvalloc", by_pvalloc, 4096 },
};
enum { FAMILY = sizeof family / sizeof *family };

#endif
