/* Another allocator's library, with which a program is linked: all operators new and delete, from memory of its own; it stops the
 * program when it is asked to free anything. Built by test_cxx_runtime.py. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

static char memory[1 << 20] __attribute__((aligned(4096)));
static size_t used;

static void *take(size_t n, size_t align)
{
    size_t at = (used + align - 1) / align * align;
    used = at + n;
    return used > sizeof memory ? NULL : memory + at;
}

#define NEW(name) void *name(size_t n); void *name(size_t n) { return take(n, 16); }
#define NEW_ALIGNED(name) void *name(size_t n, size_t align); void *name(size_t n, size_t align) { return take(n, align); }
#define DELETE(name) void name(void *p); void name(void *p) { if (p != NULL) abort(); }

NEW(_Znwm) NEW(_Znam) NEW(_ZnwmRKSt9nothrow_t) NEW(_ZnamRKSt9nothrow_t)
NEW_ALIGNED(_ZnwmSt11align_val_t) NEW_ALIGNED(_ZnamSt11align_val_t)
NEW_ALIGNED(_ZnwmSt11align_val_tRKSt9nothrow_t) NEW_ALIGNED(_ZnamSt11align_val_tRKSt9nothrow_t)
DELETE(_ZdlPv) DELETE(_ZdaPv) DELETE(_ZdlPvm) DELETE(_ZdaPvm) DELETE(_ZdlPvRKSt9nothrow_t) DELETE(_ZdaPvRKSt9nothrow_t)
DELETE(_ZdlPvSt11align_val_t) DELETE(_ZdaPvSt11align_val_t) DELETE(_ZdlPvmSt11align_val_t) DELETE(_ZdaPvmSt11align_val_t)
DELETE(_ZdlPvSt11align_val_tRKSt9nothrow_t) DELETE(_ZdaPvSt11align_val_tRKSt9nothrow_t)
