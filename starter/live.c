/* See live.h. */
#include "live.h"

#include <sys/uio.h>

/* --- memory ---------------------------------------------------------------------------------------------------------------- */

static long copy(long call, uint64_t pid, uint64_t address, void *here, size_t size)
{
    struct iovec mine = { here, size }, theirs = { (void *)(uintptr_t)address, size };
    return hak__syscall(call, pid, &mine, 1, &theirs, 1, 0);
}

bool live_read(const struct live *live, uint64_t address, void *to, size_t size)
{
    return copy(SYS_process_vm_readv, live->pid, address, to, size) == (long)size;
}

bool live_write(const struct live *live, uint64_t address, const void *from, size_t size)
{
    union {
        const void *read;
        void *written;
    } both = { from }; /* the call reads it */
    return copy(SYS_process_vm_writev, live->pid, address, both.written, size) == (long)size;
}

uint64_t live_word(const struct live *live, uint64_t address)
{
    uint64_t word = 0;
    return live_read(live, address, &word, sizeof word) ? word : 0;
}

uint32_t live_half(const struct live *live, uint64_t address)
{
    uint32_t half = 0;
    return live_read(live, address, &half, sizeof half) ? half : 0;
}

/* --- finding the library ----------------------------------------------------------------------------------------------------- */

uint64_t pid_of(const char *word)
{
    const char *behind;
    uint64_t pid = number_at(word, &behind);
    if (pid == 0 || *behind != 0)
        complain("%s: not the number of a process", word);
    return *behind == 0 ? pid : 0;
}

static uint64_t hex_at(const char *text, const char **behind)
{
    uint64_t n = 0;
    for (; (*text >= '0' && *text <= '9') || (*text >= 'a' && *text <= 'f'); text++)
        n = n * 16 + (uint64_t)(*text <= '9' ? *text - '0' : *text - 'a' + 10);
    *behind = text;
    return n;
}

/* The line "START-END rights OFFSET device inode   PATH" of a file's first mapping. */
static bool mapping_of(char *line, uint64_t *start, char **path)
{
    const char *at;
    *start = hex_at(line, &at);
    if (*at != '-')
        return false;
    hex_at(at + 1, &at);
    while (*at == ' ')
        at++;
    bool is_private = false; /* loaders map so; a shared mapping is one of a reader, such as a debugger */
    for (; *at != ' ' && *at != 0; at++)
        is_private = *at == 'p';
    uint64_t offset = hex_at(at + (*at == ' '), &at);
    while (*at != 0 && *at != '/')
        at++;
    *path = line + (at - line);
    return *at == '/' && offset == 0 && is_private;
}

/* hak_live in the file, if it has the library and the process has started it there. */
static bool try_file(struct live *live, uint64_t start, const char *path)
{
    char inside[PATH_SIZE];
    struct view file;
    const char *interpreter;
    uint64_t address = 0;
    hak__format(inside, sizeof inside, "/proc/%u/root%s", live->pid, path);
    bool found = map_file(inside, &file) && elf_is(&file, &interpreter) && elf_address(&file, "hak_live", &address);
    bool fixed = found && ((const unsigned char *)file.start)[16] == 2; /* ET_EXEC: addresses are those of the file */
    unmap_file(&file);
    if (!found || !live_read(live, address + (fixed ? 0 : start), &live->page, sizeof live->page)
        || live->page.magic != HAK_LIVE_MAGIC)
        return false;
    hak__format(live->path, sizeof live->path, "%s", path);
    return live->page.version == HAK_LIVE_VERSION;
}

static bool is_named(const char *path)
{
    while (*path != 0 && !hak_begins(path, "libhakmem"))
        path++;
    return *path != 0;
}

static bool read_tables(struct live *live)
{
    struct hak_live_tables *head = (void *)live->tables;
    uint64_t at = live->page.roots[0];
    bool done =
        live_read(live, at, head, sizeof *head) && head->size <= TABLES_MOST && live_read(live, at, live->tables, head->size);
    live->tables[TABLES_MOST - 1] = 0; /* the last name ends there, whatever was read */
    return done;
}

/* First the files that are named like the library, then all others: a program may have the archive in it. */
static bool search(struct live *live, char *maps)
{
    for (int named = 1; named >= 0; named--)
        for (char *line = maps, *next; *line != 0; line = next) {
            size_t length = 0;
            uint64_t start;
            char *path;
            while (line[length] != 0 && line[length] != '\n')
                length++;
            next = line + length + (line[length] == '\n');
            char end = line[length];
            line[length] = 0;
            bool found = mapping_of(line, &start, &path) && is_named(path) == (named != 0) && try_file(live, start, path);
            line[length] = end;
            if (found)
                return true;
        }
    return false;
}

bool may_be_read(uint64_t pid)
{
    char path[PATH_SIZE], line[64];
    const char *behind;
    uint64_t word;
    hak__format(path, sizeof path, "/proc/%u/maps", pid);
    read_file(path, line, sizeof line);
    return copy(SYS_process_vm_readv, pid, hex_at(line, &behind), &word, sizeof word) != -EPERM;
}

bool live_open(struct live *live, uint64_t pid)
{
    static char maps[8 << 20]; /* the kernel's 65530 lines of a hundred letters; the library may be in the last */
    char path[PATH_SIZE];
    live->pid = pid;
    hak__format(path, sizeof path, "/proc/%u/maps", pid);
    if (hak__syscall(SYS_kill, pid, 0) == -ESRCH)
        return complain("process %u is gone", pid), false;
    if (read_file(path, maps, sizeof maps) == 0)
        return complain("process %u may not be read; be its user, or root", pid), false;
    if (!may_be_read(pid))
        return complain("process %u may not be read (ptrace is restricted here); be root, or use HAKMEM_STATS_SIGNAL", pid), false;
    if (!search(live, maps))
        return complain("process %u does not run on HAKMEM, or on one with another live page", pid), false;
    return read_tables(live) ? true : (complain("process %u: its tables cannot be read", pid), false);
}

/* --- tables ----------------------------------------------------------------------------------------------------------------------- */

static const struct hak_live_list *list_of(const struct live *live, unsigned which)
{
    return &((const struct hak_live_tables *)(const void *)live->tables)->lists[which];
}

static const char *name_in(const struct live *live, unsigned which, unsigned i)
{
    const struct hak_live_list *list = list_of(live, which);
    const char *name = live->tables + hak_min(list->names, TABLES_MOST - 1), *end = live->tables + TABLES_MOST;
    if (i >= list->count)
        return NULL;
    for (; i > 0 && name < end; i--) {
        while (name < end && *name != 0)
            name++;
        name++;
    }
    return name < end ? name : NULL;
}

/* The name's index; UINT32_MAX: there is none. */
static uint32_t index_in(const struct live *live, unsigned which, const char *wanted)
{
    const struct hak_live_list *list = list_of(live, which);
    const char *name = live->tables + hak_min(list->names, TABLES_MOST - 1), *end = live->tables + TABLES_MOST;
    for (uint32_t i = 0; i < list->count && name < end; i++) {
        if (strcmp(name, wanted) == 0)
            return i;
        while (name < end && *name != 0)
            name++;
        name++;
    }
    return UINT32_MAX;
}

static uint32_t value_in(const struct live *live, unsigned which, uint32_t i)
{
    const struct hak_live_list *list = list_of(live, which);
    uint64_t at = list->values + (uint64_t)i * 4;
    uint32_t value = 0;
    if (i < list->count && list->values != 0 && at + 4 <= TABLES_MOST)
        memcpy(&value, live->tables + at, sizeof value);
    return value;
}

uint64_t live_root(const struct live *live, const char *name)
{
    uint32_t i = index_in(live, HAK_LIVE_LIST_ROOTS, name);
    return i < live->page.root_count && i < HAK_LIVE_ROOTS_MAX ? live->page.roots[i] : 0;
}

uint32_t live_number(const struct live *live, const char *name)
{
    return value_in(live, HAK_LIVE_LIST_NUMBERS, index_in(live, HAK_LIVE_LIST_NUMBERS, name));
}

/* --- figures ----------------------------------------------------------------------------------------------------------------------- */

/* The next heap in use after `id`, in a buffer; 0: there is none, or a damaged table says that there are more than a process can have. */
enum { HEAPS_MOST = 1 << 17 }; /* HAK_HEAPS_MAX */
static _Alignas(8) char heap_text[HEAP_MOST];
static uint32_t next_heap(const struct live *live, uint32_t id)
{
    uint32_t last = (uint32_t)hak_min(live_half(live, live_root(live, "heap_last")), HEAPS_MOST - 1);
    size_t size = hak_min(live_number(live, "heap_size"), HEAP_MOST);
    while (++id <= last) {
        uint64_t at = live_root(live, "heaps") + (uint64_t)id * live_number(live, "heap_stride");
        if (live_half(live, at + live_number(live, "heap_state")) != 0 && live_read(live, at, heap_text, size))
            return id;
    }
    return 0;
}

static uint64_t heap_word(uint64_t offset)
{
    uint64_t word = 0;
    if (offset <= HEAP_MOST - sizeof word)
        memcpy(&word, heap_text + offset, sizeof word);
    return word;
}

const char *live_figure(const struct live *live, unsigned i, uint64_t *value, bool *known)
{
    const char *name = name_in(live, HAK_LIVE_LIST_FIGURES, i);
    uint32_t where = value_in(live, HAK_LIVE_LIST_FIGURES, i), kind = HAK_LIVE_KIND(where), root = HAK_LIVE_ROOT(where);
    *value = 0;
    *known = kind == HAK_LIVE_WORD || kind == HAK_LIVE_HEAPS || kind == HAK_LIVE_ALL;
    if (kind == HAK_LIVE_WORD && root < HAK_LIVE_ROOTS_MAX)
        *value = live_word(live, live->page.roots[root] + HAK_LIVE_OFFSET(where));
    if (kind == HAK_LIVE_ALL && root < HAK_LIVE_ROOTS_MAX)
        *value = live_word(live, live->page.roots[root]);
    for (uint32_t id = 0; (kind == HAK_LIVE_HEAPS || kind == HAK_LIVE_ALL) && (id = next_heap(live, id)) != 0;)
        *value += heap_word(HAK_LIVE_OFFSET(where));
    return name;
}

static uint64_t column_at(const struct live *live, const char *name, uint64_t class_at)
{
    uint32_t where = value_in(live, HAK_LIVE_LIST_COLUMNS, index_in(live, HAK_LIVE_LIST_COLUMNS, name));
    return HAK_LIVE_KIND(where) == HAK_LIVE_CLASS ? heap_word(class_at + HAK_LIVE_OFFSET(where)) : 0;
}

/* Blocks in the real bin, as the library counts them: top - bottom, in words. */
static uint64_t cached_in(const struct live *live, uint64_t class, uint64_t class_at)
{
    bool closed = heap_text[hak_min(live_number(live, "heap_closed") + class, HEAP_MOST - 1)] != 0;
    uint64_t visible = live_number(live, "heap_bins") + class * live_number(live, "bin_stride");
    uint64_t bin = closed ? class_at + live_number(live, "heap_class_hidden") : visible;
    uint64_t bottom = heap_word(class_at + live_number(live, "heap_class_bottom"));
    int64_t count = ((int64_t)heap_word(bin + live_number(live, "bin_top")) - (int64_t)bottom) / 8;
    uint64_t ceiling = heap_word(class_at + live_number(live, "heap_class_ceiling")) & 0xffff;
    return bottom != 0 && count >= 0 && count <= (int64_t)ceiling ? (uint64_t)count : 0;
}

static void add_class(const struct live *live, struct live_class *to, uint64_t class)
{
    uint64_t at = live_number(live, "heap_classes") + class * live_number(live, "heap_class_stride");
    to->spans += column_at(live, "spans", at);
    to->refilled += column_at(live, "refilled", at);
    to->drained += column_at(live, "drained", at);
    to->collected += column_at(live, "collected", at);
    to->misses += column_at(live, "misses", at);
    to->cached += cached_in(live, class, at);
}

static uint64_t figure_named(const struct live *live, const char *name)
{
    uint64_t value;
    bool known;
    live_figure(live, index_in(live, HAK_LIVE_LIST_FIGURES, name), &value, &known);
    return known ? value : 0;
}

void live_count(const struct live *live, struct live_figures *out)
{
    *out = (struct live_figures){ .class_count = hak_min(live_number(live, "class_count"), CLASSES_MOST) };
    for (uint32_t id = 0; (id = next_heap(live, id)) != 0; out->heaps++) {
        out->spans += heap_word(live_number(live, "heap_slab_count")) << live_number(live, "slab_shift");
        for (uint64_t c = 0; c < out->class_count; c++)
            add_class(live, &out->classes[c], c);
    }
    for (uint64_t c = 0; c < out->class_count; c++) {
        struct live_class *class = &out->classes[c];
        uint64_t row = live_root(live, "classes") + c * live_number(live, "class_stride");
        uint64_t gone = class->drained + class->collected + class->cached;
        class->size = live_half(live, row + live_number(live, "class_size"));
        class->live = class->refilled - hak_min(gone, class->refilled);
        out->live += class->live * class->size;
        out->cached += class->cached * class->size;
    }
    if (live_root(live, "sampled") != 0)
        out->live += live_word(live, live_root(live, "sampled") + sizeof(uint64_t)); /* in no class: blocks, then bytes */
    out->huge = figure_named(live, "bytes_huge");
}

bool live_option(const struct live *live, const char *name, uint64_t *value)
{
    uint32_t count = live_number(live, "option_count"), stride = live_number(live, "option_stride");
    for (uint32_t i = 0; i < count; i++) {
        uint64_t row = live_root(live, "option_rows") + (uint64_t)i * stride;
        char text[64] = "";
        uint32_t at = live_half(live, row + live_number(live, "option_name")) & 0xffff;
        live_read(live, live_root(live, "option_text") + at, text, sizeof text - 1);
        if (strcmp(text, name) == 0) {
            uint64_t word = live_word(live, live_root(live, "option_words") + (uint64_t)i * sizeof word);
            *value = word & ((1ull << live_number(live, "origin_shift")) - 1);
            return true;
        }
    }
    return false;
}
