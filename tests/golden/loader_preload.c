/* A second preloaded library. With -DWRAPS it wraps malloc and its kin, counts the calls and passes them on to the next
 * library; with -DREPLACES it is an allocator of its own, which never reuses memory; without either it only allocates in
 * its constructor. With -DAUDITS it is an auditor of the dynamic linker. Built by test_loader.py. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

unsigned second_calls;

#if defined(WRAPS)

static void *next(const char *name) { return dlsym(RTLD_NEXT, name); }

#define WRAP(ret, name, params, args) \
    ret name params; \
    ret name params \
    { \
        static ret (*real) params; \
        if (real == NULL) \
            *(void **)&real = next(#name); \
        __atomic_fetch_add(&second_calls, 1, __ATOMIC_RELAXED); \
        return real args; \
    }

WRAP(void *, malloc, (size_t n), (n))
WRAP(void *, calloc, (size_t count, size_t n), (count, n))
WRAP(void *, realloc, (void *p, size_t n), (p, n))
WRAP(void, free, (void *p), (p))
WRAP(int, posix_memalign, (void **p, size_t align, size_t n), (p, align, n))
WRAP(void *, aligned_alloc, (size_t align, size_t n), (align, n))

#elif defined(REPLACES)

static char memory[512 << 20] __attribute__((aligned(4096)));
static size_t used;

static void *take(size_t align, size_t n)
{
    __atomic_fetch_add(&second_calls, 1, __ATOMIC_RELAXED);
    size_t need = n + 16 + align, at = __atomic_fetch_add(&used, need, __ATOMIC_RELAXED);
    if (n > sizeof memory || at + need > sizeof memory)
        return NULL;
    char *p = (char *)(((uintptr_t)memory + at + 16 + align - 1) / align * align);
    memcpy(p - 16, &n, sizeof n);
    return p;
}

void *malloc(size_t n) { return take(16, n); }
void *calloc(size_t count, size_t n) { return take(16, count * n); }
void free(void *p) { (void)p; }
void *aligned_alloc(size_t align, size_t n) { return take(align < 16 ? 16 : align, n); }
void *realloc(void *p, size_t n)
{
    size_t old = 0;
    void *q = take(16, n);
    if (p != NULL && q != NULL) {
        memcpy(&old, (char *)p - 16, sizeof old);
        memcpy(q, p, old < n ? old : n);
    }
    return q;
}
int posix_memalign(void **p, size_t align, size_t n)
{
    *p = take(align < 16 ? 16 : align, n);
    return *p == NULL ? 12 : 0;
}

#elif defined(AUDITS)

#include <link.h>

/* Lives in a namespace of its own, with a C library and a malloc of its own, from before the program is loaded. Several
 * threads come here when they bind their symbols. */
static void *kept[100];
static char busy;

static void allocate(void)
{
    while (__atomic_test_and_set(&busy, __ATOMIC_ACQUIRE))
        continue;
    for (int i = 0; i < 100; i++) {
        free(kept[i]);
        kept[i] = malloc((size_t)i * 100 + 1);
        memset(kept[i], i, (size_t)i * 100 + 1);
    }
    __atomic_clear(&busy, __ATOMIC_RELEASE);
}

unsigned la_version(unsigned version)
{
    allocate();
    return version;
}

unsigned la_objopen(struct link_map *map, Lmid_t space, uintptr_t *cookie)
{
    (void)map, (void)space, (void)cookie;
    allocate();
    return LA_FLG_BINDTO | LA_FLG_BINDFROM;
}

uintptr_t la_symbind64(Elf64_Sym *symbol, unsigned index, uintptr_t *from, uintptr_t *to, unsigned *flags,
                       const char *name)
{
    (void)index, (void)from, (void)to, (void)flags, (void)name;
    allocate();
    return symbol->st_value;
}

void la_preinit(uintptr_t *cookie)
{
    (void)cookie;
    allocate();
}

#else

static void *kept[100];

__attribute__((constructor)) static void construct(void)
{
    for (int i = 0; i < 100; i++) {
        kept[i] = malloc((size_t)i * 1000 + 1);
        memset(kept[i], i, (size_t)i * 1000 + 1);
    }
}

__attribute__((destructor)) static void destruct(void)
{
    for (int i = 0; i < 100; i++) {
        if (((char *)kept[i])[i * 1000] != i)
            abort();
        free(kept[i]);
        second_calls++;
    }
}

#endif
