/* Text for a file descriptor through a small buffer: what the statistics are printed with. Nothing here allocates or
 * locks; the only system call is write(2), so it may be used in signal handlers. errno is kept. */
#pragma once

#include "base/compiler.h"

enum { HAK_EMIT_ONCE = 512 }; /* the longest text that one call emits; what is beyond is cut off */

struct hak_emitter {
    int fd;
    int error; /* the first errno of a failed write, or 0; nothing is written any more then */
    size_t used;
    char buffer[2 * HAK_EMIT_ONCE];
};

hak_cold void hak__emit_open(struct hak_emitter *out, int fd);

/* The formats of diag/report.h. */
hak_cold void hak__emit(struct hak_emitter *out, const char *format, ...);

/* A number, with blanks before it up to `width`. */
hak_cold void hak__emit_padded(struct hak_emitter *out, uint64_t n, unsigned width);

/* Writes what is left; the first error, or 0. The descriptor stays open. */
hak_cold int hak__emit_close(struct hak_emitter *out);
