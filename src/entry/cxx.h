/* The symbols for throwing a std::bad_alloc by the Itanium C++ ABI, which every C++ runtime here follows; and
 * std::get_new_handler, which may be missing where no code sets a handler. For operator new (override.c). */
#pragma once

#include "base/compiler.h"

typedef void hak_new_handler(void);

#define HAK_CXX_SYMBOLS(X) \
    X(hak_new_handler *(*get_new_handler)(void), "_ZSt15get_new_handlerv") \
    X(void **(*allocate)(size_t size), "__cxa_allocate_exception") \
    X(void (*throw)(void *exception, const void *type, const void *destroy), "__cxa_throw") \
    X(const void *type, "_ZTISt9bad_alloc") \
    X(void **table, "_ZTVSt9bad_alloc") \
    X(const void *destroy, "_ZNSt9bad_allocD1Ev")

struct hak_cxx {
    void (*throw_bad_alloc)(void); /* std::__throw_bad_alloc, which replaces all but the first below; or NULL */
#define X(member, name) member;
    struct {
        HAK_CXX_SYMBOLS(X)
    } symbols;
#undef X
};

hak_inline bool hak__cxx_can_throw(const struct hak_cxx *runtime)
{
    return runtime->throw_bad_alloc != NULL
        || (runtime->symbols.allocate != NULL && runtime->symbols.throw != NULL && runtime->symbols.type != NULL
            && runtime->symbols.table != NULL && runtime->symbols.destroy != NULL);
}

/* The symbols that the linker bound: those of the runtime that the program starts with or links in; NULL for the rest. */
hak_cold void hak__cxx_linked(struct hak_cxx *runtime);

/* The process's plain operators delete. A program may replace only those (and new); by the standard the others, which it then
 * gets from this library, call them. */
typedef void hak_delete(void *p);
extern hak_delete *const hak__cxx_delete, *const hak__cxx_delete_array;

/* This library's operators new, plain and for arrays; _Znwm and its kin are aliases of them. */
void *hak__new(size_t n);
void *hak__new_aligned(size_t n, size_t align);
