/* Reads the numbers of call frame tables in sequence: fixed width, LEB128, and pointers as linkers encode them in .eh_frame.
 * Past the end it returns 0 and marks the reader bad for good. */
#pragma once

#include <string.h>

#include "base/compiler.h"

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
    memcpy(&value, reader->at, bytes); /* two, four or eight; x86-64 and 64-bit Arm are little-endian */
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
