// Frees and resizes blocks of the C library's malloc, which HAKMEM_MISUSE=report gives to the C library: from its main arena, from a
// thread's, and mapped ones; and frees what only looks a little like them. Prints "fine".
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void *(*others_malloc)(size_t);

static void expect(int holds, const char *what)
{
    if (!holds)
        fprintf(stderr, "strays: %s\n", what), _exit(1);
}

static void small(size_t n)
{
    char *p = others_malloc(n), *behind = others_malloc(n);
    memset(p, 'x', n);
    expect(malloc_usable_size(p) >= n, "usable size");
    p = realloc(p, 3 * n);
    expect(p != NULL && p[0] == 'x' && p[n - 1] == 'x', "realloc keeps what was there");
    free(p);
    free(p); /* again */
    free(behind);
    expect(n > 1000 || others_malloc(n) == behind, "the C library has its block back");
    free(p + 16);
}

static void *in_thread(void *argument)
{
    (void)argument;
    small(100);
    small(5000);
    return NULL;
}

static void mapped(void)
{
    size_t n = 4 << 20;
    char *p = others_malloc(n);
    unsigned char resident;
    memset(p, 1, n);
    free(p + 4096);
    free(p);
    expect(mincore((void *)((uintptr_t)p & ~4095ul), 4096, &resident) != 0, "a mapped block is unmapped");
}

static void similar(void)
{
    static size_t data[32];
    size_t local[32];
    size_t *page = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t *all[] = { data, local, page, page + 512 };
    for (unsigned i = 0; i < 4; i++)
        for (size_t head = 0; head < 256; head++) {
            size_t *p = all[i] + 2 + ((uintptr_t)(all[i] + 2) % 16 != 0);
            p[-1] = head << (head % 3) | (head & 7);
            free(p);
            expect(p[-1] == (head << (head % 3) | (head & 7)), "what is no block stays as it is");
        }
}

int main(void)
{
    pthread_t thread;
    void *c_library = dlopen("libc.so.6", RTLD_LAZY);
    others_malloc = c_library == NULL ? NULL : (void *(*)(size_t))dlsym(c_library, "malloc");
    expect(others_malloc != NULL && others_malloc != malloc, "there is another malloc");
    small(100);
    small(1200);
    expect(pthread_create(&thread, NULL, in_thread, NULL) == 0 && pthread_join(thread, NULL) == 0, "a thread");
    mapped();
    similar();
    puts("fine");
    return 0;
}
