/* See modules.h. */
#include "profile/modules.h"

#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "diag/report.h"
#include "os/loaded.h"

static _Atomic(struct hak_profile_module *) modules_seen;

/* The program itself has no name here and is never closed; nor is what the kernel brings, whose name is no path. */
static bool module_at(uintptr_t address, struct hak_module *found)
{
    return hak__loaded_at(address, found) && found->name[0] != 0 && strchr(found->name, '/') != NULL;
}

/* The part with code, by the headers of the ELF file at the beginning of the module's first part. */
static const ElfW(Phdr) *code_of(const struct hak_module *found)
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
    if (!given && syscall(SYS_getcwd, folder, sizeof folder) < 0)
        folder[0] = 0;
    hak__format(path, HAK_PROFILE_PATH, given ? "%s%s" : "%s/%s", folder, name);
}

static bool same_module(const struct hak_profile_module *a, const struct hak_profile_module *b)
{
    return a->start == b->start && a->end == b->end && strcmp(a->path, b->path) == 0;
}

static bool is_seen(const struct hak_profile_module *at, const struct hak_profile_module *end,
                    const struct hak_profile_module *module)
{
    while (at != end && !same_module(at, module))
        at = at->next;
    return at != end;
}

/* One that another thread notes at the same time stays unused. */
static void see_module(struct hak_profile_area *area, const struct hak_profile_module *module)
{
    /* acquire: pairs with the release below; a module that is found is complete. */
    struct hak_profile_module *head = hak_load(&modules_seen, HAK_ACQUIRE), *seen = NULL, *made = NULL;
    size_t bytes = sizeof *module + strlen(module->path) + 1;
    while (!is_seen(head, seen, module)) {
        if (made == NULL && (made = (void *)hak__profile_area_take(area, hak_align_up(bytes, 16))) == NULL)
            return;
        memcpy(made, module, bytes);
        made->next = seen = head;
        if (hak_cas_strong(&modules_seen, &head, made, HAK_ACQ_REL, HAK_ACQUIRE))
            return;
    }
}

static void note_module(struct hak_profile_area *area, const struct hak_module *found)
{
    union {
        struct hak_profile_module module;
        char room[sizeof(struct hak_profile_module) + HAK_PROFILE_PATH];
    } noted;
    const ElfW(Phdr) *code = code_of(found);
    if (code == NULL)
        return;
    noted.module.start = found->base + code->p_vaddr;
    noted.module.end = noted.module.start + code->p_memsz;
    noted.module.offset = code->p_offset;
    absolute_path(noted.module.path, found->name);
    see_module(area, &noted.module);
}

void hak__profile_modules_note(struct hak_profile_area *area, const uintptr_t *frames, uint32_t count)
{
    struct hak_module found = { .end = 0 };
    for (uint32_t i = 0; i < count; i++)
        if (frames[i] - found.start >= found.end - found.start && module_at(frames[i], &found))
            note_module(area, &found);
}

static bool is_open(const struct hak_profile_module *module)
{
    struct hak_module found;
    const ElfW(Phdr) *code = module_at(module->start, &found) ? code_of(&found) : NULL;
    char path[HAK_PROFILE_PATH];
    if (code == NULL || found.base + code->p_vaddr != module->start)
        return false;
    absolute_path(path, found.name);
    return strcmp(path, module->path) == 0;
}

bool hak__profile_module_next_closed(struct hak_profile_module **module)
{
    do
        *module = *module == NULL ? hak_load(&modules_seen, HAK_ACQUIRE) : (*module)->next;
    while (*module != NULL && is_open(*module));
    return *module != NULL;
}
