/* See system.h. */
#include "system.h"

#include <dirent.h>
#include <linux/stat.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

char **starter_environment;

/* --- the beginning ---------------------------------------------------------------------------------------------------- */

#if HAK_FREESTANDING

/* The kernel puts the number of words on the stack, the words behind it, and the environment behind those. */
__attribute__((used)) static _Noreturn void starter_begin(long *stack)
{
    char **words = (char **)(stack + 1);
    starter_environment = words + stack[0] + 1;
    int status = starter_main((int)stack[0], words);
    int code = flush();
    hak__syscall(SYS_exit_group, code != 0 && code != EPIPE && status == 0 ? STATUS_FAILED : status);
    __builtin_unreachable();
}

#if defined(__x86_64__)
__asm__(".globl _start\n_start: xor %ebp, %ebp\n mov %rsp, %rdi\n and $-16, %rsp\n call starter_begin\n");
#elif defined(__aarch64__)
__asm__(".globl _start\n_start: mov x29, #0\n mov x30, #0\n mov x0, sp\n bl starter_begin\n");
#else
__asm__(".globl _start\n_start: .option push\n .option norelax\n lla gp, __global_pointer$\n .option pop\n"
        " mv a0, sp\n andi sp, sp, -16\n call starter_begin\n");
#endif

/* The compiler calls these too. The loops must not become calls of themselves. */
#define HERE __attribute__((used, optimize("no-tree-loop-distribute-patterns")))
#if defined(__clang__)
#undef HERE
#define HERE __attribute__((used, no_builtin))
#endif
HERE void *memcpy(void *restrict to, const void *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((char *)to)[i] = ((const char *)from)[i];
    return to;
}
HERE void *memmove(void *to, const void *from, size_t n)
{
    if ((uintptr_t)to < (uintptr_t)from)
        return memcpy(to, from, n);
    while (n-- > 0)
        ((char *)to)[n] = ((const char *)from)[n];
    return to;
}
HERE void *memset(void *to, int byte, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((char *)to)[i] = (char)byte;
    return to;
}
HERE int memcmp(const void *a, const void *b, size_t n)
{
    const unsigned char *x = a, *y = b;
    for (; n > 0 && *x == *y; n--)
        x++, y++;
    return n == 0 ? 0 : *x - *y;
}
HERE size_t strlen(const char *text)
{
    size_t n = 0;
    while (text[n] != 0)
        n++;
    return n;
}
HERE int strcmp(const char *a, const char *b)
{
    for (; *a != 0 && *a == *b; b++)
        a++;
    return (unsigned char)*a - (unsigned char)*b;
}
HERE _Noreturn void abort(void)
{
    hak__syscall(SYS_exit_group, STATUS_FAILED);
    __builtin_unreachable();
}

#else

int main(int count, char **words, char **environment)
{
    starter_environment = environment;
    int status = starter_main(count, words), code = flush();
    return code != 0 && code != EPIPE && status == 0 ? STATUS_FAILED : status;
}

#endif

const char *variable(const char *name)
{
    size_t length = strlen(name);
    for (char **at = starter_environment; *at != NULL; at++)
        if (hak_begins(*at, name) && (*at)[length] == '=')
            return *at + length + 1;
    return NULL;
}

/* --- text --------------------------------------------------------------------------------------------------------------- */

enum { OUT_SIZE = 16384, SAY_MOST = 2048 };
static char out_text[OUT_SIZE];
static size_t out_used;
static int out_error;

int write_all(int fd, const char *text, size_t length)
{
    while (length > 0) {
        long n = hak__syscall(SYS_write, fd, text, length);
        if (n <= 0 && n != -EINTR)
            return n == 0 ? EIO : (int)-n;
        text += n > 0 ? n : 0;
        length -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

int flush(void)
{
    if (out_error == 0 && out_used != 0)
        out_error = write_all(1, out_text, out_used);
    out_used = 0;
    return out_error;
}

void say(const char *format, ...)
{
    va_list arguments;
    if (out_used + SAY_MOST > OUT_SIZE)
        flush();
    va_start(arguments, format);
    out_used += hak__format_list(out_text + out_used, SAY_MOST, format, arguments);
    va_end(arguments);
}

int complain(const char *format, ...)
{
    char line[SAY_MOST];
    va_list arguments;
    flush();
    size_t length = hak__format(line, sizeof line, "hakmem: ");
    va_start(arguments, format);
    length += hak__format_list(line + length, sizeof line - length - 1, format, arguments);
    va_end(arguments);
    line[length++] = '\n';
    write_all(2, line, length);
    return STATUS_FAILED;
}

const char *amount(uint64_t bytes, char *text)
{
    static const char units[][4] = { "B", "KiB", "MiB", "GiB", "TiB" };
    unsigned unit = 0;
    uint64_t whole = bytes, rest = 0;
    for (; whole >= 1024 && unit < 4; unit++)
        rest = whole % 1024, whole /= 1024;
    hak__format(text, AMOUNT_SIZE, unit == 0 ? "%u" : "%u.%u", whole, rest * 10 / 1024);
    size_t length = strlen(text);
    hak__format(text + length, AMOUNT_SIZE - length, " %s", units[unit]);
    return text;
}

uint64_t number_at(const char *text, const char **behind)
{
    uint64_t n = 0;
    for (; *text >= '0' && *text <= '9'; text++)
        n = n * 10 + (uint64_t)(*text - '0');
    if (behind != NULL)
        *behind = text;
    return n;
}

/* --- files ---------------------------------------------------------------------------------------------------------------- */

size_t read_bytes(const char *path, void *to, size_t size)
{
    long fd = hak__syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC), got; /* no pipe is waited for */
    size_t length = 0;
    while (fd >= 0 && length < size && (got = hak__syscall(SYS_read, fd, (char *)to + length, size - length)) > 0)
        length += (size_t)got;
    if (fd >= 0)
        hak__syscall(SYS_close, fd);
    return length;
}

size_t read_file(const char *path, char *text, size_t size)
{
    size_t length = read_bytes(path, text, size - 1);
    text[length] = 0;
    return length;
}

/* A process that has ended stays until its parent asks for its status. */
bool is_running(uint64_t pid)
{
    char path[64], text[256];
    hak__format(path, sizeof path, "/proc/%u/stat", pid);
    size_t length = read_file(path, text, sizeof text), at = length;
    while (at > 0 && text[at - 1] != ')') /* the end of its name, which may have such letters too */
        at--;
    return hak__syscall(SYS_kill, pid, 0) != -ESRCH && !(at != 0 && at + 1 < length && text[at + 1] == 'Z');
}

bool map_file(const char *path, struct view *out)
{
    struct statx about = { 0 };
    long fd = hak__syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC), at = -ENOENT; /* no pipe is waited for */
    *out = (struct view){ NULL, 0 };
    if (fd >= 0 && hak__syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_SIZE, &about) == 0 && about.stx_size != 0)
        at = hak__syscall(SYS_mmap, 0, about.stx_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (fd >= 0)
        hak__syscall(SYS_close, fd);
    if (hak__syscall_code(at) != 0)
        return false;
    *out = (struct view){ (const char *)at, about.stx_size };
    return true;
}

void unmap_file(struct view *view)
{
    if (view->size != 0)
        hak__syscall(SYS_munmap, view->start, view->size);
    *view = (struct view){ NULL, 0 };
}

struct kernel_name { /* what getdents64 gives */
    uint64_t number;
    int64_t next;
    unsigned short size;
    unsigned char type;
    char name[];
};

int each_name(const char *folder, void (*call)(const char *name, void *argument), void *argument)
{
    _Alignas(8) char names[4096];
    long fd = hak__syscall(SYS_openat, AT_FDCWD, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), got = fd;
    while (fd >= 0 && (got = hak__syscall(SYS_getdents64, fd, names, sizeof names)) > 0)
        for (long at = 0; at < got;) {
            const struct kernel_name *one = (const void *)(names + at);
            call(one->name, argument);
            at += one->size;
        }
    if (fd >= 0)
        hak__syscall(SYS_close, fd);
    return hak__syscall_code(got);
}

void nap_ms(uint64_t ms)
{
    struct timespec time = { (time_t)(ms / 1000), (long)(ms % 1000) * 1000000 };
    hak__syscall(SYS_nanosleep, &time, NULL);
}

uint64_t clock_ms(void)
{
    struct timespec now = { 0, 0 };
    hak__syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}
