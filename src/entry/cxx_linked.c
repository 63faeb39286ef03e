/* The C++ runtime as weak symbols, separately for each way of linking.
 *
 * The archive shares a file with the runtime, which may be there only in part: catching a bad_alloc links what throwing one
 * takes, but not the function std::__throw_bad_alloc, which nothing else calls.
 *
 * A program linked with libhakmem.so exports the symbols that it asks for to every library loaded later: if they were the ABI's
 * functions, a library with its own runtime would throw by the program's and catch by its own. So the shared library asks only
 * for the two functions that concern operator new. */
#include "entry/cxx.h"

#include "base/atomic.h"
#include "base/limits.h"
#include "hakmem.h"
#include "os/loaded.h"

#if HAK_OVERRIDE

/* As the linker binds them: the program's replacements, if it has any. */
extern void bound_delete(void *p) __asm__("_ZdlPv");
extern void bound_delete_array(void *p) __asm__("_ZdaPv");
hak_delete *const hak__cxx_delete = bound_delete;
hak_delete *const hak__cxx_delete_array = bound_delete_array;

extern hak_new_handler *linked_get_new_handler(void) __asm__("_ZSt15get_new_handlerv") __attribute__((weak));

#if HAK_SHARED

extern void linked_throw_bad_alloc(void) __asm__("_ZSt17__throw_bad_allocv") __attribute__((weak));

void hak__cxx_linked(struct hak_cxx *runtime)
{
    *runtime = (struct hak_cxx){ linked_throw_bad_alloc, { .get_new_handler = linked_get_new_handler } };
}

/* The nothrow operators new. By the standard they call the plain ones and turn an exception into NULL, which C cannot do: where
 * something may be thrown, the C++ runtime's operators do it. They are defined here so that no other allocator's come first (a
 * program may be linked with one, and std::stable_sort asks for them); a program with the archive in it has the runtime's own. */
typedef void *nothrow_plain(size_t n, size_t align);
typedef void *nothrow_operator(size_t n, uintptr_t align_or_tag, const void *tag);

struct nothrow {
    const char *name;
    nothrow_plain *plain; /* as the linker binds it: the program's replacement, if it has one */
    const void *ours; /* its value otherwise */
    const void *own; /* this library's operator of that name */
    _Atomic(nothrow_operator *) next; /* the runtime's; relaxed: every thread finds the same one */
};

static hak_cold nothrow_operator *nothrow_find(const struct nothrow *which)
{
    const void *runtime = hak__loaded_first("__cxa_throw");
    void *found = runtime == NULL ? NULL : hak__loaded_for(runtime, which->name);
    return found == which->own ? NULL : (nothrow_operator *)found;
}

hak_inline bool nothrow_is_ours(const struct nothrow *which) { return (const void *)(uintptr_t)which->plain == which->ours; }

hak_inline void *nothrow_take(size_t n, size_t align) { return align <= HAK_ALIGN ? hak_malloc(n) : hak_memalign(align, n); }

/* A runtime that cannot be found, because the program contains it and links with the shared library, cannot be asked to catch.
 * But every unwinder asks each frame's personality, by the ABI common to all runtimes: try_handler's personality claims a
 * handler for every exception, lets the frame continue after its call, and ends the exception as a caught foreign one. One trace
 * stays: the runtime's count of uncaught exceptions, which only its own code lowers. */
enum { ABI_VERSION = 1, SEARCH_PHASE = 1, HANDLER_FRAME = 4, FORCED_UNWIND = 8 }; /* _Unwind_Action */
enum { FOREIGN_EXCEPTION_CAUGHT = 1, FATAL_ERROR = 3, HANDLER_FOUND = 6, INSTALL_CONTEXT = 7, CONTINUE_UNWIND = 8 };

struct unwind_exception {
    uint64_t class;
    void (*end)(int reason, struct unwind_exception *exception);
};

int hak__catch_all(int version, int actions, uint64_t class, struct unwind_exception *exception, void *context);
__attribute__((used, visibility("hidden"))) int hak__catch_all(int version, int actions, uint64_t class,
                                                               struct unwind_exception *exception, void *context)
{
    (void)class, (void)context;
    if (version != ABI_VERSION)
        return FATAL_ERROR;
    if ((actions & FORCED_UNWIND) != 0) /* pthread_exit and cancellation continue */
        return CONTINUE_UNWIND;
    if ((actions & SEARCH_PHASE) != 0)
        return HANDLER_FOUND;
    if ((actions & HANDLER_FRAME) == 0)
        return CONTINUE_UNWIND;
    if (exception->end != NULL)
        exception->end(FOREIGN_EXCEPTION_CAUGHT, exception);
    return INSTALL_CONTEXT;
}

static hak_noinline void call_handler(hak_new_handler *handler, bool *returned)
{
    handler();
    *returned = true;
}

/* Whether the handler returned rather than threw. This frame is not call_handler's, which the exception ends. */
static hak_noinline bool try_handler(hak_new_handler *handler)
{
    bool returned = false;
    __asm__ volatile(".cfi_personality 0x1b, hak__catch_all");   /* relative to its own address, 4 bytes */
    call_handler(handler, &returned);
    __asm__ volatile("" : "+m"(returned));   /* prevents a tail call */
    return returned;
}

static hak_cold void *nothrow_handled(size_t n, size_t align)
{
    void *p = NULL;
    hak_new_handler *handler;
    while (p == NULL && linked_get_new_handler != NULL && (handler = linked_get_new_handler()) != NULL && try_handler(handler))
        p = nothrow_take(n, align);
    return p;
}

static hak_cold void *nothrow_slow(struct nothrow *which, size_t n, size_t align, const void *tag)
{
    nothrow_operator *next = hak_load(&which->next, HAK_RELAXED);
    if (next == NULL) {
        next = nothrow_find(which);
        hak_store(&which->next, next, HAK_RELAXED);
    }
    if (next != NULL)
        return next(n, align > HAK_ALIGN ? align : (uintptr_t)tag, tag);
    return nothrow_is_ours(which) ? nothrow_handled(n, align) : which->plain(n, align);
}

hak_inline void *nothrow_new(struct nothrow *which, size_t n, size_t align, const void *tag)
{
    if (hak_unlikely(!nothrow_is_ours(which)))
        return nothrow_slow(which, n, align, tag);
    void *p = nothrow_take(n, align);
    bool handled = linked_get_new_handler == NULL || linked_get_new_handler() != NULL;
    return hak_likely(p != NULL) || !handled ? p : nothrow_slow(which, n, align, tag);
}

#define NOTHROW_OPERATOR(plain_name, bound, ours_, name, params, align, tag) \
    extern void *bound(size_t n, size_t to) __asm__(plain_name); \
    hak_export void *name params; \
    hak_export void *name params \
    { \
        static struct nothrow which = { #name, bound, (const void *)(uintptr_t)ours_, (const void *)(uintptr_t)name, NULL }; \
        return nothrow_new(&which, n, align, tag); \
    }

NOTHROW_OPERATOR("_Znwm", bound_new, hak__new, _ZnwmRKSt9nothrow_t, (size_t n, const void *tag), HAK_ALIGN, tag)
NOTHROW_OPERATOR("_Znam", bound_new_array, hak__new, _ZnamRKSt9nothrow_t, (size_t n, const void *tag), HAK_ALIGN, tag)
NOTHROW_OPERATOR("_ZnwmSt11align_val_t", bound_new_aligned, hak__new_aligned, _ZnwmSt11align_val_tRKSt9nothrow_t,
                 (size_t n, size_t align, const void *tag), align, tag)
NOTHROW_OPERATOR("_ZnamSt11align_val_t", bound_new_array_aligned, hak__new_aligned, _ZnamSt11align_val_tRKSt9nothrow_t,
                 (size_t n, size_t align, const void *tag), align, tag)

#else

extern void **linked_allocate(size_t size) __asm__("__cxa_allocate_exception") __attribute__((weak));
extern void linked_throw(void *exception, const void *type, const void *destroy) __asm__("__cxa_throw") __attribute__((weak));
extern const char linked_type[] __asm__("_ZTISt9bad_alloc") __attribute__((weak));
extern void *linked_table[] __asm__("_ZTVSt9bad_alloc") __attribute__((weak));
extern const char linked_destroy[] __asm__("_ZNSt9bad_allocD1Ev") __attribute__((weak));

void hak__cxx_linked(struct hak_cxx *runtime)
{
    *runtime =
        (struct hak_cxx){ NULL,
                          { linked_get_new_handler, linked_allocate, linked_throw, linked_type, linked_table, linked_destroy } };
}

#endif
#endif
