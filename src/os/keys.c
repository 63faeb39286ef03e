/* Keys and cancellation of pthread's, dlsym, and whether a sanitizer's malloc serves the program: see os.h. Beside the units, since the archive has them from the linker.
 *
 * glibc moved them in 2.34, from libpthread and libdl to libc. A library linked as usual would need that version; one that asked
 * for libpthread would load it into every program. So these references are weak, of the version that every glibc gives the
 * functions, and NULL in a program without threads on an older one. It may load libpthread later: then they are looked up
 * (docs/decisions/0105). */
#include <dlfcn.h>
#include <pthread.h>

#include "base/atomic.h"
#include "os/loaded.h"
#include "os/os.h"

#if HAK_OVERRIDE && HAK_SHARED && defined(__GLIBC__)

typedef int keys_create(pthread_key_t *, void (*)(void *));
typedef int keys_set(pthread_key_t, const void *);
HAK_LINK_FIRST(keys_create, keys_linked_create, pthread_key_create);
HAK_LINK_FIRST(keys_set, keys_linked_set, pthread_setspecific);

/* Every thread finds the same functions. Where the second is known, acquire and release make the first known too. */
static _Atomic(keys_create *) keys_found_create;
static _Atomic(keys_set *) keys_found_set;

bool hak__os_keys(void)
{
    if (hak_likely(keys_linked_set != NULL || hak_load(&keys_found_set, HAK_ACQUIRE) != NULL))
        return true;
    uintptr_t create = (uintptr_t)hak__loaded_first("pthread_key_create"),
              set = (uintptr_t)hak__loaded_first("pthread_setspecific");
    hak_store(&keys_found_create, (keys_create *)create, HAK_RELAXED);
    hak_store(&keys_found_set, (keys_set *)set, HAK_RELEASE);
    return create != 0 && set != 0;
}

int hak__os_key_create(pthread_key_t *key, void (*ends)(void *))
{
    keys_create *create = keys_linked_create != NULL ? keys_linked_create : hak_load(&keys_found_create, HAK_RELAXED);
    return create(key, ends);
}

int hak__os_key_set(pthread_key_t key, const void *value)
{
    keys_set *set = keys_linked_set != NULL ? keys_linked_set : hak_load(&keys_found_set, HAK_RELAXED);
    return set(key, value);
}

typedef int cancel_set(int, int *);
HAK_LINK_FIRST(cancel_set, cancel_linked_set, pthread_setcancelstate);

int hak__os_cancel_state(int state)
{
    int former = state;
    if (cancel_linked_set != NULL)
        cancel_linked_set(state, &former);
    return former;
}

typedef void *next_dlsym(void *, const char *);
HAK_LINK_FIRST(next_dlsym, next_linked_dlsym, dlsym);

void *hak__os_next(const char *name)
{
    if (next_linked_dlsym != NULL)
        return next_linked_dlsym(RTLD_NEXT, name);
    hak__loaded_know();
    return hak__loaded_after((const void *)(uintptr_t)hak__os_next, name);
}

#else

#if HAK_OVERRIDE && HAK_SHARED
void *hak__os_next(const char *name) { return dlsym(RTLD_NEXT, name); }
#endif

bool hak__os_keys(void) { return true; }
int hak__os_key_create(pthread_key_t *key, void (*ends)(void *)) { return pthread_key_create(key, ends); }
int hak__os_key_set(pthread_key_t key, const void *value) { return pthread_setspecific(key, value); }

int hak__os_cancel_state(int state)
{
    int former;
    pthread_setcancelstate(state, &former);
    return former;
}

#endif

/* --- a sanitizer's malloc ----------------------------------------------------------------------------------------------------- */

#if HAK_OVERRIDE && HAK_SHARED

/* The runtime's own names for its functions: bound by the loader, as a search would call functions that the runtime has replaced and not
 * yet found. */
extern void *sanitizer_malloc(size_t) __asm__("__interceptor_malloc") __attribute__((weak));
extern void *sanitizer_memalign(size_t, size_t) __asm__("__interceptor_memalign") __attribute__((weak));
extern void *sanitizer_realloc(void *, size_t) __asm__("__interceptor_realloc") __attribute__((weak));
extern void sanitizer_free(void *) __asm__("__interceptor_free") __attribute__((weak));
extern size_t sanitizer_usable(const void *) __asm__("__interceptor_malloc_usable_size") __attribute__((weak));
extern void sanitizer_of_memory(void) __asm__("__msan_init") __attribute__((weak));
extern void *programs_malloc(size_t) __asm__("malloc");
extern void *own_malloc(size_t) __asm__("hak_malloc");

/* MemorySanitizer has its own memory where the window may lie, and does not start beside a library that has chosen one. */
const struct hak_os_malloc *hak__os_aside(void)
{
    static const struct hak_os_malloc functions = { sanitizer_malloc, sanitizer_memalign, sanitizer_realloc, sanitizer_free,
                                                    sanitizer_usable };
    bool whole = sanitizer_malloc != NULL && sanitizer_memalign != NULL && sanitizer_realloc != NULL && sanitizer_free != NULL
              && sanitizer_usable != NULL;
    return whole && (sanitizer_of_memory != NULL || programs_malloc == own_malloc) ? &functions : NULL;
}

#else
const struct hak_os_malloc *hak__os_aside(void) { return NULL; }
#endif
