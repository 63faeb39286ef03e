/* Reports to the person who runs the program: fixed text, formatted into a buffer on the stack, written by write(2).
 * Nothing here allocates, takes a lock of the C library or changes errno. Warnings and fatal reports begin with
 * "hakmem: ".
 *
 * The formats are %s (text), %p (pointer), %u (uint64_t), %f (fixed point: a uint64_t in hundredths); a width may
 * stand before the letter, '-' aligns left. Every argument of %u and %f is passed as uint64_t. */
#pragma once

#include <stdarg.h>

#include "base/atomic.h"
#include "base/compiler.h"

hak_for_region hak_cold size_t hak__format(char *buffer, size_t size, const char *format, ...);
hak_cold size_t hak__format_list(char *buffer, size_t size, const char *format, va_list arguments);

/* "5 bytes", or for 0 "directly": before or beyond a block. */
enum { HAK_DISTANCE = 32 };
hak_cold const char *hak__distance(char *buffer, size_t size, uint64_t bytes);

/* The bytes of the character of UTF-8 that begins there, 1 to 4; 0: none does. */
hak_cold unsigned hak__utf8_length(const char *start);

/* Around system calls that may end the program by SIGPIPE or SIGXFSZ: takes the signal of the error that came. */
struct hak_held_signals {
    uint64_t mask, pending;
};
hak_cold struct hak_held_signals hak__write_begin(void);
hak_cold void hak__write_end(struct hak_held_signals held, int error);

/* Writes the whole text to a file descriptor; 0 or an errno code. A reader that has gone away gives EPIPE, a file beyond RLIMIT_FSIZE
 * EFBIG, and neither a signal; a reader that reads nothing for STALL_MS gives EAGAIN. */
hak_cold int hak__write_all(int fd, const char *text, size_t length);

/* Reports go to where descriptor 2 led when the library was loaded. Single lines (hak__warn) also follow a later redirection to a
 * pipe, a terminal or an appended log, but nothing else: a program may have closed the descriptor and opened another file there.
 * `keep`: a report will come at the end, when many programs have closed descriptor 2, so a second descriptor is made for it, far
 * from the numbers that programs use. Until the first of these two functions is called, reports go to descriptor 2. The second returns
 * the descriptor to write to; -1: there is none. */
hak_at_start void hak__report_begin(bool keep);
hak_cold int hak__report_fd(void);

/* Opens a file for writing with the additional open(2) flags `more`. A name of descriptor 2 gives the place of reports; a pipe
 * without a reader fails. Negative: an errno code. */
hak_cold int hak__report_open(const char *path, int more);

/* Writes a file that appears whole (file.c): it is written beside its name, as PATH.part, and then renamed, so that no reader finds a
 * partial one, whatever happens to the process or the disk. A device, a pipe or the like is written in place, as is a file in a folder that
 * takes no new one; then `writer` may be called twice. The writer locks the file beside: several processes may write to one path at once,
 * and one that was killed leaves a file that the next takes over. Both return 0 or an errno code. */
typedef int hak_file_writer(int fd, const void *argument);
hak_cold int hak__file_write(const char *path, hak_file_writer *writer, const void *argument);

/* One line on stderr with the prefix; the newline is added. */
hak_cold void hak__warn(const char *format, ...);

/* The same, then abort(). For what the program cannot survive. */
hak_for_region hak_noreturn hak_cold void hak__fatal(const char *format, ...);

/* The i-th of the last reports, of which i = 3 is the latest, as the black box keeps them; empty: there have been fewer. */
hak_cold void hak__report_line(unsigned i, char *to, size_t size);

/* --- misuse ---------------------------------------------------------------------------------------------------------------------
 *
 * Every report of a misuse goes through hak__misuse: it ends the program, unless hak__misuse_survive is set (HAKMEM_MISUSE=report,
 * kinds/canary.c). Then it returns, and its caller leaves the block as it is. The caller may hold locks below HAK_RANK_REPORT. */
enum hak_misuse_kind { HAK_MISUSE_INVALID, HAK_MISUSE_DOUBLE_FREE, HAK_MISUSE_SIZE, HAK_MISUSE_WRITTEN, HAK_MISUSE_KINDS };

#define HAK_NO_BLOCK SIZE_MAX   /* the size of what is no block, after the report */

struct hak_record;
struct hak_mistake {
    enum hak_misuse_kind kind;
    const char *function; /* that the program called */
    const void *p; /* the block or pointer */
    void (*tell)(const struct hak_record *sample); /* further lines of the report; NULL: who has allocated and freed p */
    const struct hak_record *sample;
    const char *outcome; /* what the call did if it was survived; NULL: what such calls do */
};

#define HAK_SAYS_DOUBLE_FREE "%s(): double free of %p (%u-byte block)"
#define HAK_SAYS_INVALID "%s(): invalid pointer %p: %s"

hak_for_region hak_cold void hak__misuse(const struct hak_mistake *mistake, const char *format, ...);
hak_for_region hak_cold void hak__misuse_double_free(const char *function, const void *p, size_t size);
hak_for_region hak_cold void hak__misuse_invalid(const char *function, const void *p, const char *why);
hak_cold void hak__misuse_size(const char *function, const void *p, size_t given, size_t size);

/* If set, called after the first line of a report that ends the program. */
extern void (*hak__misuse_more)(const struct hak_mistake *mistake);
extern void (*hak__misuse_survive)(const struct hak_mistake *mistake, const char *line);
hak_inline bool hak__misuse_is_survived(void) { return hak__misuse_survive != NULL; }

/* Misuse survived so far, and reports of it. */
struct hak_misuse_counts {
    _Atomic uint64_t kinds[HAK_MISUSE_KINDS], reported;
};
extern struct hak_misuse_counts hak__misuse_counts;

/* From the first call to the second, the calling thread's lines are collected in a buffer instead of being written. The second returns
 * their length; the third allows another thread to collect. False: the thread is between the first and the third already. */
hak_cold bool hak__report_collect(void);
hak_cold size_t hak__report_collected(const char **text);
hak_cold void hak__report_release(void);
hak_cold void hak__report_fork_child(void);

/* --- printing through a buffer ---------------------------------------------------------------------------------------- */

/* Prints text, such as the statistics, to a file descriptor through a small buffer. Nothing here allocates or locks; the only
 * system call is write(2), so signal handlers may use it. errno is kept. */

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
