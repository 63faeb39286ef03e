/* The C++ runtime as weak symbols, each way of linking by itself.
 *
 * The archive lies in one file with the runtime, which may be there in part only: whoever catches a bad_alloc brings what throwing
 * one takes, but not the function std::__throw_bad_alloc, which nothing else calls.
 *
 * A program that is linked with libhakmem.so exports what that asks for, to every library that it loads later: if that were the
 * ABI's functions, a library with a runtime of its own would throw by the program's and catch by its own. So the shared library
 * asks for the two functions only that concern operator new. */
#include "cxx.h"

#if HAK_OVERRIDE

/* As the linkers bind them: the program's own where it has replaced them. */
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

#else

extern void **linked_allocate(size_t size) __asm__("__cxa_allocate_exception") __attribute__((weak));
extern void linked_throw(void *exception, const void *type, const void *destroy) __asm__("__cxa_throw") __attribute__((weak));
extern const char linked_type[] __asm__("_ZTISt9bad_alloc") __attribute__((weak));
extern void *linked_table[] __asm__("_ZTVSt9bad_alloc") __attribute__((weak));
extern const char linked_destroy[] __asm__("_ZNSt9bad_allocD1Ev") __attribute__((weak));

void hak__cxx_linked(struct hak_cxx *runtime)
{
    *runtime = (struct hak_cxx){ NULL, { linked_get_new_handler, linked_allocate, linked_throw, linked_type, linked_table,
                                         linked_destroy } };
}

#endif
#endif
