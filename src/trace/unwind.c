/* A small interpreter of call frame information (DWARF 5, section 6.4; the .eh_frame form is that of the Linux Standard Base).
 * It reads tables only within their module, and the stack only above the previous frame's stack pointer, at most FRAME_MAX away,
 * in pages that the kernel confirms as readable: a stack may be any memory. */
#include "trace/unwind.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/auxv.h>
#include <ucontext.h>

#include "base/assert.h"
#include "base/bits.h"
#include "os/loaded.h"
#include "os/os.h"
#include "trace/registers.h"
#include "trace/rows.h"

enum { REMEMBERED = 2 };
#define FRAME_MAX ((uintptr_t)1 << 20)

/* A module's sorted table; `room` is the whole module. */
struct table {
    const uint8_t *header;
    uint32_t count;
    struct reader room;
};

/* `end` is the stack's probable end, used where the kernel is not asked; `found`: where the return address to pc was, 0 if in a
 * register. */
struct machine {
    uintptr_t pc, end, found, registers[REGISTERS];
    uintptr_t readable; /* the last readable page, or one of the two values below, which are no pages */
    struct table table; /* the last frame's module's */
};
enum { NEVER_ASKED = 1, NOT_YET_ASKED, LEAST_PAGE = 4096 };

struct entry {
    struct reader common, own; /* instructions of the CIE and the FDE */
    uintptr_t start;
    uint64_t code_unit;
    int64_t data_unit;
    bool interrupted; /* a signal interrupted this frame */
};

/* --- tables ------------------------------------------------------------------------------------------------------- */

/* An entry of the header's sorted table, which all linkers write in one form: for the functions from `start` up to the next
 * entry. */
struct pair {
    int32_t start, entry;
};

static struct pair pair_at(const struct table *table, uint32_t place)
{
    struct pair pair;
    hak_assert(place < table->count, "a place of the table");
    memcpy(&pair, table->header + 12 + place * sizeof pair, sizeof pair);
    return pair;
}

static const uint8_t *entry_at(const struct table *table, uint32_t place) { return table->header + pair_at(table, place).entry; }

/* The table for pc; without pairs if its module has none in that form. */
static struct table table_of(uintptr_t pc)
{
    const uint32_t known = 0x3b031b01; /* version, and the encodings of pointer, count and table */
    uint32_t form, count;
    struct hak_module module;
    struct table table = { .count = 0 };
    if (!hak__loaded_at(pc, &module))
        return table;
    table.header = module.tables;
    table.room = (struct reader){ (const uint8_t *)module.start, (const uint8_t *)module.end, false };
    if (!reader_has(&table.room, table.header, 12))
        return table;
    memcpy(&form, table.header, sizeof form);
    memcpy(&count, table.header + 8, sizeof count);
    if (form == known && reader_has(&table.room, table.header, 12 + count * sizeof(struct pair)))
        table.count = count;
    return table;
}

static bool begins_by(const struct table *table, uint32_t place, uintptr_t pc)
{
    return (uintptr_t)table->header + (uintptr_t)(intptr_t)pair_at(table, place).start <= pc;
}

/* The index of the pair whose entry may cover pc; -1 if there is none. */
static int64_t place_of(const struct table *table, uintptr_t pc)
{
    uint32_t low = 0, high = table->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (begins_by(table, middle, pc))
            low = middle + 1;
        else
            high = middle;
    }
    return (int64_t)low - 1;
}

/* Whether place_of would return `place` again. */
static bool is_place_of(const struct table *table, uintptr_t pc, uint64_t place)
{
    return place < table->count && begins_by(table, (uint32_t)place, pc)
        && (place + 1 == table->count || !begins_by(table, (uint32_t)place + 1, pc));
}

/* The record at `at`, without its length. */
static struct reader record_at(const struct reader *room, const uint8_t *at)
{
    uint32_t length = 0;
    if (reader_has(room, at, sizeof length))
        memcpy(&length, at, sizeof length);
    if (length == 0 || length >= 0xfffffff0u || !reader_has(room, at, sizeof length + length))
        return (struct reader){ at, at, true };
    return (struct reader){ at + sizeof length, at + sizeof length + length, false };
}

/* Reads the common part; returns the FDE's pointer encoding. */
static uint8_t read_common(struct entry *entry, const struct reader *room, const uint8_t *at)
{
    struct reader *reader = &entry->common;
    uint8_t encoding = 0;
    *reader = record_at(room, at);
    reader->bad |= read_fixed(reader, 4) != 0;
    uint64_t version = read_byte(reader);
    const char *letters = (const char *)reader->at;
    while (read_byte(reader) != 0)
        continue;
    if (reader->bad)
        return 0;
    entry->code_unit = read_uleb(reader);
    entry->data_unit = read_sleb(reader);
    reader->bad |= (version == 1 ? read_byte(reader) : read_uleb(reader)) != REGISTER_RETURN || *letters != 'z';
    if (reader->bad)
        return 0;
    uint64_t length = read_uleb(reader);
    struct reader more = *reader;
    read_over(reader, length);
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
    reader->bad |= more.bad;
    return encoding;
}

static bool read_entry(const struct reader *room, const uint8_t *at, uintptr_t pc, struct entry *entry)
{
    entry->interrupted = false;
    entry->own = record_at(room, at);
    const uint8_t *place = entry->own.at;
    uint8_t encoding = read_common(entry, room, place - read_fixed(&entry->own, 4));
    if (entry->own.bad || entry->common.bad)
        return false;
    entry->start = read_pointer(&entry->own, encoding);
    uintptr_t size = read_pointer(&entry->own, encoding & 0x0f);
    read_over(&entry->own, read_uleb(&entry->own));
    return !entry->own.bad && pc - entry->start < size;
}

/* --- rules -------------------------------------------------------------------------------------------------------- */

static void restore_rule(struct rules *rules, const struct rules *initial, uint64_t index)
{
    if (index >= REGISTERS)
        return;
    bool known = (initial->changed >> index & 1) != 0;
    set_rule(rules, index, known ? (enum rule)initial->how[index] : RULE_SAME, known ? initial->at[index] : 0);
}

static int64_t scaled(uint64_t value, int64_t unit) { return (int64_t)(value * (uint64_t)unit); } /* modulo 2^64 */

struct run {
    struct rules *rules, initial, saved[REMEMBERED];
    unsigned remembered;
    uintptr_t place;
    const struct entry *entry;
};

/* Instructions with a full opcode that set a register's or the frame's rule. False: another instruction, or a rule that is no
 * offset. */
static bool obey_rule(struct run *run, struct reader *reader, uint8_t code)
{
    struct rules *rules = run->rules;
    int64_t unit = run->entry->data_unit;
    uint64_t index = code == 0x0e || code == 0x13 || code == 0x2e ? 0 : read_uleb(reader);
    switch (code) {
    case 0x05: set_rule(rules, index, RULE_OFFSET, scaled(read_uleb(reader), unit)); return true;
    case 0x11: set_rule(rules, index, RULE_OFFSET, scaled((uint64_t)read_sleb(reader), unit)); return true;
    case 0x06: restore_rule(rules, &run->initial, index); return true;
    case 0x07: set_rule(rules, index, RULE_NONE, 0); return true;
    case 0x08: set_rule(rules, index, RULE_SAME, 0); return true;
    case 0x0c: rules->frame_offset = (intptr_t)read_uleb(reader); rules->frame_register = (uint8_t)index; return true;
    case 0x12: rules->frame_offset = (intptr_t)scaled((uint64_t)read_sleb(reader), unit); rules->frame_register = (uint8_t)index; return true;
    case 0x0d: rules->frame_register = (uint8_t)index; return true;
    case 0x0e: rules->frame_offset = (intptr_t)read_uleb(reader); return true;
    case 0x13: rules->frame_offset = (intptr_t)scaled((uint64_t)read_sleb(reader), unit); return true;
    case 0x2e: read_uleb(reader); return true;   /* argument size, for exceptions */
    case 0x10: read_over(reader, read_uleb(reader)); set_rule(rules, index, RULE_NONE, 0); return true;   /* an expression */
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
    case 2: set_rule(run->rules, low, RULE_OFFSET, scaled(read_uleb(reader), run->entry->data_unit)); return true;
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
    case 0x2d: return true; /* toggles signing of the return address: signed or not, HAK_RETURN_ADDRESS reads it */
    default: return obey_rule(run, reader, code);
    }
}

/* Finds the rules at pc. */
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
            /* An advance beyond pc ends the search: later rules apply from there on. */
            if (!unwind_obey(&run, reader, read_byte(reader)) || reader->bad)
                return false;
        }
        if (part == 0)
            run.initial = *rules;
    }
    return rules->frame_register < REGISTERS;
}

/* --- walking ------------------------------------------------------------------------------------------------------- */

#if HAK_ASAN
__attribute__((no_sanitize_address))
uintptr_t hak__unwind_word(uintptr_t address) { return *(const volatile uintptr_t *)address; }
#endif

/* 0 if the page is readable, EFAULT if not, EPERM if the kernel may not be asked. */
static int ask_page(struct machine *machine, uintptr_t page)
{
    int code = machine->readable == NEVER_ASKED ? EPERM : hak__os_readable(page);
    if (code == 0)
        machine->readable = page;
    return code;
}

hak_inline int page_error(struct machine *machine, uintptr_t address)
{
    uintptr_t page = address & -(uintptr_t)LEAST_PAGE;
    return hak_likely(page == machine->readable) ? 0 : ask_page(machine, page);
}

/* Reads a word of the stack at or above sp; false: not readable. */
hak_inline bool stack_word(struct machine *machine, uintptr_t at, uintptr_t sp, uintptr_t *word)
{
    if (at < sp || at % sizeof *word != 0)
        return false;
    int code = page_error(machine, at);
    if (code != 0 && (code != EPERM || at >= machine->end))
        return false;
    *word = hak__unwind_word(at);
    return true;
}

/* Finds the rules at pc; sets `exact` if the caller's pc will not be a return address. */
static bool find_rules(struct table *table, uintptr_t pc, struct rules *rules, bool *exact)
{
    struct row row;
    struct entry entry;
    if (!reader_has(&table->room, (const uint8_t *)pc, 1))
        *table = table_of(pc);
    if (row_find(pc, &row) && is_place_of(table, pc, row.place)
        && entry_sum(table->room, entry_at(table, (uint32_t)row.place)) == row.sum) {
        row_unpack(row.rules, rules);
        *exact = false;
        return true;
    }
    int64_t place = place_of(table, pc);
    if (place < 0)
        return false;
    const uint8_t *at = entry_at(table, (uint32_t)place);
    if (!read_entry(&table->room, at, pc, &entry) || !rules_at(&entry, pc, rules))
        return false;
    *exact = entry.interrupted;
    if (!entry.interrupted)
        row_keep(pc, &(struct row){ row_pack(rules), (uint64_t)place, entry_sum(table->room, at) });
    return true;
}

/* Steps from a function's registers to its caller's; `exact`: pc is not a return address. */
static bool unwind_step(struct machine *machine, bool *exact)
{
    struct rules rules;
    uintptr_t pc = machine->pc - !*exact, sp = machine->registers[REGISTER_SP];
    if (!find_rules(&machine->table, pc, &rules, exact))
        return false;
    uintptr_t frame = machine->registers[rules.frame_register] + (uintptr_t)rules.frame_offset;
    if (frame < sp || frame - sp > FRAME_MAX || frame % sizeof frame != 0)
        return false;
    uintptr_t before = machine->pc, *registers = machine->registers;
    machine->found = machine->pc = 0;
    for (uint32_t left = rules.changed; left != 0; left &= left - 1) {
        unsigned i = hak_ctz32(left);
        uintptr_t at = frame + (uintptr_t)(intptr_t)rules.at[i];
        bool there = rules.how[i] == RULE_OFFSET && at - sp < 2 * FRAME_MAX && stack_word(machine, at, sp, &registers[i]);
        if (!there && rules.how[i] != RULE_SAME)
            registers[i] = 0;
        if (i == REGISTER_RETURN && there)
            machine->found = at;
    }
    machine->pc = HAK_RETURN_ADDRESS(registers[REGISTER_RETURN]) & HAK_ADDRESS_BITS;
    registers[REGISTER_SP] = frame;
    return machine->pc != 0 && (machine->pc != before || frame != sp);
}

static bool has_table(uintptr_t pc)
{
    struct entry entry;
    struct table table = table_of(pc);
    int64_t place = place_of(&table, pc);
    return place >= 0 && read_entry(&table.room, entry_at(&table, (uint32_t)place), pc, &entry);
}

/* A byte of code at an address that may not be mapped; -1: not readable. */
static int code_byte(struct machine *machine, uintptr_t at)
{
    return page_error(machine, at) != 0 ? -1 : (int)(hak__unwind_word(at & -sizeof at) >> at % sizeof at * 8 & 0xff);
}

static bool has_code(struct machine *machine, const uint8_t *bytes, size_t size)
{
    size_t same = 0;
    while (same < size && code_byte(machine, machine->pc + same) == bytes[same])
        same++;
    return same == size;
}

/* CPython's trampolines for perf have no frame pointer on x86-64. The code after the call tells the frame size: add $N, %rsp;
 * ret. */
static bool leave_trampoline(struct machine *machine)
{
    static const uint8_t add[] = { 0x48, 0x83, 0xc4 };
    if (!BARE_TRAMPOLINES || !has_code(machine, add, sizeof add) || code_byte(machine, machine->pc + 4) != 0xc3)
        return false;
    int size = code_byte(machine, machine->pc + 3);
    uintptr_t sp = machine->registers[REGISTER_SP], at = sp + (uintptr_t)size;
    if (size < 0 || size > 0x7f || !stack_word(machine, at, sp, &machine->pc))
        return false;
    machine->registers[REGISTER_SP] = at + sizeof at;
    machine->pc &= HAK_ADDRESS_BITS;
    return has_table(machine->pc - 1);
}

/* Follows a pair of frame pointer and return address, at the upper end of a frame, to the next. (Arm's compilers put it at the
 * lower end.) */
static bool follow_pair(struct machine *machine)
{
    uintptr_t pair = machine->registers[REGISTER_FP] - PAIR_BELOW, sp = machine->registers[REGISTER_SP], next, pc;
    if (pair - sp > FRAME_MAX || pair >= machine->end - 2 * sizeof pair)
        return false;
    if (page_error(machine, pair) != 0 || !stack_word(machine, pair, sp, &next)
        || !stack_word(machine, pair + sizeof pair, sp, &pc))
        return false;
    machine->registers[REGISTER_SP] = pair + 2 * sizeof pair;
    machine->registers[REGISTER_FP] = next;
    machine->pc = HAK_RETURN_ADDRESS(pc) & HAK_ADDRESS_BITS;
    return true;
}

static void find_end(struct machine *machine)
{
    machine->end = hak__unwind_end(machine->registers[REGISTER_SP], (uintptr_t)hak__os_thread_pointer());
}

/* Walks through generated code, which has no tables but, in most runtimes, frame pointers. A register may hold anything: the
 * result counts only if it ends in a call from code with tables or fills the buffer. */
static uint32_t unwind_untabled(struct machine *machine, bool exact, uintptr_t *frames, uint32_t most)
{
    struct machine there = *machine;
    uint32_t count = 0;
    find_end(&there); /* the walk may have left the stack */
    if (!exact && leave_trampoline(&there)) {
        frames[count++] = there.pc;
    } else {
        there.pc = machine->pc;
        do {
            if (!follow_pair(&there))
                return 0;
            frames[count++] = there.pc;
        } while (count < most && !has_table(there.pc - 1));
    }
    *machine = there;
    return count;
}

/* Steps from a signal handler's return code to the interrupted code: the kernel saved the registers on the stack. That code is
 * recognised by its instructions: not all C libraries have tables for it, and those that do need more than offsets. */
static bool leave_handler(struct machine *machine)
{
    uintptr_t at = machine->registers[REGISTER_SP] + CONTEXT_BEHIND;
    if (!has_code(machine, restores, sizeof restores))
        return false;
    if (at % sizeof at != 0 || page_error(machine, at) != 0 || page_error(machine, at + CONTEXT_BYTES - 1) != 0)
        return false;
    machine->pc = from_context(machine->registers, (const ucontext_t *)at);
    return machine->pc != 0;
}

static uint32_t unwind_walk(struct machine *machine, bool exact, uintptr_t *frames, uint32_t most)
{
    uint32_t count = 0, more;
    machine->readable = NOT_YET_ASKED;
    do {
        find_end(machine);
        while (count < most && unwind_step(machine, &exact))
            frames[count++] = machine->pc;
        if (count == most || machine->pc == 0)
            break;
        more = leave_handler(machine);
        if (more != 0) {
            frames[count] = machine->pc;
            exact = true;
        } else if (!has_table(machine->pc - !exact)) {
            more = unwind_untabled(machine, exact, frames + count, most - count);
            exact = false;
        }
        count += more;
    } while (more != 0);
    return count;
}

uint32_t hak__unwind(uintptr_t *frames, uint32_t most)
{
    struct machine here;
    memset(&here, 0, sizeof here);
    /* Capture all at one point: this function's own tables must apply to it. */
    TAKE_REGISTERS(here.registers, &here.pc);
    if (!HAK_UNWINDS && most != 0)
        frames[0] = (uintptr_t)__builtin_return_address(0);
    return HAK_UNWINDS ? unwind_walk(&here, true, frames, most) : most != 0;
}

uint32_t hak__unwind_signal(uintptr_t *frames, uint32_t most, const void *context)
{
    struct machine there;
    memset(&there, 0, sizeof there);
    there.pc = from_context(there.registers, context);
    if (most == 0 || there.pc == 0)
        return 0;
    frames[0] = there.pc;
    return 1 + unwind_walk(&there, true, frames + 1, most - 1);
}

/* --- from a call into the library ---------------------------------------------------------------------------------- */

uintptr_t hak__unwind_main_stack;

/* The kernel's random bytes lie at the end of the first thread's stack, above all its frames. */
void hak__unwind_begin(void)
{
    hak__unwind_main_stack = getauxval(AT_RANDOM) & ~(sizeof(uintptr_t) - 1);
    hak__loaded_begin();
}

/* Only the stack pointer and the frame pointer are known: nearly all functions base their frames on one of them. */
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
    there.readable = NEVER_ASKED;
    there.registers[REGISTER_FP] = here->fp;
    there.registers[REGISTER_SP] = here->sp;
    while (HAK_UNWINDS && count < HAK_HERE_FRAMES && unwind_step(&there, &exact)) {
        uintptr_t place = (there.found - here->sp) / sizeof place;
        if (there.found < here->sp || there.found >= here->end || place > UINT16_MAX)
            break;
        frames[count] = there.pc;
        places[count++] = (uint16_t)place;
    }
    return count;
}
