/* A small interpreter of call frame information (DWARF 5, section 6.4; the .eh_frame form is that of the Linux Standard
 * Base). The tables are the program's own and taken for what they say; what is read of the stack lies above the stack
 * pointer of the frame before and no further away than FRAME_MAX. */
#include "trace/unwind.h"

#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>
#include <ucontext.h>

#include "base/bits.h"
#include "os/os.h"
#include "trace/reader.h"
#include "trace/rows.h"

/* The result of the C library's search (glibc's <dlfcn.h>, which older ones do not have). */
struct unwind_object {
    unsigned long long flags;
    void *start, *end;
    struct link_map *map;
    void *frame_header;
    unsigned long long reserved[7];
};
extern int find_object(void *address, struct unwind_object *result) __asm__("_dl_find_object") __attribute__((weak, visibility("default")));

enum { REMEMBERED = 2 };
#define FRAME_MAX ((uintptr_t)1 << 20)

/* `end` is that of what may be read; `found` where the return address to pc was, 0 if in a register. */
struct machine {
    uintptr_t pc, end, found, registers[REGISTERS];
};

struct entry {
    struct reader common, own;   /* the instructions of the CIE and of the FDE */
    uintptr_t start;
    uint64_t code_unit;
    int64_t data_unit;
    bool interrupted;            /* the frame is one that a signal has interrupted */
};

/* --- tables ------------------------------------------------------------------------------------------------------- */

struct search {
    uintptr_t pc;
    const uint8_t *header;
};

static int look_at_module(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct search *search = argument;
    const uint8_t *header = NULL;
    bool inside = false;
    (void)size;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_LOAD)
            inside |= search->pc - start < part->p_memsz;
        else if (part->p_type == PT_GNU_EH_FRAME)
            header = (const uint8_t *)start;
    }
    if (inside)
        search->header = header;
    return inside;
}

static const uint8_t *header_of(uintptr_t pc)
{
    struct search search = { pc, NULL };
    struct unwind_object object;
    if (find_object != NULL)
        return find_object((void *)pc, &object) == 0 ? object.frame_header : NULL;
    dl_iterate_phdr(look_at_module, &search);
    return search.header;
}

/* What the sorted table in the header, which all linkers write in one form, says of the functions from `start` to the next. */
struct pair { int32_t start, entry; };

static struct pair pair_at(const uint8_t *header, uint32_t place)
{
    struct pair pair;
    memcpy(&pair, header + 12 + place * sizeof pair, sizeof pair);
    return pair;
}

/* Pairs of a header in that form. */
static uint32_t pairs_of(const uint8_t *header)
{
    static const uint8_t known[4] = { 1, 0x1b, 0x03, 0x3b };   /* version, and how pointer, count and table are written */
    uint32_t count, form, wanted;
    if (header == NULL)
        return 0;
    memcpy(&form, header, sizeof form);
    memcpy(&wanted, known, sizeof wanted);
    if (form != wanted)
        return 0;
    memcpy(&count, header + 8, sizeof count);
    return count;
}

static bool begins_by(const uint8_t *header, uint32_t place, uintptr_t pc)
{
    return (uintptr_t)header + (uintptr_t)(intptr_t)pair_at(header, place).start <= pc;
}

/* The place of the pair whose entry may be the one for pc; -1 if there is none. */
static int64_t place_of(const uint8_t *header, uintptr_t pc)
{
    uint32_t low = 0, high = pairs_of(header);
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (begins_by(header, middle, pc))
            low = middle + 1;
        else
            high = middle;
    }
    return (int64_t)low - 1;
}

/* Whether place_of would still say so. */
static bool is_place_of(const uint8_t *header, uintptr_t pc, uint32_t place)
{
    uint32_t count = pairs_of(header);
    return place < count && begins_by(header, place, pc) && (place + 1 == count || !begins_by(header, place + 1, pc));
}

/* The record at `at`: what follows its length. */
static struct reader record_at(const uint8_t *at)
{
    uint32_t length;
    memcpy(&length, at, sizeof length);
    return (struct reader){ at + 4, at + 4 + length, length == 0 || length >= 0xfffffff0u };
}

/* Reads the common part; the encoding of the other's pointers. */
static uint8_t read_common(struct entry *entry, const uint8_t *at)
{
    struct reader *reader = &entry->common;
    uint8_t encoding = 0;
    *reader = record_at(at);
    reader->bad |= read_fixed(reader, 4) != 0;
    uint64_t version = read_byte(reader);
    const char *letters = (const char *)reader->at;
    while (read_byte(reader) != 0)
        continue;
    entry->code_unit = read_uleb(reader);
    entry->data_unit = read_sleb(reader);
    reader->bad |= (version == 1 ? read_byte(reader) : read_uleb(reader)) != REGISTER_RETURN || *letters != 'z';
    if (reader->bad)
        return 0;
    uint64_t length = read_uleb(reader);
    struct reader more = *reader;
    reader->at += length;
    for (letters++; *letters != 0; letters++) {
        if (*letters == 'R')
            encoding = read_byte(&more);
        else if (*letters == 'P')
            read_pointer(&more, read_byte(&more) & 0x7f);
        else if (*letters == 'L')
            read_byte(&more);
        else if (*letters == 'S')
            entry->interrupted = true;
    }
    reader->bad |= more.bad || reader->at > reader->end;
    return encoding;
}

static bool read_entry(const uint8_t *at, uintptr_t pc, struct entry *entry)
{
    entry->interrupted = false;
    entry->own = record_at(at);
    const uint8_t *place = entry->own.at;
    uint8_t encoding = read_common(entry, place - read_fixed(&entry->own, 4));
    if (entry->own.bad || entry->common.bad)
        return false;
    entry->start = read_pointer(&entry->own, encoding);
    uintptr_t size = read_pointer(&entry->own, encoding & 0x0f);
    uint64_t skip = read_uleb(&entry->own);
    entry->own.at += skip;
    return !entry->own.bad && entry->own.at <= entry->own.end && pc - entry->start < size;
}

/* --- rules -------------------------------------------------------------------------------------------------------- */

static void restore_rule(struct rules *rules, const struct rules *initial, uint64_t index)
{
    if (index >= REGISTERS)
        return;
    bool known = (initial->changed >> index & 1) != 0;
    set_rule(rules, index, known ? (enum rule)initial->how[index] : RULE_SAME, known ? initial->at[index] : 0);
}

struct run {
    struct rules *rules, initial, saved[REMEMBERED];
    unsigned remembered;
    uintptr_t place;
    const struct entry *entry;
};

/* The instructions with a code of their own that say where a register or the frame is. False: none of these, or one whose
 * rule is not an offset. */
static bool obey_rule(struct run *run, struct reader *reader, uint8_t code)
{
    struct rules *rules = run->rules;
    int64_t unit = run->entry->data_unit;
    uint64_t index = code == 0x0e || code == 0x13 || code == 0x2e ? 0 : read_uleb(reader);
    switch (code) {
    case 0x05: set_rule(rules, index, RULE_OFFSET, (int64_t)read_uleb(reader) * unit); return true;
    case 0x11: set_rule(rules, index, RULE_OFFSET, read_sleb(reader) * unit); return true;
    case 0x06: restore_rule(rules, &run->initial, index); return true;
    case 0x07: set_rule(rules, index, RULE_NONE, 0); return true;
    case 0x08: set_rule(rules, index, RULE_SAME, 0); return true;
    case 0x0c: rules->frame_offset = (intptr_t)read_uleb(reader); rules->frame_register = (uint8_t)index; return true;
    case 0x12: rules->frame_offset = (intptr_t)(read_sleb(reader) * unit); rules->frame_register = (uint8_t)index; return true;
    case 0x0d: rules->frame_register = (uint8_t)index; return true;
    case 0x0e: rules->frame_offset = (intptr_t)read_uleb(reader); return true;
    case 0x13: rules->frame_offset = (intptr_t)(read_sleb(reader) * unit); return true;
    case 0x2e: read_uleb(reader); return true;   /* the size of arguments, for exceptions */
    case 0x10: {                            /* an expression: that register is not followed */
        uint64_t length = read_uleb(reader);
        reader->bad |= length > (uint64_t)(reader->end - reader->at);
        reader->at += reader->bad ? 0 : length;
        set_rule(rules, index, RULE_NONE, 0);
        return true;
    }
    default: return false;
    }
}

static bool unwind_remember(struct run *run)
{
    if (run->remembered == REMEMBERED)
        return false;
    run->saved[run->remembered++] = *run->rules;
    return true;
}

static bool unwind_recall(struct run *run)
{
    if (run->remembered == 0)
        return false;
    *run->rules = run->saved[--run->remembered];
    return true;
}

static bool unwind_obey(struct run *run, struct reader *reader, uint8_t code)
{
    uint64_t unit = run->entry->code_unit, low = code & 0x3f;
    switch (code >> 6) {
    case 1: run->place += low * unit; return true;
    case 2: set_rule(run->rules, low, RULE_OFFSET, (int64_t)read_uleb(reader) * run->entry->data_unit); return true;
    case 3: restore_rule(run->rules, &run->initial, low); return true;
    default: break;
    }
    switch (code) {
    case 0x00: return true;
    case 0x02: run->place += read_byte(reader) * unit; return true;
    case 0x03: run->place += read_fixed(reader, 2) * unit; return true;
    case 0x04: run->place += read_fixed(reader, 4) * unit; return true;
    case 0x0a: return unwind_remember(run);
    case 0x0b: return unwind_recall(run);
    case 0x2d: return true;   /* the return address is signed from here on, or not */
    default: return obey_rule(run, reader, code);
    }
}

/* What holds at pc. */
static bool rules_at(const struct entry *entry, uintptr_t pc, struct rules *rules)
{
    struct run run;
    struct reader parts[2] = { entry->common, entry->own };
    rules->changed = 0;
    rules->frame_register = 0;
    rules->frame_offset = 0;
    run.rules = rules;
    run.entry = entry;
    run.place = entry->start;
    run.remembered = 0;
    run.initial.changed = 0;
    for (unsigned part = 0; part < 2; part++) {
        struct reader *reader = &parts[part];
        while (reader->at < reader->end && run.place <= pc) {
            /* An advance beyond pc ends it: what follows holds from there on. */
            if (!unwind_obey(&run, reader, read_byte(reader)) || reader->bad)
                return false;
        }
        if (part == 0)
            run.initial = *rules;
    }
    return rules->frame_register < REGISTERS;
}

/* --- walking ------------------------------------------------------------------------------------------------------- */

#if !defined(HAK_UNITY) || !HAK_UNITY
#if defined(__has_attribute)
#if __has_attribute(no_sanitize_address)
__attribute__((no_sanitize_address))
#endif
#endif
uintptr_t hak__unwind_word(uintptr_t address) { return *(const volatile uintptr_t *)address; }
#endif

/* The rules at pc; `exact` becomes whether the caller's pc will be no return address. */
static bool find_rules(uintptr_t pc, struct rules *rules, bool *exact)
{
    struct row row;
    struct entry entry;
    const uint8_t *header = header_of(pc);
    if (row_find(pc, &row) && is_place_of(header, pc, row.place) && entry_sum(header + pair_at(header, row.place).entry) == row.sum) {
        row_unpack(row.rules, rules);
        *exact = false;
        return true;
    }
    int64_t place = place_of(header, pc);
    if (place < 0)
        return false;
    const uint8_t *at = header + pair_at(header, (uint32_t)place).entry;
    if (!read_entry(at, pc, &entry) || !rules_at(&entry, pc, rules))
        return false;
    *exact = entry.interrupted;
    if (!entry.interrupted)
        row_keep(pc, &(struct row){ row_pack(rules), (uint64_t)place, entry_sum(at) });
    return true;
}

/* From a function's registers to its caller's; `exact` says that pc is not a return address. */
static bool unwind_step(struct machine *machine, bool *exact)
{
    struct rules rules;
    uintptr_t pc = machine->pc - !*exact, sp = machine->registers[REGISTER_SP];
    if (!find_rules(pc, &rules, exact))
        return false;
    uintptr_t frame = machine->registers[rules.frame_register] + (uintptr_t)rules.frame_offset;
    if (frame < sp || frame - sp > FRAME_MAX || frame % sizeof frame != 0)
        return false;
    uintptr_t before = machine->pc, *registers = machine->registers;
    machine->found = 0;
    for (uint32_t left = rules.changed; left != 0; left &= left - 1) {
        unsigned i = hak_ctz32(left);
        uintptr_t at = frame + (uintptr_t)(intptr_t)rules.at[i];
        if (rules.how[i] == RULE_NONE)
            registers[i] = 0;
        else if (rules.how[i] == RULE_OFFSET && at >= sp && at < frame + FRAME_MAX && at < machine->end)
            registers[i] = hak__unwind_word(at);
        if (i == REGISTER_RETURN && rules.how[i] == RULE_OFFSET)
            machine->found = at;
    }
    machine->pc = registers[REGISTER_RETURN] & HAK_ADDRESS_BITS;
    registers[REGISTER_SP] = frame;
    bool on = machine->pc != 0 && (machine->pc != before || frame != sp);
    return on;
}

static bool has_table(uintptr_t pc)
{
    struct entry entry;
    const uint8_t *header = header_of(pc);
    int64_t place = place_of(header, pc);
    return place >= 0 && read_entry(header + pair_at(header, (uint32_t)place).entry, pc, &entry);
}

/* Whether that page can be read; `known` is the last one that could. No system call for frames of one page. */
static bool is_readable(uintptr_t address, uintptr_t *known)
{
    uintptr_t page = address & -hak__os->page_size();
    if (page != *known && hak__os_readable(page) != 0)
        return false;
    *known = page;
    return true;
}

/* CPython's trampolines for perf have no frame pointer on x86-64. Behind the call they say how large their frame is:
 * add $N, %rsp; ret. */
static bool leave_trampoline(struct machine *machine, uintptr_t end)
{
    const uint8_t *code = (const uint8_t *)machine->pc;
    uintptr_t known = 1;   /* no page */
    /* What tables have led to might be no address at all. */
    if (!BARE_TRAMPOLINES || !is_readable(machine->pc, &known) || !is_readable(machine->pc + 4, &known))
        return false;
    uintptr_t at = machine->registers[REGISTER_SP] + code[3];
    if (code[0] != 0x48 || code[1] != 0x83 || code[2] != 0xc4 || code[3] % 8 != 0 || code[3] > 0x7f || code[4] != 0xc3 || at >= end)
        return false;
    machine->pc = hak__unwind_word(at) & HAK_ADDRESS_BITS;
    machine->registers[REGISTER_SP] = at + sizeof at;
    return has_table(machine->pc - 1);
}

/* From a pair of frame pointer and return address, at the upper end of a frame, to the next. (Arm's compilers have it at the lower.) */
static bool follow_pair(struct machine *machine, uintptr_t end, uintptr_t *known)
{
    uintptr_t pair = machine->registers[REGISTER_FP], sp = machine->registers[REGISTER_SP];
    if (pair < sp || pair - sp > FRAME_MAX || pair % sizeof pair != 0 || pair >= end - 2 * sizeof pair)
        return false;
    if (!is_readable(pair, known) || !is_readable(pair + sizeof pair, known))
        return false;
    machine->registers[REGISTER_SP] = pair + 2 * sizeof pair;
    machine->registers[REGISTER_FP] = hak__unwind_word(pair);
    machine->pc = hak__unwind_word(pair + sizeof pair) & HAK_ADDRESS_BITS;
    return true;
}

/* Through generated code, which has no tables and in most runtimes frame pointers. A register that holds anything else leads
 * nowhere: what is found counts only if it ends in a call from code with tables, or fills the room. */
static uint32_t unwind_untabled(struct machine *machine, bool exact, uintptr_t *frames, uint32_t most)
{
    struct machine there = *machine;
    uintptr_t sp = there.registers[REGISTER_SP], known = sp & -hak__os->page_size();
    uintptr_t end = hak_min(there.end, hak__unwind_end(sp, (uintptr_t)hak__os_thread_pointer()));
    uint32_t count = 0;
    there.end = end;   /* for tables further out too: the stack pointer may be another than they suppose */
    if (!exact && leave_trampoline(&there, end)) {
        frames[count++] = there.pc;
    } else {
        there.pc = machine->pc;
        there.registers[REGISTER_SP] = sp;
        do {
            if (!follow_pair(&there, end, &known))
                return 0;
            frames[count++] = there.pc;
        } while (count < most && !has_table(there.pc - 1));
    }
    *machine = there;
    return count;
}

static uint32_t unwind_walk(struct machine *machine, bool exact, uintptr_t *frames, uint32_t most)
{
    uint32_t count = 0, more;
    do {
        while (count < most && unwind_step(machine, &exact))
            frames[count++] = machine->pc;
        bool untabled = count < most && machine->pc != 0 && !has_table(machine->pc - !exact);
        more = untabled ? unwind_untabled(machine, exact, frames + count, most - count) : 0;
        count += more;
        exact = false;
    } while (more != 0);
    return count;
}

#if defined(__x86_64__)

uint32_t hak__unwind(uintptr_t *frames, uint32_t most)
{
    struct machine here;
    uintptr_t *out = here.registers, *pc = &here.pc;
    memset(&here, 0, sizeof here);
    here.end = UINTPTR_MAX;
    /* All at one place, for which the tables of this very function are meant. */
    __asm__ volatile("movq %%rbx, 24(%0)\n\tmovq %%rbp, 48(%0)\n\tmovq %%rsp, 56(%0)\n\tmovq %%r12, 96(%0)\n\t"
                     "movq %%r13, 104(%0)\n\tmovq %%r14, 112(%0)\n\tmovq %%r15, 120(%0)\n\t"
                     "leaq 1f(%%rip), %%rax\n1:\tmovq %%rax, (%1)"
                     : : "r"(out), "r"(pc) : "rax", "memory");
    return unwind_walk(&here, true, frames, most);
}

static void from_context(struct machine *out, const ucontext_t *context)
{
    static const uint8_t places[16] = { REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI, REG_RBP, REG_RSP,
                                        REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15 };
    for (unsigned i = 0; i < sizeof places; i++)
        out->registers[i] = (uintptr_t)context->uc_mcontext.gregs[places[i]];
    out->pc = (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
}

#elif defined(__aarch64__)

uint32_t hak__unwind(uintptr_t *frames, uint32_t most)
{
    struct machine here;
    uintptr_t *out = here.registers, *pc = &here.pc;
    memset(&here, 0, sizeof here);
    here.end = UINTPTR_MAX;
    __asm__ volatile("stp x19, x20, [%0, #152]\n\tstp x21, x22, [%0, #168]\n\tstp x23, x24, [%0, #184]\n\t"
                     "stp x25, x26, [%0, #200]\n\tstp x27, x28, [%0, #216]\n\tstp x29, x30, [%0, #232]\n\t"
                     "mov x9, sp\n\tstr x9, [%0, #248]\n\tadr x9, 1f\n1:\tstr x9, [%1]"
                     : : "r"(out), "r"(pc) : "x9", "memory");
    return unwind_walk(&here, true, frames, most);
}

static void from_context(struct machine *out, const ucontext_t *context)
{
    for (unsigned i = 0; i < 31; i++)
        out->registers[i] = context->uc_mcontext.regs[i];
    out->registers[REGISTER_SP] = context->uc_mcontext.sp;
    out->pc = context->uc_mcontext.pc;
}

#else

uint32_t hak__unwind(uintptr_t *frames, uint32_t most)
{
    if (most != 0)
        frames[0] = (uintptr_t)__builtin_return_address(0);
    return most != 0;
}

static void from_context(struct machine *out, const ucontext_t *context) { (void)out, (void)context; }

#endif

uint32_t hak__unwind_signal(uintptr_t *frames, uint32_t most, const void *context)
{
    struct machine there;
    memset(&there, 0, sizeof there);
    there.end = UINTPTR_MAX;
    from_context(&there, context);
    if (most == 0 || there.pc == 0)
        return 0;
    frames[0] = there.pc;
    return 1 + unwind_walk(&there, true, frames + 1, most - 1);
}

/* --- from a call of ours ------------------------------------------------------------------------------------------- */

uintptr_t hak__unwind_main_stack;

/* The kernel's random bytes lie at the end of the first thread's stack, beyond all of its frames. */
void hak__unwind_begin(void) { hak__unwind_main_stack = getauxval(AT_RANDOM) & ~(sizeof(uintptr_t) - 1); }

/* Nothing but the stack pointer and the frame pointer is known: all that functions count their frames from, nearly. */
uint32_t hak__unwind_here(const struct hak_here *here, uintptr_t *frames, uint16_t *places)
{
    struct machine there;
    bool exact = false;
    uint32_t count = 1;
    frames[0] = here->pc;
    places[0] = 0;
    memset(&there, 0, sizeof there);
    there.pc = here->pc;
    there.end = here->end;
    there.registers[REGISTER_FP] = here->fp;
    there.registers[REGISTER_SP] = here->sp;
    while (REGISTERS > 1 && find_object != NULL && count < HAK_HERE_FRAMES && unwind_step(&there, &exact)) {
        uintptr_t place = (there.found - here->sp) / sizeof place;
        if (there.found < here->sp || there.found >= here->end || place > UINT16_MAX)
            break;
        frames[count] = there.pc;
        places[count++] = (uint16_t)place;
    }
    return count;
}

bool hak__unwind_module(uintptr_t address, uintptr_t *start, uintptr_t *end, uintptr_t *base, const char **name)
{
    struct unwind_object object;
    if (find_object == NULL || find_object((void *)address, &object) != 0)
        return false;
    *start = (uintptr_t)object.start;
    *end = (uintptr_t)object.end;
    *base = object.map->l_addr;
    *name = object.map->l_name;
    return true;
}
