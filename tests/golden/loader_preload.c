/* A second preloaded library. With -DWRAPS it wraps malloc and its kin, counts the calls and passes them on to the next
 * library; with -DREPLACES it is an allocator of its own, which never reuses memory; without either it only allocates in
 * its constructor. With -DNOTES it wraps the C library's functions for system calls, and each wrapper
 * allocates, as a tracer's may. With -DAUDITS it is an auditor of the dynamic linker. Built by test_loader.py. */
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

#elif defined(NOTES)

#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

/* What a tracer does to note a call: of all sizes, so that some of it takes a system call again. */
static void note(void)
{
    static _Thread_local int inside;
    __atomic_fetch_add(&second_calls, 1, __ATOMIC_RELAXED);
    if (inside++ == 0)
        for (size_t i = 0; i < 40; i++)
            free(malloc(i * 100000 + 40));
    inside--;
}

static long call(long number, long a, long b, long c, long d, long e, long f)
{
    static long (*real)(long, ...);
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "syscall");
    note();
    return real(number, a, b, c, d, e, f);
}

void *mmap(void *p, size_t n, int rights, int flags, int file, off_t at)
{
    return (void *)call(SYS_mmap, (long)p, (long)n, rights, flags, file, at);
}
int munmap(void *p, size_t n) { return (int)call(SYS_munmap, (long)p, (long)n, 0, 0, 0, 0); }
int madvise(void *p, size_t n, int advice) { return (int)call(SYS_madvise, (long)p, (long)n, advice, 0, 0, 0); }
int clock_gettime(clockid_t clock, struct timespec *time) { return (int)call(SYS_clock_gettime, clock, (long)time, 0, 0, 0, 0); }
void *mremap(void *p, size_t had, size_t n, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    void *to = va_arg(more, void *);
    va_end(more);
    return (void *)call(SYS_mremap, (long)p, (long)had, (long)n, flags, (long)to, 0);
}
long syscall(long number, ...)
{
    va_list more;
    long a[6];
    va_start(more, number);
    for (unsigned i = 0; i < 6; i++)
        a[i] = va_arg(more, long);
    va_end(more);
    return call(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

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
