/* Looks symbols up in the objects' own tables, by either kind of hash table. The whole search runs inside one dl_iterate_phdr,
 * whose lock keeps every object in place, and walks the list by nested calls. */
#include "os/loaded.h"

#include <elf.h>
#include <errno.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>

#include "base/bits.h"

enum { LOADED_MOST = 64, VERSION_HIDDEN = 0x8000, LOADED_HEADERS = 4 };

/* An object, and its dynamic section. */
struct loaded {
    uintptr_t base;
    const ElfW(Dyn) * dynamic;
};

struct loaded_tables {
    const char *strings;
    const ElfW(Sym) * symbols;
    const uint32_t *gnu_hash, *hash; /* NULL where the object has none */
    const ElfW(Half) * versions;
};

struct loaded_search {
    const char *name;
    const void *user;
    void *found;
    const struct loaded *needing;
    unsigned count;
    struct loaded objects[LOADED_MOST]; /* the user's, then in order those that earlier ones need */
};

static struct loaded loaded_of(const struct dl_phdr_info *info)
{
    struct loaded object = { info->dlpi_addr, NULL };
    for (unsigned i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            object.dynamic = (const ElfW(Dyn) *)(object.base + info->dlpi_phdr[i].p_vaddr);
    return object;
}

static bool loaded_contains(const struct dl_phdr_info *info, const void *address)
{
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && (uintptr_t)address - (info->dlpi_addr + part->p_vaddr) < part->p_memsz)
            return true;
    }
    return false;
}

/* A table of the object. glibc relocates the section's offsets to addresses in most objects, other C libraries in none. */
static const void *loaded_table(const struct loaded *object, int64_t tag)
{
    for (const ElfW(Dyn) *entry = object->dynamic; entry != NULL && entry->d_tag != DT_NULL; entry++)
        if (entry->d_tag == tag)
            return (const void *)(entry->d_un.d_ptr < object->base ? object->base + entry->d_un.d_ptr : entry->d_un.d_ptr);
    return NULL;
}

/* --- one object's symbols ----------------------------------------------------------------------------------------- */

/* The value of the symbol if it has this name and references without a version may be bound to it, else NULL. */
static void *loaded_value(const struct loaded *object, const struct loaded_tables *tables, uint32_t index, const char *name)
{
    const ElfW(Sym) *symbol = &tables->symbols[index];
    unsigned type = symbol->st_info & 0xf, binding = symbol->st_info >> 4;
    if ((type != STT_FUNC && type != STT_OBJECT && type != STT_NOTYPE) || binding == STB_LOCAL || symbol->st_shndx == SHN_UNDEF
        || symbol->st_value == 0 || strcmp(tables->strings + symbol->st_name, name) != 0)
        return NULL;
    bool hidden = tables->versions != NULL && (tables->versions[index] & VERSION_HIDDEN) != 0;
    return hidden ? NULL : (void *)(object->base + symbol->st_value);
}

/* Each bucket lists symbols by their hashes; the last hash of a bucket is odd. */
static void *loaded_by_gnu_hash(const struct loaded *object, const struct loaded_tables *tables, const char *name)
{
    const uint32_t *table = tables->gnu_hash;
    uint32_t buckets = table[0], first = table[1], words = table[2], hash = 5381;
    const uint32_t *bucket = (const uint32_t *)((const ElfW(Addr) *)(table + LOADED_HEADERS) + words);
    const uint32_t *chain = bucket + buckets;
    for (const char *c = name; *c != 0; c++)
        hash = hash * 33 + (unsigned char)*c;
    uint32_t index = buckets == 0 ? 0 : bucket[hash % buckets];
    if (index < first)
        return NULL;
    for (;; index++) {
        void *value = ((chain[index - first] ^ hash) >> 1) == 0 ? loaded_value(object, tables, index, name) : NULL;
        if (value != NULL || (chain[index - first] & 1) != 0)
            return value;
    }
}

static void *loaded_by_hash(const struct loaded *object, const struct loaded_tables *tables, const char *name)
{
    const uint32_t *table = tables->hash, *bucket = table + 2, *chain = bucket + table[0];
    uint32_t hash = 0;
    for (const char *c = name; *c != 0; c++) {
        hash = (hash << 4) + (unsigned char)*c;
        hash = (hash ^ (hash >> 24 & 0xf0)) & 0x0fffffff;
    }
    for (uint32_t index = table[0] == 0 ? 0 : bucket[hash % table[0]]; index != 0; index = chain[index]) {
        void *value = loaded_value(object, tables, index, name);
        if (value != NULL)
            return value;
    }
    return NULL;
}

static void *loaded_symbol(const struct loaded *object, const char *name)
{
    struct loaded_tables tables = {
        .strings = loaded_table(object, DT_STRTAB),
        .symbols = loaded_table(object, DT_SYMTAB),
        .gnu_hash = loaded_table(object, DT_GNU_HASH),
        .hash = loaded_table(object, DT_HASH),
        .versions = loaded_table(object, DT_VERSYM),
    };
    if (tables.strings == NULL || tables.symbols == NULL)
        return NULL;
    if (tables.gnu_hash != NULL)
        return loaded_by_gnu_hash(object, &tables, name);
    return tables.hash != NULL ? loaded_by_hash(object, &tables, name) : NULL;
}

/* --- needed libraries ---------------------------------------------------------------------------------------------- */

static const char *loaded_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

/* Whether the object needs a library with one of the two names. */
static bool loaded_needs(const struct loaded *object, const char *path, const char *own_name)
{
    const char *strings = loaded_table(object, DT_STRTAB);
    for (const ElfW(Dyn) *entry = object->dynamic; strings != NULL && entry->d_tag != DT_NULL; entry++) {
        const char *needed = strings + entry->d_un.d_val;
        if (entry->d_tag == DT_NEEDED
            && (strcmp(loaded_base_name(needed), loaded_base_name(path)) == 0
                || (own_name != NULL && strcmp(needed, own_name) == 0)))
            return true;
    }
    return false;
}

static const char *loaded_own_name(const struct loaded *object)
{
    const char *strings = loaded_table(object, DT_STRTAB);
    for (const ElfW(Dyn) *entry = object->dynamic; strings != NULL && entry->d_tag != DT_NULL; entry++)
        if (entry->d_tag == DT_SONAME)
            return strings + entry->d_un.d_val;
    return NULL;
}

static void loaded_add(struct loaded_search *search, struct loaded object)
{
    for (unsigned i = 0; i < search->count; i++)
        if (search->objects[i].dynamic == object.dynamic)
            return;
    if (search->count < LOADED_MOST)
        search->objects[search->count++] = object;
}

/* --- walks over the list ------------------------------------------------------------------------------------------- */

static int loaded_visit_user(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct loaded_search *search = argument;
    struct loaded object = loaded_of(info);
    (void)size;
    if (object.dynamic == NULL || !loaded_contains(info, search->user))
        return 0;
    loaded_add(search, object);
    return 1;
}

static int loaded_visit_needed(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct loaded_search *search = argument;
    struct loaded object = loaded_of(info);
    (void)size;
    if (object.dynamic != NULL && loaded_needs(search->needing, info->dlpi_name, loaded_own_name(&object)))
        loaded_add(search, object);
    return 0;
}

static int loaded_visit_any(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct loaded_search *search = argument;
    struct loaded object = loaded_of(info);
    (void)size;
    if (object.dynamic != NULL)
        search->found = loaded_symbol(&object, search->name);
    return search->found != NULL;
}

/* The first visited object only serves to hold the lock. */
static int loaded_visit_once(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct loaded_search *search = argument;
    (void)info, (void)size;
    dl_iterate_phdr(loaded_visit_user, search);
    for (unsigned i = 0; i < search->count && search->found == NULL; i++) {
        search->needing = &search->objects[i];
        search->found = loaded_symbol(search->needing, search->name);
        if (search->found == NULL)
            dl_iterate_phdr(loaded_visit_needed, search);
    }
    if (search->found == NULL)
        dl_iterate_phdr(loaded_visit_any, search);
    return 1;
}

/* Looks in the object whose file begins at this address. */
static void *loaded_symbol_at(uintptr_t start, const char *name)
{
    const ElfW(Ehdr) *file = (const ElfW(Ehdr) *)start;
    if (file == NULL || memcmp(file->e_ident, ELFMAG, SELFMAG) != 0)
        return NULL;
    struct dl_phdr_info info = { .dlpi_phdr = (const ElfW(Phdr) *)((uintptr_t)file + file->e_phoff), .dlpi_phnum = file->e_phnum };
    for (unsigned i = 0; i < info.dlpi_phnum; i++)
        if (info.dlpi_phdr[i].p_type == PT_LOAD && info.dlpi_phdr[i].p_offset == 0)
            info.dlpi_addr = (uintptr_t)file - info.dlpi_phdr[i].p_vaddr;
    struct loaded object = loaded_of(&info);
    return object.dynamic == NULL ? NULL : loaded_symbol(&object, name);
}

/* Without such an object getauxval changes errno. */
void *hak__loaded_by_kernel(const char *name)
{
    int saved = errno;
    uintptr_t object = getauxval(AT_SYSINFO_EHDR);
    errno = saved;
    return loaded_symbol_at(object, name);
}

void *hak__loaded_first(const char *name)
{
    struct loaded_search search = { .name = name };
    dl_iterate_phdr(loaded_visit_any, &search);
    return search.found;
}

void *hak__loaded_for(const void *user, const char *name)
{
    struct loaded_search search = { .name = name, .user = user };
    dl_iterate_phdr(loaded_visit_once, &search);
    return search.found;
}

struct loaded_pair {
    const void *one, *other;
    bool before;
};

static int loaded_visit_pair(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct loaded_pair *pair = argument;
    (void)size;
    pair->before = loaded_contains(info, pair->one);
    return pair->before || loaded_contains(info, pair->other);
}

bool hak__loaded_before(const void *one, const void *other)
{
    struct loaded_pair pair = { one, other, false };
    dl_iterate_phdr(loaded_visit_pair, &pair);
    return pair.before;
}

/* --- by address ----------------------------------------------------------------------------------------------------- */

/* The result of the C library's search, as in glibc's <dlfcn.h>, which older versions lack. */
struct unwind_object {
    unsigned long long flags;
    void *start, *end;
    struct link_map *map;
    void *frame_header;
    unsigned long long reserved[7];
};
int (*hak__loaded_search)(void *address, struct unwind_object *result);

enum { KNOWN_MOST = 256 };
static hak_rare_data struct hak_module known_modules[KNOWN_MOST]; /* the modules at start, for a C library without the search */
static hak_rare_data unsigned known_count; /* the first is the program, to which musl gives a name */

static int know_module(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct hak_module module = { .start = UINTPTR_MAX, .base = info->dlpi_addr, .name = known_count == 0 ? "" : info->dlpi_name };
    (void)size, (void)argument;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_LOAD) {
            module.start = hak_min(module.start, start);
            module.end = hak_max(module.end, start + part->p_memsz);
        } else if (part->p_type == PT_GNU_EH_FRAME) {
            module.tables = (const uint8_t *)start;
        }
    }
    if (known_count < KNOWN_MOST)
        known_modules[known_count++] = module;
    return 0;
}

void hak__loaded_know(void)
{
    if (known_count == 0)
        dl_iterate_phdr(know_module, NULL);
}

/* A reference to the search, even a weak one, would need its version of the C library, which has it (not the dynamic linker). */
void hak__loaded_begin(void)
{
    void *search = hak__loaded_first("_dl_find_object");
    memcpy(&hak__loaded_search, &search, sizeof search);
    if (search == NULL)
        hak__loaded_know();
}

void *hak__loaded_after(const void *user, const char *name)
{
    void *found = NULL;
    for (unsigned i = 0, after = 0; i < known_count && found == NULL; i++) {
        if (after != 0)
            found = loaded_symbol_at(known_modules[i].start, name);
        after |= (uintptr_t)user - known_modules[i].start < known_modules[i].end - known_modules[i].start;
    }
    return found;
}

bool hak__loaded_at(uintptr_t address, struct hak_module *module)
{
    struct unwind_object object;
    for (unsigned i = 0; i < known_count; i++)
        if (address - known_modules[i].start < known_modules[i].end - known_modules[i].start) {
            *module = known_modules[i];
            return true;
        }
    if (hak__loaded_search == NULL || hak__loaded_search((void *)address, &object) != 0)
        return false;
    *module = (struct hak_module){ (uintptr_t)object.start, (uintptr_t)object.end, object.map->l_addr, object.map->l_name,
                                   object.frame_header };
    return true;
}
