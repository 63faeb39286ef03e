/* Prints text, such as the statistics, to a file descriptor through a small buffer. Nothing here allocates or locks; the only
 * system call is write(2), so signal handlers may use it. errno is kept. */
#pragma once

#include "base/compiler.h"

enum { HAK_EMIT_ONCE = 512 }; /* the longest text that one call emits; the rest is cut off */

struct hak_emitter {
    int fd;
    int error; /* the first errno of a failed write, or 0; after an error nothing more is written */
    size_t used;
    char buffer[2 * HAK_EMIT_ONCE];
};

hak_cold void hak__emit_open(struct hak_emitter *out, int fd);

/* The formats of diag/report.h. */
hak_cold void hak__emit(struct hak_emitter *out, const char *format, ...);

/* A number, padded with blanks on the left to `width`. */
hak_cold void hak__emit_padded(struct hak_emitter *out, uint64_t n, unsigned width);

/* Writes the rest of the buffer. Returns the first error, or 0. The descriptor stays open. */
hak_cold int hak__emit_close(struct hak_emitter *out);
