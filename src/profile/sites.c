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
#include "os/os.h"
#include "trace/unwind.h"

static hak_rare_data struct hak_area sites_area, sites_ghosts;
_Atomic(struct hak_profile_site *) *hak__profile_buckets;
static _Atomic uint64_t live_weight, peak_weight, peak_epoch, peak_ms;

/* --- modules ---------------------------------------------------------------------------------------------------------- */

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

/* Whether the module still lies where it was noted. */
static bool module_holds(const struct hak_profile_module *module)
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

/* Stores the modules of a new stack's frames, each once, to `modules`, which has room for one per frame; returns their number.
 * Notes unknown modules in memory of the area, if there is room. */
static uint32_t note_modules(struct hak_area *area, const uintptr_t *frames, uint32_t count, struct hak_profile_module **modules)
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

void hak__profile_sites_settle(void)
{
    const uintptr_t page = 64 << 10; /* the largest page size: mappings of a file keep that distance */
    for (struct hak_profile_module *module = hak_load(&modules_seen, HAK_ACQUIRE); module != NULL; module = module->next) {
        if (hak_load(&module->moved, HAK_RELAXED) != 0 || module_holds(module))
            continue;
        size_t bytes = hak_align_up(module->end - module->start, page) + 2 * page;
        size_t at = hak_fetch_add(&sites_ghosts.used, bytes, HAK_RELAXED);
        if (at + bytes <= sites_ghosts.size)
            hak_store(&module->moved, hak_align_up(sites_ghosts.start + at, page) + module->start % page - module->start,
                      HAK_RELEASE);
    }
}

bool hak__profile_module_next_closed(struct hak_profile_module **module)
{
    do
        *module = *module == NULL ? hak_load(&modules_seen, HAK_ACQUIRE) : (*module)->next;
    while (*module != NULL && hak_load(&(*module)->moved, HAK_ACQUIRE) == 0);
    return *module != NULL;
}

/* --- sites ------------------------------------------------------------------------------------------------------------------ */

void hak__profile_sites_begin(struct hak_area area, struct hak_area ghosts)
{
    sites_area = area;
    sites_ghosts = ghosts;
    hak__profile_buckets = (void *)hak__area_take(&sites_area, HAK_PROFILE_BUCKETS * sizeof *hak__profile_buckets);
}

/* Huge sizes have four groups to each doubling, as classes are. */
static uint32_t group_of(size_t n)
{
    if (n <= HAK_LARGE_MAX)
        return hak__class_of(n);
    unsigned msb = hak_msb64(n - 1);
    return (uint32_t)(msb * 4 + ((n - 1) >> (msb - 2)) % 4);
}

/* Tells a site from all others. */
struct site_key {
    uintptr_t frames[HAK_PROFILE_FRAMES + HAK_FRAMES_OWN];
    uint64_t interval;
    const struct hak_labels *labels;
    uint32_t group, count;
};

static uint32_t bucket_of(const struct site_key *key)
{
    uint64_t hash = (key->interval << 8) + key->group + 1 + (uintptr_t)key->labels * 0x9e3779b97f4a7c15ull;
    for (uint32_t i = 0; i < key->count; i++)
        hash = (hash ^ key->frames[i]) * 0x9e3779b97f4a7c15ull, hash ^= hash >> 29;
    return (uint32_t)(hash % HAK_PROFILE_BUCKETS);
}

/* A library may have been closed and another loaded at its address. */
static bool site_holds(const struct hak_profile_site *site)
{
    uint32_t i = 0;
    while (i < site->module_count && module_holds(site->modules[i]))
        i++;
    return i == site->module_count;
}

static struct hak_profile_site *find_site(struct hak_profile_site *at, const struct hak_profile_site *end,
                                          const struct site_key *key)
{
    for (; at != end; at = at->next)
        if (at->interval == key->interval && at->group == key->group && at->labels == key->labels && at->frame_count == key->count
            && memcmp(at->frames, key->frames, key->count * sizeof *key->frames) == 0 && site_holds(at))
            return at;
    return NULL;
}

static struct hak_profile_site *new_site(const struct site_key *key)
{
    struct hak_profile_module *modules[HAK_PROFILE_FRAMES];
    struct hak_profile_site *site;
    uint32_t known = note_modules(&sites_area, key->frames, key->count, modules);
    size_t frames_bytes = key->count * sizeof *key->frames, bytes = sizeof *site + frames_bytes + known * sizeof *modules;
    site = (void *)hak__area_take(&sites_area, hak_align_up(bytes, 16));
    if (site == NULL)
        return NULL;
    site->interval = key->interval;
    site->labels = key->labels;
    site->group = key->group;
    site->frame_count = (uint16_t)key->count;
    site->module_count = (uint16_t)known;
    site->modules = (struct hak_profile_module **)(site->frames + key->count);
    memcpy(site->frames, key->frames, frames_bytes);
    memcpy(site->modules, modules, known * sizeof *modules);
    return site;
}

struct hak_profile_site *hak__profile_site_here(size_t n, const struct hak_samples *samples)
{
    struct site_key key;
    bool asked = hak__profile_is_asked();
    key.count = asked ? hak__frames_here(key.frames, HAK_PROFILE_FRAMES) : 0;
    key.labels = asked ? hak__labels_here(samples) : NULL;
    key.group = asked ? group_of(n) : HAK_PROFILE_TRACED_SITE;
    key.interval = hak_load(&hak__profile.interval, HAK_RELAXED);
    _Atomic(struct hak_profile_site *) *bucket = &hak__profile_buckets[bucket_of(&key)];
    /* acquire: pairs with the release below; a site found is complete. */
    struct hak_profile_site *head = hak_load(bucket, HAK_ACQUIRE), *seen = NULL, *made = NULL;
    for (;;) {
        struct hak_profile_site *found = find_site(head, seen, &key);
        if (found != NULL)
            return found; /* a site made in vain stays unused */
        if (made == NULL && (made = new_site(&key)) == NULL)
            return NULL;
        made->next = seen = head;
        if (hak_cas_strong(bucket, &head, made, HAK_ACQ_REL, HAK_ACQUIRE))
            return made;
    }
}

uintptr_t hak__profile_site_frame(const struct hak_profile_site *site, uint32_t i)
{
    uintptr_t frame = site->frames[i];
    for (uint32_t at = 0; at < site->module_count; at++)
        if (frame - site->modules[at]->start < site->modules[at]->end - site->modules[at]->start)
            return frame + hak_load(&site->modules[at]->moved, HAK_RELAXED);
    return frame;
}

bool hak__profile_site_next(uint32_t *bucket, struct hak_profile_site **site)
{
    if (hak__profile_buckets == NULL)
        return false;
    uint64_t interval = hak_load(&hak__profile.interval, HAK_RELAXED);
    do {
        *site = *site == NULL ? NULL : (*site)->next;
        for (; *site == NULL && *bucket < HAK_PROFILE_BUCKETS; ++*bucket)
            *site = hak_load(&hak__profile_buckets[*bucket], HAK_ACQUIRE);
    } while (*site != NULL && ((*site)->interval != interval || (*site)->group == HAK_PROFILE_TRACED_SITE));
    return *site != NULL;
}

/* --- live bytes and their peak ------------------------------------------------------------------------------------------------ */

/* n / (1 - exp(-n / mean)): by its series while n is small, else of exp(-x) = exp(-x / 64)^64, that by its series. */
uint64_t hak__profile_weight(const struct hak_profile_site *site, uint64_t n)
{
    double x = (double)n / (double)site->interval, part = x / 64;
    if (site->interval <= 1 || x > 40 || n == 0)
        return n;
    if (x < 0.1)
        return (uint64_t)((double)site->interval * (1 + x / 2 + x * x / 12) + 0.5);
    double missed = 1 - part * (1 - part / 2 * (1 - part / 3 * (1 - part / 4 * (1 - part / 5))));
    for (unsigned i = 0; i < 6; i++)
        missed *= missed;
    return (uint64_t)((double)n / (1 - missed) + 0.5);
}

/* Keeps the figures of the peak before a site's figures change. */
static void keep_peak(struct hak_profile_site *site)
{
    uint64_t epoch = hak_load(&peak_epoch, HAK_RELAXED), before = hak_load(&site->peak_epoch, HAK_RELAXED);
    if (before == epoch || !hak_cas_strong(&site->peak_epoch, &before, epoch, HAK_RELAXED, HAK_RELAXED))
        return;
    uint64_t freed = hak_load(&site->freed, HAK_RELAXED), freed_bytes = hak_load(&site->freed_bytes, HAK_RELAXED);
    hak_store(&site->peak, hak_load(&site->allocated, HAK_RELAXED) - freed, HAK_RELAXED);
    hak_store(&site->peak_bytes, hak_load(&site->allocated_bytes, HAK_RELAXED) - freed_bytes, HAK_RELAXED);
}

static void note_peak(uint64_t weight)
{
    uint64_t most = hak_load(&peak_weight, HAK_RELAXED);
    while (weight > most)
        if (hak_cas_weak(&peak_weight, &most, weight, HAK_RELAXED, HAK_RELAXED)) {
            hak_store(&peak_ms, hak__os->now_ms(), HAK_RELAXED);
            hak_fetch_add(&peak_epoch, 1, HAK_RELAXED);
            return;
        }
}

void hak__profile_site_add(struct hak_profile_site *site, size_t n)
{
    if (site->group == HAK_PROFILE_TRACED_SITE)
        return;
    uint64_t weight = hak__profile_weight(site, n);
    keep_peak(site);
    hak_fetch_add(&site->allocated, 1, HAK_RELAXED);
    hak_fetch_add(&site->allocated_bytes, n, HAK_RELAXED);
    note_peak(hak_fetch_add(&live_weight, weight, HAK_RELAXED) + weight);
}

static uint32_t lifetime_of(uint64_t ms)
{
    uint32_t place = ms == 0 ? 0 : hak_msb64(ms) / 2 + 1;
    return (uint32_t)hak_min(place, HAK_PROFILE_LIFETIMES - 1);
}

void hak__profile_site_remove(struct hak_profile_site *site, size_t n, uint64_t lived_ms)
{
    if (site->group == HAK_PROFILE_TRACED_SITE)
        return;
    keep_peak(site);
    hak_fetch_add(&site->freed, 1, HAK_RELAXED);
    hak_fetch_add(&site->freed_bytes, n, HAK_RELAXED);
    hak_fetch_add(&site->lifetimes[lifetime_of(lived_ms)], 1, HAK_RELAXED);
    hak_fetch_sub(&live_weight, hak__profile_weight(site, n), HAK_RELAXED);
}

void hak__profile_site_peak(const struct hak_profile_site *site, uint64_t *count, uint64_t *bytes)
{
    if (hak_load(&site->peak_epoch, HAK_RELAXED) == hak_load(&peak_epoch, HAK_RELAXED)) {
        *count = hak_load(&site->peak, HAK_RELAXED);
        *bytes = hak_load(&site->peak_bytes, HAK_RELAXED);
        return;
    }
    *count = hak_load(&site->allocated, HAK_RELAXED) - hak_load(&site->freed, HAK_RELAXED);
    *bytes = hak_load(&site->allocated_bytes, HAK_RELAXED) - hak_load(&site->freed_bytes, HAK_RELAXED);
}

uint64_t hak__profile_peak_ms(void) { return hak_load(&peak_ms, HAK_RELAXED); }
