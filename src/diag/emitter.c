/* The buffer behind emitter.h. Called by stats/ to print the statistics. */
#include "diag/emitter.h"

#include <errno.h>
#include <stdarg.h>

#include "base/assert.h"
#include "diag/report.h"

void hak__emit_open(struct hak_emitter *out, int fd)
{
    out->fd = fd;
    out->error = 0;
    out->used = 0;
}

static void emit_flush(struct hak_emitter *out)
{
    if (out->error == 0)
        out->error = hak__write_all(out->fd, out->buffer, out->used);
    out->used = 0;
}

static void make_room(struct hak_emitter *out)
{
    if (sizeof out->buffer - out->used < HAK_EMIT_ONCE)
        emit_flush(out);
    hak_assert(out->used + HAK_EMIT_ONCE <= sizeof out->buffer, "there is room for one piece");
}

void hak__emit(struct hak_emitter *out, const char *format, ...)
{
    va_list arguments;
    make_room(out);
    va_start(arguments, format);
    out->used += hak__format_list(out->buffer + out->used, HAK_EMIT_ONCE, format, arguments);
    va_end(arguments);
}

void hak__emit_padded(struct hak_emitter *out, uint64_t n, unsigned width)
{
    char digits_of_n[24];
    size_t length = hak__format(digits_of_n, sizeof digits_of_n, "%u", n);
    hak_assert(width <= HAK_EMIT_ONCE, "the padding is one piece");
    make_room(out);
    for (; length < width; length++)
        out->buffer[out->used++] = ' ';
    hak__emit(out, "%s", digits_of_n);
}

int hak__emit_close(struct hak_emitter *out)
{
    emit_flush(out);
    return out->error;
}
