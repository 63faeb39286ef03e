/* A malloc that reuses nothing and knows exactly what is live: preloaded, it prints the bytes asked for and not freed when the program
 * ends. bench/test_bench.py compares that with what drift says of itself. */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HEADER = 16, CHUNK = 64 << 20 };

static char *at, *end;
static size_t live;

__attribute__((visibility("default"))) void *malloc(size_t size)
{
    size_t bytes = (size + HEADER + 15) & ~(size_t)15;
    if ((size_t)(end - at) < bytes) {
        size_t chunk = bytes > CHUNK ? bytes : CHUNK;
        char *p = mmap(NULL, chunk, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) {
            errno = ENOMEM;
            return NULL;
        }
        at = p;
        end = p + chunk;
    }
    char *block = at;
    at += bytes;
    *(size_t *)(void *)block = size;
    live += size;
    return block + HEADER;
}

__attribute__((visibility("default"))) void free(void *p)
{
    if (p != NULL) {
        live -= *(size_t *)(void *)((char *)p - HEADER);
    }
}

__attribute__((visibility("default"))) void *calloc(size_t n, size_t size) { return malloc(n * size); }

__attribute__((visibility("default"))) void *realloc(void *p, size_t size)
{
    void *q = malloc(size);
    if (p != NULL && q != NULL) {
        size_t old = *(size_t *)(void *)((char *)p - HEADER);
        memcpy(q, p, old < size ? old : size);
        free(p);
    }
    return q;
}

__attribute__((destructor)) static void say(void)
{
    char line[64];
    int length = snprintf(line, sizeof line, "exactly_live=%zu\n", live);
    if (write(STDOUT_FILENO, line, (size_t)length) != length) {
        _exit(1);
    }
}
