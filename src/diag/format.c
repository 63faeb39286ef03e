/* The formatter of report.h. It calls nothing, so that the starter (starter/) has it too. */
#include <string.h>

#include "base/assert.h"
#include "diag/report.h"

struct out {
    char *at, *end;
};

static void put_text(struct out *out, const char *text, size_t length, unsigned width, bool left)
{
    size_t pad = width > length ? width - length : 0;
    for (; pad > 0 && !left && out->at < out->end; pad--)
        *out->at++ = ' ';
    for (; length > 0 && out->at < out->end; length--)
        *out->at++ = *text++;
    for (; pad > 0 && out->at < out->end; pad--)
        *out->at++ = ' ';
}

/* Writes the digits of n before `end`; returns the first. */
static char *put_digits(char *end, uint64_t n, unsigned base)
{
    do
        *--end = "0123456789abcdef"[n % base];
    while ((n /= base) != 0);
    return end;
}

static void put_number(struct out *out, char letter, uint64_t n, unsigned width, bool left)
{
    char text[32], *end = text + sizeof text, *first;
    if (letter == 'f') {
        first = put_digits(end, n % 100 + 100, 10); /* three digits, the first one a placeholder */
        *first = '.';
        first = put_digits(first, n / 100, 10);
    } else if (letter == 'p') {
        first = put_digits(end, n, 16);
        *--first = 'x';
        *--first = '0';
    } else {
        first = put_digits(end, n, 10);
    }
    put_text(out, first, (size_t)(end - first), width, left);
}

size_t hak__format_list(char *buffer, size_t size, const char *format, va_list arguments)
{
    hak_assert(size != 0, "there is room for the end of the text");
    struct out out = { buffer, buffer + size - 1 };
    for (; *format != 0; format++) {
        if (*format != '%') {
            put_text(&out, format, 1, 0, false);
            continue;
        }
        bool left = *++format == '-';
        format += left;
        unsigned width = 0;
        for (; *format >= '0' && *format <= '9'; format++)
            width = width * 10 + (unsigned)(*format - '0');
        if (*format == 0)
            break;
        if (*format == 's') {
            const char *text = va_arg(arguments, const char *);
            put_text(&out, text, strlen(text), width, left);
        } else if (*format == 'p') {
            put_number(&out, 'p', (uint64_t)(uintptr_t)va_arg(arguments, const void *), width, left);
        } else if (*format == 'u' || *format == 'f') {
            put_number(&out, *format, va_arg(arguments, uint64_t), width, left);
        } else {
            hak_assert(*format == '%', "a format has only the letters of report.h");
            put_text(&out, "%", 1, 0, false);
        }
    }
    hak_assert(out.at < buffer + size, "the text stays in its buffer");
    *out.at = 0;
    return (size_t)(out.at - buffer);
}

size_t hak__format(char *buffer, size_t size, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    size_t length = hak__format_list(buffer, size, format, arguments);
    va_end(arguments);
    return length;
}

const char *hak__distance(char *buffer, size_t size, uint64_t bytes)
{
    if (bytes == 0)
        return "directly";
    hak__format(buffer, size, "%u byte%s", bytes, bytes == 1 ? "" : "s");
    return buffer;
}

unsigned hak__utf8_length(const char *start)
{
    const unsigned char *text = (const unsigned char *)start;
    unsigned first = text[0], length = first < 0x80 ? 1
                                     : first < 0xc2 ? 0
                                     : first < 0xe0 ? 2
                                     : first < 0xf0 ? 3
                                     : first < 0xf5 ? 4
                                                    : 0;
    for (unsigned i = 1; i < length; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    bool excluded = (first == 0xe0 && text[1] < 0xa0) || (first == 0xed && text[1] >= 0xa0) || (first == 0xf0 && text[1] < 0x90)
                 || (first == 0xf4 && text[1] >= 0x90); /* longer than need be, or no character's number */
    return excluded ? 0 : length;
}
