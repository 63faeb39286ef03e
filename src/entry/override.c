/* The names of malloc's family that C libraries have in common, and of C++'s operators new and delete: each an alias of its hak_
 * function, or a few lines that add what the standard asks. Compiled only where the library replaces malloc. */
#if HAK_OVERRIDE
#include <stdlib.h>
#include <string.h>

#include "arena/arena.h"
#include "diag/report.h"
#include "entry/cxx.h"
#include "entry/pop.h"
#include "hakmem.h"
#include "huge/huge.h"
#include "kinds/kind.h"
#include "os/loaded.h"
#include "stats/stats.h"

/* --- the C library's names ------------------------------------------------------------------------------------- */

HAK_FORWARD(void *, malloc, hak_malloc, (size_t n), (n))
HAK_FORWARD(void *, calloc, hak_calloc, (size_t count, size_t size), (count, size))
HAK_FORWARD(void *, realloc, hak_realloc, (void *p, size_t n), (p, n))
HAK_FORWARD(void *, reallocarray, hak_reallocarray, (void *p, size_t count, size_t size), (p, count, size))
HAK_FORWARD_VOID(free, hak_free, (void *p), (p))
HAK_FORWARD_VOID(free_sized, hak_free_sized, (void *p, size_t n), (p, n))
HAK_FORWARD_VOID(free_aligned_sized, hak_free_aligned_sized, (void *p, size_t align, size_t n), (p, align, n))
HAK_FORWARD(void *, aligned_alloc, hak_aligned_alloc, (size_t align, size_t n), (align, n))
HAK_FORWARD(void *, memalign, hak_memalign, (size_t align, size_t n), (align, n))
HAK_FORWARD(int, posix_memalign, hak_posix_memalign, (void **out, size_t align, size_t n), (out, align, n))
HAK_FORWARD(void *, valloc, hak_valloc, (size_t n), (n))
HAK_FORWARD(size_t, malloc_usable_size, hak_usable_size, (void *p), (p))

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
