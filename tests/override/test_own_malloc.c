/* A program with a malloc of its own, of the names that glibc's manual asks for: reallocarray, which it lacks, takes its blocks, not the
 * library's. */
// test: flavours=preload,shared
#include "expect.h"

#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-dealloc"
#pragma GCC diagnostic ignored "-Wfree-nonheap-object"
#endif

void *memalign(size_t align, size_t n);
void *pvalloc(size_t n);
size_t malloc_usable_size(void *p);

enum { HEAD = 16, PAGE = 4096 };
static char room[1 << 20] __attribute__((aligned(PAGE)));
static size_t used;

static bool is_here(const void *p) { return (const char *)p > room && (const char *)p < room + sizeof room; }

void *memalign(size_t align, size_t n)
{
    size_t at = (used + HEAD + align - 1) & ~(align - 1);
    expect(at + n < sizeof room);
    used = at + n;
    memcpy(room + at - HEAD, &n, sizeof n);
    return room + at;
}
size_t malloc_usable_size(void *p)
{
    size_t n = 0;
    if (p != NULL)
        memcpy(&n, (char *)p - HEAD, sizeof n);
    return n;
}
void *malloc(size_t n) { return memalign(HEAD, n); }
void *calloc(size_t count, size_t size) { return memset(malloc(count * size), 0, count * size); }
void *realloc(void *p, size_t n)
{
    size_t have = malloc_usable_size(p);
    expect(p == NULL || is_here(p));
    return have == 0 ? malloc(n) : memcpy(malloc(n), p, have < n ? have : n);
}
void free(void *p)
{
    expect(p == NULL || is_here(p));
}
void *aligned_alloc(size_t align, size_t n) { return memalign(align, n); }
void *valloc(size_t n) { return memalign(PAGE, n); }
void *pvalloc(size_t n) { return memalign(PAGE, n); }
int posix_memalign(void **out, size_t align, size_t n)
{
    *out = memalign(align, n);
    return 0;
}

int main(void)
{
    char *text = reallocarray(NULL, 10, 10);
    expect(is_here(text));
    strcpy(text, "kept");
    text = reallocarray(text, 100, 10);
    expect(is_here(text) && strcmp(text, "kept") == 0);
    expect(reallocarray(text, SIZE_MAX / 2, 3) == NULL);
    free(text);
    return 0;
}
