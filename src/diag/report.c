/* The formatter and the fixed messages. See report.h. */
#include "diag/report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LINE = 512 };

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

/* Digits of n before `end`; returns the first. */
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
        first = put_digits(end, n % 100 + 100, 10);   /* three digits, the first one a place holder */
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
            put_text(&out, "%", 1, 0, false);
        }
    }
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

int hak__write_all(int fd, const char *text, size_t length)
{
    int saved = errno, error = 0;
    while (length > 0 && error == 0) {
        long n = syscall(SYS_write, fd, text, length);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            error = n < 0 ? errno : EIO;
        } else {
            text += n;
            length -= (size_t)n;
        }
    }
    errno = saved;
    return error;
}

static void warn_list(const char *format, va_list arguments)
{
    char line[LINE] = "hakmem: ";
    size_t length = strlen(line);
    length += hak__format_list(line + length, sizeof line - length - 1, format, arguments);
    line[length++] = '\n';
    hak__write_all(STDERR_FILENO, line, length);
}

void hak__warn(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    warn_list(format, arguments);
    va_end(arguments);
}

void hak__fatal(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    warn_list(format, arguments);
    va_end(arguments);
    abort();
}

void hak__say_double_free(const char *function, const void *p, size_t size)
{
    hak__warn("%s(): double free of %p (%u-byte block)", function, p, (uint64_t)size);
}

void hak__say_invalid(const char *function, const void *p, const char *why)
{
    hak__warn("%s(): invalid pointer %p: %s", function, p, why);
}

hak_rare_data void (*hak__misuse_more)(const void *p);

void hak__misuse_end(const void *p)
{
    if (hak__misuse_more != NULL)
        hak__misuse_more(p);
    abort();
}

void hak__misuse_double_free(const char *function, const void *p, size_t size)
{
    hak__say_double_free(function, p, size);
    hak__misuse_end(p);
}

void hak__misuse_invalid(const char *function, const void *p, const char *why)
{
    hak__say_invalid(function, p, why);
    hak__misuse_end(p);
}

void hak__misuse_size(const char *function, const void *p, size_t given, size_t size)
{
    hak__warn("%s(): wrong size %u for %p (%u-byte block)", function, (uint64_t)given, p, (uint64_t)size);
    hak__misuse_end(p);
}
