/* Where reports go, and the fixed messages. See report.h. */
#include "diag/report.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/atomic.h"
#include "base/lock.h"
#include "base/syscall.h"

enum { LINE = 512 };

/* --- writing --------------------------------------------------------------------------------------------------------- */

/* A pipe that has any room takes a whole piece. */
enum { STALL_MS = 2000, STALL_LOOKS = 8, PIECE = 4096 };

/* 0 or an errno code. */
static int report_stat(int fd, struct stat *at) { return fd < 0 ? EBADF : hak__syscall_code(hak__syscall(SYS_fstat, fd, at)); }

/* Whether writing may wait for a reader. */
static bool is_stream(int fd)
{
    struct stat at;
    return report_stat(fd, &at) == 0 && !S_ISREG(at.st_mode) && !S_ISBLK(at.st_mode);
}

/* Waits until the stream has room. After one stream has had none in time, no later call waits. 0 or an errno code. */
static int await_room(int fd)
{
    static _Atomic bool stalled;
    struct timespec wait = { hak_load(&stalled, HAK_RELAXED) ? 0 : STALL_MS / 1000, 0 };
    struct pollfd poll = { .fd = fd, .events = POLLOUT };
    for (unsigned looks = 0; looks < STALL_LOOKS; looks++) {
        long n = hak__syscall(SYS_ppoll, &poll, 1, &wait, NULL, sizeof(uint64_t));
        if (n > 0)
            return (poll.revents & POLLERR) != 0 ? EPIPE : 0;
        if (n < 0 && n != -EINTR)
            return 0; /* its room cannot be queried */
        if (n == 0)
            break;
    }
    hak_store(&stalled, true, HAK_RELAXED);
    return EAGAIN;
}

static int write_some(int fd, bool stream, const char **text, size_t *length)
{
    int error = stream ? await_room(fd) : 0;
    if (error != 0)
        return error;
    long n = hak__syscall(SYS_write, fd, *text, stream && *length > PIECE ? PIECE : *length);
    if (n <= 0)
        return n == -EINTR ? 0 : n == 0 ? EIO : (int)-n;
    hak_assert((size_t)n <= *length, "no more is written than there is");
    *text += n;
    *length -= (size_t)n;
    return 0;
}

static const uint64_t WRITE_SIGNALS = 1ull << (SIGPIPE - 1) | 1ull << (SIGXFSZ - 1);

struct hak_held_signals hak__write_begin(void)
{
    struct hak_held_signals held = { 0, 0 };
    hak__syscall(SYS_rt_sigprocmask, SIG_BLOCK, &WRITE_SIGNALS, &held.mask, sizeof held.mask);
    hak__syscall(SYS_rt_sigpending, &held.pending, sizeof held.pending);
    return held;
}

/* The signal goes to the calling thread only. One that was already pending stays pending. */
void hak__write_end(struct hak_held_signals held, int error)
{
    static const struct timespec at_once = { 0, 0 };
    uint64_t sent = WRITE_SIGNALS & ~held.pending;
    if ((error == EPIPE || error == EFBIG) && sent != 0)
        hak__syscall(SYS_rt_sigtimedwait, &sent, NULL, &at_once, sizeof sent);
    hak__syscall(SYS_rt_sigprocmask, SIG_SETMASK, &held.mask, NULL, sizeof held.mask);
}

int hak__write_all(int fd, const char *text, size_t length)
{
    bool stream = is_stream(fd);
    struct hak_held_signals held = hak__write_begin();
    int error = 0;
    while (length > 0 && error == 0)
        error = write_some(fd, stream, &text, &length);
    hak__write_end(held, error);
    return error;
}

/* --- where reports go ------------------------------------------------------------------------------------------------ */

static struct {
    bool known, nowhere; /* whether descriptor 2 could be identified; it was closed */
    dev_t device;
    ino_t file;
    int kept; /* a second descriptor for it; 0: there is none */
} report_place;

/* Whether descriptor 2 is where a program would redirect its errors. A file that the program opens itself and that happens to get
 * the number is opened differently. */
static bool takes_errors(int fd)
{
    struct stat at;
    if (report_stat(fd, &at) != 0)
        return false;
    bool log = S_ISREG(at.st_mode) && (hak__syscall(SYS_fcntl, fd, F_GETFL) & O_APPEND) != 0;
    return log || S_ISFIFO(at.st_mode) || S_ISCHR(at.st_mode);
}

static bool is_place(int fd)
{
    struct stat at;
    return report_stat(fd, &at) == 0 && at.st_dev == report_place.device && at.st_ino == report_place.file;
}

/* Below the usual limit of 1,024 descriptors, or lower if the process's limit is. */
static int keep_another(void)
{
    static const int numbers[] = { 1000, 200, 10 };
    long fd = -1;
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers && fd < 0; i++)
        fd = hak__syscall(SYS_fcntl, STDERR_FILENO, F_DUPFD_CLOEXEC, numbers[i]);
    return fd < 0 ? 0 : (int)fd;
}

void hak__report_begin(bool keep)
{
    struct stat at;
    int code = report_place.known ? 0 : report_stat(STDERR_FILENO, &at);
    if (!report_place.known && code == 0) {
        report_place.device = at.st_dev;
        report_place.file = at.st_ino;
        report_place.kept = keep ? keep_another() : 0;
        report_place.known = true;
    } else if (!report_place.known) { /* if it cannot be identified, it is trusted */
        report_place.nowhere = report_place.known = code == EBADF;
    }
}

static int report_fd(bool redirected)
{
    int fd = -1;
    if (!report_place.known || (!report_place.nowhere && is_place(STDERR_FILENO)) || (redirected && takes_errors(STDERR_FILENO)))
        fd = STDERR_FILENO;
    else if (report_place.kept != 0 && is_place(report_place.kept))
        fd = report_place.kept;
    return fd;
}

int hak__report_fd(void) { return report_fd(false); }

int hak__report_open(const char *path, int more)
{
    static const char *const names[] = { "/dev/stderr", "/dev/fd/2", "/proc/self/fd/2" };
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(path, names[i]) == 0)
            return (int)hak__syscall(SYS_fcntl, hak__report_fd(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    return (int)hak__syscall(SYS_openat, AT_FDCWD, path, more | O_WRONLY | O_CLOEXEC | O_NONBLOCK, 0644);
}

/* --- lines --------------------------------------------------------------------------------------------------------------- */

/* One report at a time is collected; its thread holds the lock. */
static struct hak_lock collect_lock = HAK_LOCK_INIT(HAK_RANK_REPORT);
static hak_rare_data char collected[8 * LINE];
static hak_rare_data size_t collected_length;
static hak_rare_data _Atomic bool collecting;

static bool collects(void) { return hak_load(&collecting, HAK_RELAXED) && hak__lock_word_is_mine(&collect_lock.held); }

bool hak__report_collect(void)
{
    if (hak__lock_word_is_mine(&collect_lock.held))
        return false;
    hak__lock_acquire(&collect_lock);
    collected_length = 0;
    hak_store(&collecting, true, HAK_RELAXED);
    return true;
}

size_t hak__report_collected(const char **text)
{
    hak_assert(collects(), "the calling thread is collecting");
    hak_store(&collecting, false, HAK_RELAXED);
    *text = collected;
    return collected_length;
}

void hak__report_release(void)
{
    hak_assert(hak__lock_word_is_mine(&collect_lock.held), "the calling thread is collecting, or has collected");
    hak_store(&collecting, false, HAK_RELAXED);
    hak__lock_release(&collect_lock);
}

void hak__report_fork_child(void) { hak__lock_fork_child(&collect_lock); }

/* Threads that report at once may mix two lines of this record; each line on stderr is whole. */
enum { LINES_KEPT = 4, LINE_KEPT = 160 };
static hak_rare_data char lines_kept[LINES_KEPT][LINE_KEPT];
static hak_rare_data _Atomic uint32_t lines_count;

void hak__report_line(unsigned i, char *to, size_t size)
{
    hak_assert(size != 0, "there is room for the end of the text");
    size_t length = 0;
    const char *line = lines_kept[(hak_load(&lines_count, HAK_RELAXED) + i) % LINES_KEPT];
    for (; length < size - 1 && length < LINE_KEPT - 1 && line[length] != 0; length++)
        to[length] = line[length];
    to[length] = 0;
}

static void keep_line(const char *line, size_t length)
{
    char *to = lines_kept[hak_fetch_add(&lines_count, 1, HAK_RELAXED) % LINES_KEPT];
    length = length < LINE_KEPT ? length : LINE_KEPT - 1;
    memcpy(to, line, length);
    to[length] = 0;
}

static void warn_list(const char *format, va_list arguments)
{
    char line[LINE] = "hakmem: ";
    size_t length = strlen(line);
    length += hak__format_list(line + length, sizeof line - length - 1, format, arguments);
    keep_line(line, length);
    line[length++] = '\n';
    if (!collects())
        hak__write_all(report_fd(true), line, length);
    else if (length < sizeof collected - collected_length) /* the last lines of a long report are dropped */
        memcpy(collected + collected_length, line, length + 1), collected_length += length;
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

/* --- misuse -------------------------------------------------------------------------------------------------------------- */

hak_rare_data void (*hak__misuse_more)(const struct hak_mistake *mistake);
void (*hak__misuse_survive)(const struct hak_mistake *mistake, const char *line);
hak_rare_data struct hak_misuse_counts hak__misuse_counts;

void hak__misuse(const struct hak_mistake *mistake, const char *format, ...)
{
    char line[LINE];
    va_list arguments;
    va_start(arguments, format);
    hak__format_list(line, sizeof line, format, arguments);
    va_end(arguments);
    if (hak__misuse_is_survived()) {
        hak_fetch_add(&hak__misuse_counts.kinds[mistake->kind], 1, HAK_RELAXED);
        hak__misuse_survive(mistake, line);
        return;
    }
    hak__warn("%s", line);
    if (hak__misuse_more != NULL)
        hak__misuse_more(mistake);
    abort();
}

void hak__misuse_double_free(const char *function, const void *p, size_t size)
{
    hak__misuse(&(struct hak_mistake){ .kind = HAK_MISUSE_DOUBLE_FREE, .function = function, .p = p }, HAK_SAYS_DOUBLE_FREE,
                function, p, (uint64_t)size);
}

void hak__misuse_invalid(const char *function, const void *p, const char *why)
{
    hak__misuse(&(struct hak_mistake){ .kind = HAK_MISUSE_INVALID, .function = function, .p = p }, HAK_SAYS_INVALID, function, p,
                why);
}

void hak__misuse_size(const char *function, const void *p, size_t given, size_t size)
{
    hak__misuse(&(struct hak_mistake){ .kind = HAK_MISUSE_SIZE, .function = function, .p = p },
                "%s(): wrong size %u for %p (%u-byte block)", function, (uint64_t)given, p, (uint64_t)size);
}

/* --- printing through a buffer ---------------------------------------------------------------------------------------- */

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
