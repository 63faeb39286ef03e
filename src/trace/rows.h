/* Call frame rules, and a cache of those that recent stacks have passed through, so that a walk need not search the tables and
 * interpret their instructions again. Included by unwind.c only.
 *
 * A row is four words that any thread or signal handler reads and writes without a lock: the last word is a checksum of the
 * others, so a half-written row is invalid. The rules come from a table entry and its common part; a walk verifies that the same
 * bytes still lie there, because another module may have been loaded at the address. */
#pragma once

#include <string.h>

#include "base/atomic.h"
#include "base/bits.h"
#include "base/compiler.h"
#include "trace/registers.h"

/* --- numbers of the tables -------------------------------------------------------------------------------------------- */

/* Reads the numbers of call frame tables in sequence: fixed width, LEB128, and pointers as linkers encode them in .eh_frame.
 * Past the end it returns 0 and marks the reader bad for good. */

struct reader {
    const uint8_t *at, *end;
    bool bad;
};

/* Whether `bytes` bytes lie there. */
hak_inline bool reader_has(const struct reader *reader, const uint8_t *at, size_t bytes)
{
    size_t offset = (uintptr_t)at - (uintptr_t)reader->at, size = (size_t)(reader->end - reader->at);
    return offset <= size && bytes <= size - offset;
}

hak_inline void read_over(struct reader *reader, uint64_t bytes)
{
    bool inside = bytes <= (uint64_t)(reader->end - reader->at);
    reader->bad |= !inside;
    reader->at = inside ? reader->at + bytes : reader->end;
}

hak_inline uint8_t read_byte(struct reader *reader)
{
    if (hak_likely(reader->at < reader->end))
        return *reader->at++;
    reader->bad = true;
    return 0;
}

hak_inline uint64_t read_fixed(struct reader *reader, unsigned bytes)
{
    uint64_t value = 0;
    if (hak_unlikely((size_t)(reader->end - reader->at) < bytes)) {
        reader->bad = true;
        reader->at = reader->end;
        return 0;
    }
    memcpy(&value, reader->at, bytes); /* two, four or eight; all processors here are little-endian */
    reader->at += bytes;
    return value;
}

hak_inline uint64_t read_uleb(struct reader *reader)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint64_t byte = read_byte(reader);
        value |= (byte & 0x7f) << shift;
        if ((byte & 0x80) == 0)
            return value;
    }
    reader->bad = true;
    return 0;
}

hak_inline int64_t read_sleb(struct reader *reader)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 63;) {
        uint64_t byte = read_byte(reader);
        value |= (byte & 0x7f) << shift;
        shift += 7;
        if ((byte & 0x80) == 0)
            return (int64_t)((byte & 0x40) != 0 && shift < 64 ? value | ~0ull << shift : value);
    }
    reader->bad = true;
    return 0;
}

/* A pointer in one of the encodings that linkers use in .eh_frame: absolute or relative to its own address. */
hak_inline uintptr_t read_pointer(struct reader *reader, uint8_t encoding)
{
    uintptr_t place = (uintptr_t)reader->at, value = 0;
    switch (encoding & 0x0f) {
    case 0x00: case 0x04: case 0x0c: value = read_fixed(reader, 8); break;
    case 0x03: value = read_fixed(reader, 4); break;
    case 0x0b: value = (uintptr_t)(intptr_t)(int32_t)read_fixed(reader, 4); break;
    default: reader->bad = true;
    }
    reader->bad |= (encoding & 0x70) > 0x10;
    return (encoding & 0x70) == 0x10 ? place + value : value;
}

/* --- rules ------------------------------------------------------------------------------------------------------------ */

/* How a register of the caller is found: unchanged; at an offset from the frame's address; not at all. */
enum rule { RULE_SAME, RULE_OFFSET, RULE_NONE };

struct rules {
    uint32_t changed; /* registers with a rule; all others are RULE_SAME, and not stored */
    uint8_t how[REGISTERS];
    uint8_t frame_register;
    int32_t at[REGISTERS];
    intptr_t frame_offset;
};

hak_inline void set_rule(struct rules *rules, uint64_t index, enum rule how, int64_t at)
{
    if (index < REGISTERS) {
        rules->changed |= 1u << index;
        rules->how[index] = how;
        rules->at[index] = (int32_t)at;
    }
}

/* --- packed into one word --------------------------------------------------------------------------------------------- */

/* A frame based on the stack or frame pointer whose return address is at its end: bit 0 names the base, 15 bits hold the
 * distance in words; a byte per callee-saved register says how many words below the end it lies, 0 if unchanged. The outermost
 * frame, which has no return address, has its own value. 64-bit Arm has too many registers for one word. */
enum { ROW_REGISTERS = 6, ROW_FRAME_MOST = (1 << 15) - 1, ROW_PLACE_MOST = 255, ROW_OUTERMOST = ROW_FRAME_MOST << 1 };
static const uint8_t row_registers[ROW_REGISTERS] = { 3, 6, 12, 13, 14, 15 };
static const int64_t row_word = sizeof(uintptr_t);

hak_inline bool row_has(const struct rules *rules, unsigned index, enum rule how)
{
    return (rules->changed >> index & 1) != 0 && rules->how[index] == how;
}

/* An offset as words below 0; 0: out of range, or not below 0. */
hak_inline uint64_t row_words_below(int64_t at, int64_t most)
{
    return at % row_word == 0 && at <= -row_word && at >= -most * row_word ? (uint64_t)(-at / row_word) : 0;
}

/* 0: the rules do not fit the packed form. */
hak_inline uint64_t row_pack(const struct rules *rules)
{
    bool by_fp = rules->frame_register == REGISTER_FP;
    if (REGISTER_RETURN != 16 || (!by_fp && rules->frame_register != REGISTER_SP))
        return 0;
    if (row_has(rules, REGISTER_RETURN, RULE_NONE))
        return ROW_OUTERMOST;
    uint64_t row = row_words_below(-rules->frame_offset, ROW_FRAME_MOST - 1) << 1;
    if (row == 0 || !row_has(rules, REGISTER_RETURN, RULE_OFFSET) || rules->at[REGISTER_RETURN] != -row_word)
        return 0;
    uint32_t others = rules->changed & ~(1u << REGISTER_RETURN);
    for (unsigned i = 0; i < ROW_REGISTERS; i++) {
        unsigned index = row_registers[i];
        uint64_t below = row_has(rules, index, RULE_OFFSET) ? row_words_below(rules->at[index], ROW_PLACE_MOST) : 0;
        row |= below << (16 + 8 * i);
        others &= below != 0 ? ~(1u << index) : ~0u;
    }
    for (; others != 0; others &= others - 1)
        if (rules->how[hak_ctz32(others)] != RULE_SAME)
            return 0;
    return row | by_fp;
}

hak_inline void row_unpack(uint64_t row, struct rules *rules)
{
    rules->changed = 0;
    rules->frame_register = (row & 1) != 0 ? REGISTER_FP : REGISTER_SP;
    rules->frame_offset = (intptr_t)(row >> 1 & ROW_FRAME_MOST) * row_word;
    set_rule(rules, REGISTER_RETURN, row == ROW_OUTERMOST ? RULE_NONE : RULE_OFFSET, -row_word);
    row >>= 16;
    for (unsigned i = 0; row != 0; i++, row >>= 8)
        if ((row & 0xff) != 0)
            set_rule(rules, row_registers[i], RULE_OFFSET, -(int64_t)(row & 0xff) * row_word);
}

/* --- by address --------------------------------------------------------------------------------------------------------- */

enum { ROWS_SHIFT = 8, ROW_RECORD_MOST = 256 };
#define ROW_MIX 0x9e3779b97f4a7c15ull

struct row {
    uint64_t rules, place, sum; /* packed; the index of their entry in the module's sorted table; a checksum of the entry's bytes */
};
static hak_rare_data _Atomic uint64_t unwind_rows[1 << ROWS_SHIFT][4]; /* the same, and a checksum that binds them to the pc */

/* Checksum of a record's length and bytes, in whole 32-bit words; 0: too long, or not inside the tables. */
hak_inline uint64_t record_sum(struct reader tables, const uint8_t *at, uint64_t sum)
{
    uint32_t length, last = 0;
    if (!reader_has(&tables, at, sizeof length))
        return 0;
    memcpy(&length, at, sizeof length);
    if (length > ROW_RECORD_MOST || length % sizeof last != 0 || !reader_has(&tables, at, sizeof length + length))
        return 0;
    const uint8_t *end = at + sizeof length + length;
    for (uint64_t part; end - at >= (ptrdiff_t)sizeof part; at += sizeof part) {
        memcpy(&part, at, sizeof part);
        sum = (sum ^ part) * ROW_MIX;
        sum ^= sum >> 32;
    }
    if (at != end)
        memcpy(&last, at, sizeof last);
    return (sum ^ last) * ROW_MIX;
}

/* Checksum of an entry and its common part. */
hak_inline uint64_t entry_sum(struct reader tables, const uint8_t *at)
{
    uint32_t back;
    if (!reader_has(&tables, at, 2 * sizeof back))
        return 0;
    memcpy(&back, at + 4, sizeof back);
    uint64_t common = record_sum(tables, at + 4 - back, ROW_MIX);
    return common == 0 ? 0 : record_sum(tables, at, common);
}

hak_inline uint64_t row_seal(uintptr_t pc, const struct row *row)
{
    return (pc ^ row->rules) + row->place * ROW_MIX + row->sum * 0xbf58476d1ce4e5b9ull;
}

hak_inline _Atomic uint64_t *row_words(uintptr_t pc) { return unwind_rows[pc * ROW_MIX >> (64 - ROWS_SHIFT)]; }

hak_inline bool row_find(uintptr_t pc, struct row *row)
{
    _Atomic uint64_t *words = row_words(pc);
    *row = (struct row){ hak_load(&words[0], HAK_RELAXED), hak_load(&words[1], HAK_RELAXED), hak_load(&words[2], HAK_RELAXED) };
    return row->rules != 0 && hak_load(&words[3], HAK_RELAXED) == row_seal(pc, row);
}

hak_inline void row_keep(uintptr_t pc, const struct row *row)
{
    _Atomic uint64_t *words = row_words(pc);
    if (row->rules == 0 || row->sum == 0)
        return;
    hak_store(&words[0], row->rules, HAK_RELAXED);
    hak_store(&words[1], row->place, HAK_RELAXED);
    hak_store(&words[2], row->sum, HAK_RELAXED);
    hak_store(&words[3], row_seal(pc, row), HAK_RELAXED);
}
