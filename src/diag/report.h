/* Reports to the person who runs the program: fixed text, formatted into a buffer on the stack, written by write(2).
 * Nothing here allocates, takes a lock of the C library or changes errno. Warnings and fatal reports begin with
 * "hakmem: ".
 *
 * The formats are %s (text), %p (pointer), %u (uint64_t), %f (fixed point: a uint64_t in hundredths); a width may
 * stand before the letter, '-' aligns left. Every argument of %u and %f is passed as uint64_t. */
#pragma once

#include <stdarg.h>

#include "base/compiler.h"

hak_for_region hak_cold size_t hak__format(char *buffer, size_t size, const char *format, ...);
hak_cold size_t hak__format_list(char *buffer, size_t size, const char *format, va_list arguments);

/* Writes the whole text to a file descriptor; 0 or an errno code. A reader that has gone away gives EPIPE and no signal; one that
 * reads nothing for STALL_MS gives EAGAIN. */
hak_cold int hak__write_all(int fd, const char *text, size_t length);

/* Reports go to where descriptor 2 led when the library was loaded. Single lines (hak__warn) also follow a later redirection to a
 * pipe, a terminal or an appended log, but nothing else: a program may have closed the descriptor and opened another file there.
 * `keep`: a report will come at the end, when many programs have closed descriptor 2, so a second descriptor is made for it, far
 * from the numbers that programs use. Until the first of these two functions is called, reports go to descriptor 2. The second returns
 * the descriptor to write to; -1: there is none. */
hak_at_start void hak__report_begin(bool keep);
hak_cold int hak__report_fd(void);

/* Opens a file for writing with the additional open(2) flags `more`. A name of descriptor 2 gives the place of reports; a pipe
 * without a reader fails. -1: errno says why. */
hak_cold int hak__report_open(const char *path, int more);

/* One line on stderr with the prefix; the newline is added. */
hak_cold void hak__warn(const char *format, ...);

/* The i-th of the last reports, of which i = 3 is the latest, as the black box keeps them; empty: there have been fewer. */
hak_cold void hak__report_line(unsigned i, char *to, size_t size);

/* One line on stderr with the prefix, then abort(). For misuse after which the program must not go on. */
hak_for_region hak_noreturn hak_cold void hak__fatal(const char *format, ...);

/* The fixed messages of misuse, in one place, since documents and tests rely on them. */
hak_for_region hak_noreturn hak_cold void hak__misuse_double_free(const char *function, const void *p, size_t size);
hak_for_region hak_noreturn hak_cold void hak__misuse_invalid(const char *function, const void *p, const char *why);
hak_cold void hak__say_double_free(const char *function, const void *p, size_t size); /* which do not end the program */
hak_cold void hak__say_invalid(const char *function, const void *p, const char *why);
/* If set, called after a report of misuse of the block or pointer p and before abort(). */
extern void (*hak__misuse_more)(const void *p);
hak_noreturn hak_cold void hak__misuse_end(const void *p);
hak_noreturn hak_cold void hak__misuse_size(const char *function, const void *p, size_t given, size_t size);
