/* Blocks of the program's own malloc, in a process that loaded this library late: libraries bound to this one's names may pass
 * it blocks of the earlier malloc to free. The same for a sanitizer's, which serves all requests (os/os.h). Where this library is the process's malloc, a foreign pointer is misuse; if misuse is
 * survived, one that looks like a block in use of glibc's malloc is reported and given to that.
 *
 * The program's malloc is the first in load order. It stays loaded, so its functions are looked up once. The build without
 * malloc's names is no program's malloc, and takes no part in this. */
#include "arena/arena.h"
#include "arena/owner.h"
#include "base/syscall.h"
#include "diag/report.h"
#include "hakmem.h"
#include "kinds/kind.h"
#include "os/loaded.h"
#include "os/os.h"

enum { MALLOC_UNKNOWN, MALLOC_OURS, MALLOC_ANOTHER };
static _Atomic uint32_t programs_malloc;
static _Atomic uintptr_t others_free, others_realloc, others_usable;

bool hak__is_programs_malloc(void)
{
    uint32_t known = hak_load(&programs_malloc, HAK_RELAXED); /* relaxed: it guards no other memory */
    if (known != MALLOC_UNKNOWN)
        return known == MALLOC_OURS;
    const struct hak_os_malloc *aside = hak__os_aside();
    if (aside != NULL) {
        hak_store(&others_free, (uintptr_t)aside->free, HAK_RELAXED);
        hak_store(&others_realloc, (uintptr_t)aside->realloc, HAK_RELAXED);
        hak_store(&others_usable, (uintptr_t)aside->usable, HAK_RELAXED);
        return false;
    }
    const void *c_library = HAK_OVERRIDE ? hak__loaded_first("__libc_start_main") : NULL;
    bool ours = c_library == NULL /* a static program, which is one piece */
             || hak__loaded_before(&programs_malloc, c_library); /* hak_malloc may be another copy's */
    hak_store(&programs_malloc, ours ? MALLOC_OURS : MALLOC_ANOTHER, HAK_RELAXED);
    return ours;
}

/* Checked before asking the loader, whose lock a forked child may find held for ever. */
static bool others_may_have(const void *p)
{
    size_t super = ((uintptr_t)p - hak__window.base) >> HAK_SUPER_SHIFT;
    return super >= hak__arena_top() || hak_load(&hak__supers[super].kind, HAK_RELAXED) == HAK_SUPER_HOLE;
}

/* --- glibc's blocks, where misuse is survived ---------------------------------------------------------------------------------
 *
 * What precedes a block is the same since ptmalloc: the size with three flags, and after the block the next one's. glibc ends the
 * process at a free of anything else, so all that can be checked is. */

enum { CHUNK_BEFORE_USED = 1, CHUNK_MAPPED = 2, CHUNK_OTHER_ARENA = 4, CHUNK_FLAGS = 7, CHUNK_HEAD = 16 };
#define ARENA_SIZE ((uintptr_t)64 << 20)   /* of an arena that is not the main one; also their alignment */

static _Atomic size_t freed_mark; /* the second word of a block that a thread has freed lately (tcache); 0: unknown */

static bool is_readable(uintptr_t address) { return hak__os_readable(address & ~(uintptr_t)7) == 0; }
static size_t chunk_word(uintptr_t address) { return *(const volatile size_t *)address; }

static bool is_in_arena(uintptr_t p, size_t bytes)
{
    uintptr_t start = p & ~(ARENA_SIZE - 1);
    return is_readable(start) && is_readable(chunk_word(start)) && chunk_word(start + 16) <= ARENA_SIZE
        && p - CHUNK_HEAD - start + bytes < chunk_word(start + 16);
}

static void *c_librarys(const char *name) { return hak__loaded_for(hak__loaded_first("__libc_start_main"), name); }

/* By trying it out. */
static size_t freed_second_word(void)
{
    size_t mark = hak_load(&freed_mark, HAK_RELAXED), *block;
    void *(*allocate)(size_t) = (void *(*)(size_t))(mark == 0 ? c_librarys("malloc") : NULL);
    void (*release)(void *) = (void (*)(void *))(allocate != NULL ? c_librarys("free") : NULL);
    if (release == NULL || (block = allocate(2 * sizeof mark)) == NULL)
        return mark;
    block[1] = 1;
    release(block);
    mark = *(volatile size_t *)(block + 1);
    hak_store(&freed_mark, mark, HAK_RELAXED);
    return mark;
}

static hak_cold bool is_c_librarys(const void *block)
{
    uintptr_t p = (uintptr_t)block, chunk = p - CHUNK_HEAD;
    if (p % HAK_ALIGN != 0 || p < CHUNK_HEAD + hak__page_size() || !is_readable(chunk) || !is_readable(p))
        return false;
    size_t marks = chunk_word(p - 8) & CHUNK_FLAGS, bytes = chunk_word(p - 8) - marks, page = hak__page_size();
    if (bytes < 2 * CHUNK_HEAD || bytes % HAK_ALIGN != 0 || bytes > PTRDIFF_MAX - p)
        return false;
    if (marks == CHUNK_MAPPED)
        return bytes >= page && (chunk - chunk_word(chunk)) % page == 0 && (bytes + chunk_word(chunk)) % page == 0;
    bool main = (marks & CHUNK_OTHER_ARENA) == 0;
    bool inside = main ? chunk >= hak__canary_break && chunk + bytes < (uintptr_t)hak__syscall(SYS_brk, 0) : is_in_arena(p, bytes);
    return (marks & CHUNK_MAPPED) == 0 && inside && chunk_word(p + 8) != freed_second_word() && is_readable(chunk + bytes + 8)
        && (chunk_word(chunk + bytes + 8) & CHUNK_BEFORE_USED) != 0;
}

static bool is_stray(const void *p) { return hak__misuse_is_survived() && hak__is_programs_malloc() && is_c_librarys(p); }

static bool foreign_has(const void *p) { return p != NULL && others_may_have(p) && (!hak__is_programs_malloc() || is_stray(p)); }

static void report_stray(const void *p, const char *function)
{
    struct hak_mistake mistake = { HAK_MISUSE_INVALID, function, p, .outcome = "the C library did it" };
    if (hak__is_programs_malloc())
        hak__misuse(&mistake, HAK_SAYS_INVALID, function, p, "a block of the C library's malloc");
}

static uintptr_t others_function(_Atomic uintptr_t *known, const char *name)
{
    uintptr_t function = hak_load(known, HAK_RELAXED); /* relaxed: it guards no other memory */
    if (function == 0) {
        bool first = !hak__is_programs_malloc();
        function = (uintptr_t)(first ? hak__loaded_first(name) : c_librarys(name));
        hak_store(known, function, HAK_RELAXED);
    }
    return function;
}

static void foreign_free(void *p, uint32_t word, const char *name)
{
    (void)word;
    report_stray(p, name);
    void (*function)(void *) = (void (*)(void *))others_function(&others_free, "free");
    if (function != NULL)
        function(p);
}

static void *foreign_realloc(void *p, size_t n)
{
    report_stray(p, "realloc");
    void *(*function)(void *, size_t) = (void *(*)(void *, size_t))others_function(&others_realloc, "realloc");
    return function == NULL ? NULL : function(p, n);
}

static size_t foreign_usable(const void *p, const char *name)
{
    report_stray(p, name);
    size_t (*function)(const void *) = (size_t(*)(const void *))others_function(&others_usable, "malloc_usable_size");
    return function == NULL ? 0 : function(p);
}

const struct hak_kind hak__kind_foreign = {
    .has = foreign_has,
    .free = foreign_free,
    .usable = foreign_usable,
    .realloc = foreign_realloc,
};
