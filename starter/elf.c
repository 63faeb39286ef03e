/* See elf.h. Everything read is held against the file's size first. */
#include "elf.h"

#include <elf.h>

static const void *part_at(const struct view *file, uint64_t at, uint64_t size)
{
    return size <= file->size && at <= file->size - size && at % 4 == 0 ? file->start + at : NULL;
}

static const Elf64_Ehdr *header_of(const struct view *file)
{
    const Elf64_Ehdr *header = part_at(file, 0, sizeof *header);
    bool good = header != NULL && memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 && header->e_ident[EI_CLASS] == ELFCLASS64;
    return good ? header : NULL;
}

struct symbols {
    const Elf64_Sym *rows;
    uint64_t count, text_size;
    const char *text;
};

/* The table of the kind: that of all symbols, or of those for the dynamic linker. */
static bool symbols_of(const struct view *file, uint32_t kind, struct symbols *out)
{
    const Elf64_Ehdr *header = header_of(file);
    const Elf64_Shdr *sections =
        header == NULL ? NULL : part_at(file, header->e_shoff, (uint64_t)header->e_shnum * sizeof *sections);
    for (unsigned i = 0; sections != NULL && i < header->e_shnum; i++) {
        const Elf64_Shdr *section = &sections[i];
        if (section->sh_type != kind || section->sh_link >= header->e_shnum)
            continue;
        const Elf64_Shdr *texts = &sections[section->sh_link];
        out->rows = part_at(file, section->sh_offset, section->sh_size);
        out->count = section->sh_size / sizeof *out->rows;
        out->text_size = texts->sh_size;
        out->text =
            texts->sh_size <= file->size && texts->sh_offset <= file->size - texts->sh_size ? file->start + texts->sh_offset : NULL;
        return out->rows != NULL && out->text != NULL && texts->sh_size != 0 && out->text[texts->sh_size - 1] == 0;
    }
    return false;
}

static const char *name_of(const struct symbols *symbols, const Elf64_Sym *row)
{
    return row->st_name < symbols->text_size ? symbols->text + row->st_name : "";
}

bool elf_address(const struct view *file, const char *name, uint64_t *address)
{
    static const uint32_t kinds[] = { SHT_DYNSYM, SHT_SYMTAB };
    struct symbols symbols;
    for (unsigned kind = 0; kind < 2; kind++)
        for (uint64_t i = 0; symbols_of(file, kinds[kind], &symbols) && i < symbols.count; i++)
            if (symbols.rows[i].st_shndx != SHN_UNDEF && strcmp(name_of(&symbols, &symbols.rows[i]), name) == 0) {
                *address = symbols.rows[i].st_value;
                return true;
            }
    return false;
}

const char *elf_function(const struct view *file, uint64_t address, uint64_t *offset)
{
    static const uint32_t kinds[] = { SHT_SYMTAB, SHT_DYNSYM };
    struct symbols symbols;
    for (unsigned kind = 0; kind < 2; kind++)
        for (uint64_t i = 0; symbols_of(file, kinds[kind], &symbols) && i < symbols.count; i++) {
            const Elf64_Sym *row = &symbols.rows[i];
            if (ELF64_ST_TYPE(row->st_info) == STT_FUNC && row->st_shndx != SHN_UNDEF && address - row->st_value < row->st_size) {
                *offset = address - row->st_value;
                return name_of(&symbols, row);
            }
        }
    return NULL;
}

bool elf_is(const struct view *file, const char **interpreter)
{
    const Elf64_Ehdr *header = header_of(file);
    *interpreter = NULL;
    const Elf64_Phdr *parts = header == NULL ? NULL : part_at(file, header->e_phoff, (uint64_t)header->e_phnum * sizeof *parts);
    for (unsigned i = 0; parts != NULL && i < header->e_phnum; i++)
        if (parts[i].p_type == PT_INTERP && parts[i].p_filesz != 0 && parts[i].p_offset < file->size
            && parts[i].p_filesz <= file->size - parts[i].p_offset && file->start[parts[i].p_offset + parts[i].p_filesz - 1] == 0)
            *interpreter = file->start + parts[i].p_offset;
    return parts != NULL;
}
