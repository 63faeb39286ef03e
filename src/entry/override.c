/* The names of malloc's family that C libraries have in common, and of C++'s operators new and delete: each an alias of its hak_
 * function, or a few lines that add what the standard asks. Compiled only where the library replaces malloc. */
#if HAK_OVERRIDE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena/arena.h"
#include "diag/report.h"
#include "entry/cxx.h"
#include "hakmem.h"
#include "huge/huge.h"
#include "kinds/kind.h"
#include "os/loaded.h"
#include "process/request.h"
#include "stats/stats.h"

/* --- the C library's names ------------------------------------------------------------------------------------- */

HAK_FORWARD(void *, malloc, hak_malloc, (size_t n), (n))
HAK_FORWARD(void *, calloc, hak_calloc, (size_t count, size_t size), (count, size))
HAK_FORWARD(void *, realloc, hak_realloc, (void *p, size_t n), (p, n))
HAK_FORWARD_VOID(free, hak_free, (void *p), (p))
HAK_FORWARD_VOID(free_sized, hak_free_sized, (void *p, size_t n), (p, n))
HAK_FORWARD_VOID(free_aligned_sized, hak_free_aligned_sized, (void *p, size_t align, size_t n), (p, align, n))
HAK_FORWARD(void *, aligned_alloc, hak_aligned_alloc, (size_t align, size_t n), (align, n))
HAK_FORWARD(void *, memalign, hak_memalign, (size_t align, size_t n), (align, n))
HAK_FORWARD(int, posix_memalign, hak_posix_memalign, (void **out, size_t align, size_t n), (out, align, n))
HAK_FORWARD(void *, valloc, hak_valloc, (size_t n), (n))
HAK_FORWARD(size_t, malloc_usable_size, hak_usable_size, (void *p), (p))

/* A program with a malloc of its own need not have this name, which came late. Like the C library's, it then calls what there is. */
hak_export extern void *realloc_in_use(void *p, size_t n) __asm__("realloc");
hak_export void *reallocarray(void *p, size_t count, size_t size);

hak_export void *reallocarray(void *p, size_t count, size_t size)
{
    size_t n;
    bool replaced = realloc_in_use != hak_realloc && !__builtin_mul_overflow(count, size, &n);
    return hak_unlikely(replaced) ? realloc_in_use(p, n) : hak_reallocarray(p, count, size);
}

/* --- what only glibc has ----------------------------------------------------------------------------------------- */

/* <malloc.h> is not included: how much of this it declares depends on its version (struct mallinfo2 is glibc 2.33's). */
#if defined(__GLIBC__)

HAK_FORWARD(void *, pvalloc, hak_pvalloc, (size_t n), (n))
HAK_FORWARD_VOID(cfree, hak_free, (void *p), (p))
/* The C library exports its own functions by these names too. A program that calls them frees their blocks with free. */
HAK_FORWARD(void *, __libc_malloc, hak_malloc, (size_t n), (n))
HAK_FORWARD(void *, __libc_calloc, hak_calloc, (size_t count, size_t size), (count, size))
HAK_FORWARD(void *, __libc_realloc, hak_realloc, (void *p, size_t n), (p, n))
HAK_FORWARD_VOID(__libc_free, hak_free, (void *p), (p))
HAK_FORWARD(void *, __libc_memalign, hak_memalign, (size_t align, size_t n), (align, n))
HAK_FORWARD(void *, __libc_valloc, hak_valloc, (size_t n), (n))
HAK_FORWARD(void *, __libc_pvalloc, hak_pvalloc, (size_t n), (n))

/* As <malloc.h> declares them. */
struct glibc_mallinfo {
    int arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
struct glibc_mallinfo2 {
    size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
hak_export int malloc_trim(size_t pad);
hak_export int mallopt(int parameter, int value);
hak_export void malloc_stats(void);
hak_export struct glibc_mallinfo2 mallinfo2(void);
hak_export struct glibc_mallinfo mallinfo(void);
hak_export int malloc_info(int options, FILE *stream);

hak_export int malloc_trim(size_t pad)
{
    (void)pad;
    return hak_collect() != 0;
}

/* Accepts the C library's tuning knobs without effect: they describe another allocator. */
hak_export int mallopt(int parameter, int value)
{
    (void)parameter, (void)value;
    return 1;
}

hak_export void malloc_stats(void) { hak_stats_print(2); }

/* The library's figures in the C library's terms: arena = mapped without huge blocks, uordblks = live, fordblks = the rest. */
static hak_cold struct glibc_mallinfo2 info_of(const struct hak_stats *stats)
{
    struct glibc_mallinfo2 info = { .hblks = stats->huge_live,
                                    .hblkhd = stats->bytes_huge,
                                    .uordblks = stats->bytes_live,
                                    .keepcost = stats->bytes_free_dirty,
                                    .usmblks = stats->total_peak_bytes };
    info.arena = stats->bytes_mapped > stats->bytes_huge ? stats->bytes_mapped - stats->bytes_huge : 0;
    info.fordblks = info.arena > info.uordblks ? info.arena - info.uordblks : 0;
    for (unsigned c = 0; c < HAK_CLASSES; c++)
        info.ordblks += stats->classes[c].cached;
    return info;
}

hak_export struct glibc_mallinfo2 mallinfo2(void)
{
    struct hak_stats *stats = hak__arena_top() == 0 ? NULL : hak__snapshot_take();
    if (stats == NULL)
        return (struct glibc_mallinfo2){ 0 };
    struct glibc_mallinfo2 info = info_of(stats);
    hak__snapshot_give(stats);
    return info;
}

hak_export struct glibc_mallinfo mallinfo(void)
{
    struct glibc_mallinfo2 wide = mallinfo2();
    return (struct glibc_mallinfo){ .arena = (int)wide.arena,
                                    .ordblks = (int)wide.ordblks,
                                    .hblks = (int)wide.hblks,
                                    .hblkhd = (int)wide.hblkhd,
                                    .usmblks = (int)wide.usmblks,
                                    .uordblks = (int)wide.uordblks,
                                    .fordblks = (int)wide.fordblks,
                                    .keepcost = (int)wide.keepcost };
}

/* Separate, because fprintf takes more stack than all else here. */
static hak_cold void info_line(FILE *stream, const char *format, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    char line[256];
    hak__format(line, sizeof line, format, a, b, c, d);
    fputs(line, stream);
}

static hak_cold void info_classes(FILE *stream, const struct hak_stats *stats)
{
    for (unsigned c = 0; c < HAK_CLASSES; c++) {
        const struct hak_stats_class *class = &stats->classes[c];
        uint64_t size = hak__classes[c].size, from = c == 0 ? 1 : (uint64_t)hak__classes[c - 1].size + 1;
        if (class->refilled != 0)
            info_line(stream, "  <size from=\"%u\" to=\"%u\" total=\"%u\" count=\"%u\"/>\n", from, size, size * class->cached,
                      class->cached);
    }
}

/* The C library's outermost elements as far as they apply; one <size> per class with free blocks. */
hak_export int malloc_info(int options, FILE *stream)
{
    if (options != 0)
        return EINVAL;
    struct hak_stats *stats = hak__snapshot_take();
    if (stats == NULL)
        return ENOMEM;
    struct glibc_mallinfo2 info = info_of(stats);
    fputs("<malloc version=\"hakmem-" HAK_VERSION_STRING "\">\n<heap nr=\"0\">\n<sizes>\n", stream);
    info_classes(stream, stats);
    info_line(stream,
              "</sizes>\n<total type=\"fast\" count=\"%u\" size=\"%u\"/>\n<total type=\"rest\" count=\"%u\" size=\"%u\"/>\n",
              info.ordblks, stats->bytes_cached, 0, info.fordblks);
    info_line(stream,
              "<total type=\"mmap\" count=\"%u\" size=\"%u\"/>\n<system type=\"current\" size=\"%u\"/>\n<system type=\"max\" "
              "size=\"%u\"/>\n",
              info.hblks, info.hblkhd, info.arena + info.hblkhd, info.usmblks);
    fputs("</heap>\n</malloc>\n", stream);
    hak__snapshot_give(stats);
    return 0;
}

#endif

/* --- C++ ----------------------------------------------------------------------------------------------------------- */

/* Finds the runtime that throws std::bad_alloc for the caller: a runtime present at program start serves every caller; otherwise
 * there may be none, or several, each loaded for its user alone. */
static hak_cold struct hak_cxx cxx_runtime_of(const void *caller)
{
#define X(member, name) name,
    static const char names[][sizeof "__cxa_allocate_exception"] hak_rare_table = { HAK_CXX_SYMBOLS(X) };
#undef X
    enum { THROW = 2, NAMES = sizeof names / sizeof *names };
    const void *found[NAMES] = { NULL };
    struct hak_cxx runtime;
    _Static_assert(sizeof runtime.symbols == sizeof found, "the symbols are pointers, in the order of their names");
    hak__cxx_linked(&runtime);
    if (hak__cxx_can_throw(&runtime))
        return runtime;
    found[THROW] = hak__loaded_for(caller, names[THROW]);
    for (unsigned i = 0; i < NAMES && found[THROW] != NULL; i++) /* from the same library or those below it */
        found[i] = hak__loaded_for(found[THROW], names[i]);
    memcpy(&runtime.symbols, found, sizeof found);
    return runtime;
}

static hak_cold void throw_bad_alloc(const struct hak_cxx *runtime)
{
    if (!hak__cxx_can_throw(runtime))
        hak__fatal("operator new(): out of memory, and no C++ runtime to throw std::bad_alloc");
    if (runtime->throw_bad_alloc != NULL)
        runtime->throw_bad_alloc();
    void **exception = runtime->symbols.allocate(sizeof *exception);
    *exception = runtime->symbols.table + 2; /* behind the offset to the top and the type */
    runtime->symbols.throw(exception, runtime->symbols.type, runtime->symbols.destroy);
}

/* Plain operator new without memory: the handler may free some or throw; without one, throws bad_alloc. */
static hak_cold void *new_slow(size_t align, size_t n, const void *caller)
{
    struct hak_cxx runtime = cxx_runtime_of(caller);
    void *p;
    do {
        hak_new_handler *handler = runtime.symbols.get_new_handler != NULL ? runtime.symbols.get_new_handler() : NULL;
        if (handler != NULL)
            handler();
        else
            throw_bad_alloc(&runtime);
        p = hak_memalign(align, n);
    } while (p == NULL);
    return p;
}

static hak_noinline void *new_missed(size_t align, size_t n, const void *caller)
{
    void *p = align <= HAK_ALIGN ? hak__malloc_slow(n) : hak_memalign(align, n);
    return hak_likely(p != NULL) ? p : new_slow(align, n, caller);
}

hak_inline void *new_block(size_t n)
{
    void *p = hak__pop(n);
    return hak_likely(p != NULL) ? p : new_missed(HAK_ALIGN, n, __builtin_return_address(0));
}

hak_inline void *new_aligned(size_t n, size_t align)
{
    void *p = hak_likely(hak_is_power_of_two(align)) ? hak__aligned_pop(align, n) : NULL;
    return hak_likely(p != NULL) ? p : new_missed(align, n, __builtin_return_address(0));
}

/* Mangled names: Znw new, Zna new[], Zdl delete, Zda delete[]; m size_t, Pv void *, RKSt9nothrow_t the nothrow tag,
 * St11align_val_t an alignment. size_t is "m" on every 64-bit Linux.
 * The nothrow variants of new are in cxx_linked.c. */
#define NAMED(ret, name, params) hak_export ret name params; hak_export ret name params

#if HAK_UNITY
/* An alias has its target's parameters; the added ones (alignment, tag) are in registers that the target ignores. */
#define DELETE_MORE(name, more) hak_export void name(void *p) HAK_ALIAS(hak_free);
#else
#define DELETE_MORE(name, more) NAMED(void, name, (void *p)) { hak_free(p); }
#endif

void *hak__new(size_t n) { return new_block(n); }
void *hak__new_aligned(size_t n, size_t align) { return new_aligned(n, align); }
HAK_FORWARD(void *, _Znwm, hak__new, (size_t n), (n))
HAK_FORWARD(void *, _Znam, hak__new, (size_t n), (n))
HAK_FORWARD(void *, _ZnwmSt11align_val_t, hak__new_aligned, (size_t n, size_t align), (n, align))
HAK_FORWARD(void *, _ZnamSt11align_val_t, hak__new_aligned, (size_t n, size_t align), (n, align))

DELETE_MORE(_ZdlPv, "")
DELETE_MORE(_ZdaPv, "")
DELETE_MORE(_ZdlPvSt11align_val_t, "alignment")
DELETE_MORE(_ZdaPvSt11align_val_t, "alignment")
DELETE_MORE(_ZdlPvSt11align_val_tRKSt9nothrow_t, "alignment, tag")
DELETE_MORE(_ZdaPvSt11align_val_tRKSt9nothrow_t, "alignment, tag")

/* Calls a delete that the program replaced with the pointer alone. */
hak_inline void delete_by(hak_delete *plain, void *p, size_t n)
{
    if (hak_likely(plain == hak_free))
        hak__delete_sized(p, n, HAK_ALIGN);
    else
        plain(p);
}

NAMED(void, _ZdlPvRKSt9nothrow_t, (void *p, const void *tag)) { (void)tag, hak__cxx_delete(p); }
NAMED(void, _ZdaPvRKSt9nothrow_t, (void *p, const void *tag)) { (void)tag, hak__cxx_delete_array(p); }
NAMED(void, _ZdlPvm, (void *p, size_t n)) { delete_by(hak__cxx_delete, p, n); }
NAMED(void, _ZdaPvm, (void *p, size_t n)) { delete_by(hak__cxx_delete_array, p, n); }
NAMED(void, _ZdlPvmSt11align_val_t, (void *p, size_t n, size_t align)) { hak__delete_sized(p, n, align); }
HAK_FORWARD_VOID(_ZdaPvmSt11align_val_t, _ZdlPvmSt11align_val_t, (void *p, size_t n, size_t align), (p, n, align))

#endif
