/* See sites.h. */
#include "profile/sites.h"

#include <elf.h>
#include <link.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/syscall.h"
#include "diag/report.h"
#include "os/loaded.h"

static _Atomic(struct hak_profile_module *) modules_seen;

/* The program itself has no name here and is never closed; nor is what the kernel maps, whose name is no path. */
static bool module_at(uintptr_t address, struct hak_module *found)
{
    return hak__loaded_at(address, found) && found->name[0] != 0 && strchr(found->name, '/') != NULL;
}

/* Finds the code segment in the ELF headers at the start of the module's first mapping. */
static const ElfW(Phdr) * code_of(const struct hak_module *found)
{
    const ElfW(Ehdr) *header = (const void *)found->start;
    if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0)
        return NULL;
    const ElfW(Phdr) *part = (const void *)(found->start + header->e_phoff);
    for (unsigned i = 0; i < header->e_phnum; i++)
        if (part[i].p_type == PT_LOAD && (part[i].p_flags & PF_X) != 0)
            return &part[i];
    return NULL;
}

static void absolute_path(char *path, const char *name)
{
    char folder[HAK_PROFILE_PATH] = "";
    bool given = name[0] == '/';
    if (!given && hak__syscall(SYS_getcwd, folder, sizeof folder) < 0)
        folder[0] = 0;
    hak__format(path, HAK_PROFILE_PATH, given ? "%s%s" : "%s/%s", folder, name);
}

/* Reads only the module's name: another thread may be closing it. */
static bool same_module(const struct hak_profile_module *module, const struct hak_module *found)
{
    size_t length = strlen(module->path), end = strlen(found->name);
    return module->all.start == found->start && module->all.end == found->end && module->all.base == found->base && end <= length
        && strcmp(module->path + length - end, found->name) == 0;
}

bool hak__profile_module_holds(const struct hak_profile_module *module)
{
    struct hak_module found;
    return hak_load(&module->moved, HAK_RELAXED) == 0 && module_at(module->start, &found) && same_module(module, &found);
}

static struct hak_profile_module *find_module(struct hak_profile_module *at, const struct hak_profile_module *end,
                                              const struct hak_module *found)
{
    while (at != end && (hak_load(&at->moved, HAK_RELAXED) != 0 || !same_module(at, found)))
        at = at->next;
    return at != end ? at : NULL;
}

/* NULL: no room, or the module comes from no file. */
static struct hak_profile_module *make_module(struct hak_area *area, const struct hak_module *found)
{
    char path[HAK_PROFILE_PATH];
    const ElfW(Phdr) *code = code_of(found);
    if (code == NULL)
        return NULL;
    absolute_path(path, found->name);
    struct hak_profile_module *made;
    size_t length = strlen(path) + 1;
    made = (void *)hak__area_take(area, hak_align_up(sizeof *made + length, 16));
    if (made == NULL)
        return NULL;
    made->all = *found;
    made->start = found->base + code->p_vaddr;
    made->end = made->start + code->p_memsz;
    made->offset = code->p_offset;
    memcpy(made->path, path, length);
    return made;
}

/* Should another thread note the same module, one of the two stays unused. */
static struct hak_profile_module *see_module(struct hak_area *area, const struct hak_module *found)
{
    /* acquire: pairs with the release below; a module found is complete. */
    struct hak_profile_module *head = hak_load(&modules_seen, HAK_ACQUIRE), *seen = NULL, *made = NULL, *known;
    while ((known = find_module(head, seen, found)) == NULL) {
        if (made == NULL && (made = make_module(area, found)) == NULL)
            return NULL;
        made->next = seen = head;
        if (hak_cas_strong(&modules_seen, &head, made, HAK_ACQ_REL, HAK_ACQUIRE))
            return made;
    }
    return known;
}

static bool is_among(struct hak_profile_module *const *modules, uint32_t count, const struct hak_profile_module *module)
{
    while (count != 0 && modules[count - 1] != module)
        count--;
    return count != 0;
}

uint32_t hak__profile_modules_note(struct hak_area *area, const uintptr_t *frames, uint32_t count,
                                   struct hak_profile_module **modules)
{
    struct hak_module found = { .end = 0 };
    uint32_t known = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (frames[i] - found.start < found.end - found.start || !module_at(frames[i], &found))
            continue;
        struct hak_profile_module *module = see_module(area, &found);
        if (module != NULL && !is_among(modules, known, module))
            modules[known++] = module;
    }
    return known;
}

void hak__profile_modules_settle(struct hak_area *ghosts)
{
    const uintptr_t page = 64 << 10; /* the largest page size: mappings of a file keep that distance */
    for (struct hak_profile_module *module = hak_load(&modules_seen, HAK_ACQUIRE); module != NULL; module = module->next) {
        if (hak_load(&module->moved, HAK_RELAXED) != 0 || hak__profile_module_holds(module))
            continue;
        size_t bytes = hak_align_up(module->end - module->start, page) + 2 * page;
        size_t at = hak_fetch_add(&ghosts->used, bytes, HAK_RELAXED);
        if (at + bytes <= ghosts->size)
            hak_store(&module->moved, hak_align_up(ghosts->start + at, page) + module->start % page - module->start, HAK_RELEASE);
    }
}

bool hak__profile_module_next_closed(struct hak_profile_module **module)
{
    do
        *module = *module == NULL ? hak_load(&modules_seen, HAK_ACQUIRE) : (*module)->next;
    while (*module != NULL && hak_load(&(*module)->moved, HAK_ACQUIRE) == 0);
    return *module != NULL;
}
