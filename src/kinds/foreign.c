/* Blocks of the program's own malloc, in a process that loaded this library late: libraries bound to this one's names may pass
 * it blocks of the earlier malloc to free. Where this library is the process's malloc, a foreign pointer is misuse.
 *
 * The program's malloc is the first in load order. It stays loaded, so its functions are looked up once. The build without
 * malloc's names is no program's malloc, and takes no part in this. */
#include "arena/arena.h"
#include "arena/owner.h"
#include "hakmem.h"
#include "kinds/kind.h"
#include "os/loaded.h"

enum { MALLOC_UNKNOWN, MALLOC_OURS, MALLOC_ANOTHER };
static _Atomic uint32_t programs_malloc;
static _Atomic uintptr_t others_free, others_realloc, others_usable;

bool hak__is_programs_malloc(void)
{
    uint32_t known = hak_load(&programs_malloc, HAK_RELAXED); /* relaxed: it guards no other memory */
    if (known != MALLOC_UNKNOWN)
        return known == MALLOC_OURS;
    const void *c_library = HAK_OVERRIDE ? hak__loaded_first("__libc_start_main") : NULL;
    bool ours = c_library == NULL /* a static program, which is one piece */
             || hak__loaded_before((const void *)(uintptr_t)hak_malloc, c_library);
    hak_store(&programs_malloc, ours ? MALLOC_OURS : MALLOC_ANOTHER, HAK_RELAXED);
    return ours;
}

/* Checked before asking the loader, whose lock a forked child may find held for ever. */
static bool others_may_have(const void *p)
{
    size_t super = ((uintptr_t)p - hak__window.base) >> HAK_SUPER_SHIFT;
    return super >= hak__arena_top() || hak_load(&hak__supers[super].kind, HAK_RELAXED) == HAK_SUPER_HOLE;
}

static bool foreign_has(const void *p) { return p != NULL && others_may_have(p) && !hak__is_programs_malloc(); }

static uintptr_t others_function(_Atomic uintptr_t *known, const char *name)
{
    uintptr_t function = hak_load(known, HAK_RELAXED); /* relaxed: it guards no other memory */
    if (function == 0) {
        function = (uintptr_t)hak__loaded_first(name);
        hak_store(known, function, HAK_RELAXED);
    }
    return function;
}

static void foreign_free(void *p, uint32_t word, const char *name)
{
    (void)word, (void)name;
    void (*function)(void *) = (void (*)(void *))others_function(&others_free, "free");
    if (function != NULL)
        function(p);
}

static void *foreign_realloc(void *p, size_t n)
{
    void *(*function)(void *, size_t) = (void *(*)(void *, size_t))others_function(&others_realloc, "realloc");
    return function == NULL ? NULL : function(p, n);
}

static size_t foreign_usable(const void *p, const char *name)
{
    (void)name;
    size_t (*function)(const void *) = (size_t(*)(const void *))others_function(&others_usable, "malloc_usable_size");
    return function == NULL ? 0 : function(p);
}

const struct hak_kind hak__kind_foreign = {
    .has = foreign_has,
    .free = foreign_free,
    .usable = foreign_usable,
    .realloc = foreign_realloc,
};
