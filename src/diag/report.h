/* Reports to the person who runs the program: fixed text, formatted into a buffer on the stack, written by write(2).
 * Nothing here allocates, takes a lock of the C library or changes errno. Warnings and fatal reports begin with
 * "hakmem: ".
 *
 * The formats are %s (text), %p (pointer), %u (uint64_t), %f (fixed point: a uint64_t in hundredths); a width may
 * stand before the letter, '-' aligns left. Every argument of %u and %f is passed as uint64_t. */
#pragma once

#include <stdarg.h>

#include "base/compiler.h"

hak_cold size_t hak__format(char *buffer, size_t size, const char *format, ...);
hak_cold size_t hak__format_list(char *buffer, size_t size, const char *format, va_list arguments);

/* The whole text to a file descriptor; 0 or an errno code. */
hak_cold int hak__write_all(int fd, const char *text, size_t length);

/* One line on stderr with the prefix; the newline is added. */
hak_cold void hak__warn(const char *format, ...);

/* One line on stderr with the prefix, then abort(). For misuse that must not go on. */
hak_noreturn hak_cold void hak__fatal(const char *format, ...);

/* The fixed messages of misuse, in one place so that documents and tests can rely on them. */
hak_noreturn hak_cold void hak__misuse_double_free(const char *function, const void *p, size_t size);
hak_noreturn hak_cold void hak__misuse_invalid(const char *function, const void *p, const char *why);
hak_cold void hak__say_double_free(const char *function, const void *p, size_t size);   /* which do not end the program */
hak_cold void hak__say_invalid(const char *function, const void *p, const char *why);
/* Called between a report of misuse of the block or pointer p and abort(), if set. */
extern void (*hak__misuse_more)(const void *p);
hak_noreturn hak_cold void hak__misuse_end(const void *p);
hak_noreturn hak_cold void hak__misuse_size(const char *function, const void *p, size_t given, size_t size);
