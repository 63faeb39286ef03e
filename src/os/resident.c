/* Asks the kernel which pages are in memory, mincore(2) for ranges, /proc/self/smaps for all mappings, and what can be read. See
 * os.h. */
#include <errno.h>
#include <fcntl.h>

#include "base/syscall.h"
#include "base/text.h"
#include "os/os.h"

static _Atomic bool resident_filtered;   /* orders nothing: a reader that finds it set need not see what came before */

bool hak__os_is_filtered(void) { return hak_load(&resident_filtered, HAK_RELAXED); }
bool hak__os_filter_comes(bool comes) { return hak_exchange(&resident_filtered, comes, HAK_RELAXED); }

int hak__os_resident(uintptr_t address, size_t size, unsigned char *pages)
{
    if (hak_load(&resident_filtered, HAK_RELAXED))
        return EPERM;
    int code = hak__syscall_code(hak__syscall(SYS_mincore, address, size, pages));
    size_t count = size / hak__os_linux.page_size();
    hak_fetch_add(&hak__os_calls[HAK_OS_LOOK], 1, HAK_RELAXED);
    for (size_t i = 0; i < count && code == 0; i++)
        pages[i] &= 1;
    return code;
}

/* The call reads its set of signals before it refuses what to do with it (the idea is Abseil's). At NULL there is no set. */
int hak__os_readable(uintptr_t address)
{
    enum { NO_SUCH_CHANGE = -1 };
    if (hak_load(&resident_filtered, HAK_RELAXED))
        return EPERM;
    if (address == 0)
        return EFAULT;
    long result = hak__syscall(SYS_rt_sigprocmask, NO_SUCH_CHANGE, address, 0, sizeof(uint64_t));
    return hak__syscall_code(result) == EFAULT ? EFAULT : 0;
}

/* The start of a mapping, from its line "55d0-55e0 r--p ..."; false for every other line. */
static bool mapping_start(const char *line, uintptr_t *start)
{
    uintptr_t n = 0;
    for (; (*line >= '0' && *line <= '9') || (*line >= 'a' && *line <= 'f'); line++)
        n = n * 16 + (uintptr_t)(*line <= '9' ? *line - '0' : *line - 'a' + 10);
    *start = *line == '-' ? n : *start;
    return *line == '-';
}

/* The bytes of what follows the name in a line "Rss:    123 kB". */
static size_t read_kilobytes(const char *line)
{
    size_t n = 0;
    for (; *line == ' '; line++)
        continue;
    for (; *line >= '0' && *line <= '9'; line++)
        n = n * 10 + (size_t)(*line - '0');
    return n << 10;
}

bool hak__os_mappings(void (*each)(void *argument, uintptr_t start, size_t resident, size_t huge), void *argument)
{
    static const char rss[] = "Rss:", huge[] = "AnonHugePages:";
    char chunk[1024], line[64];
    size_t used = 0;
    uintptr_t start = 0;
    long got, file = hak__syscall(SYS_openat, AT_FDCWD, "/proc/self/smaps", O_RDONLY | O_CLOEXEC);
    bool any = false;
    while (file >= 0 && ((got = hak__syscall(SYS_read, file, chunk, sizeof chunk)) > 0 || got == -EINTR)) {
        for (const char *at = chunk; got > 0 && at < chunk + got; at++) {
            if (*at != '\n') {   /* long lines are those with a file's name; only their beginning counts */
                if (used < sizeof line - 1)
                    line[used++] = *at;
                continue;
            }
            line[used] = 0;
            used = 0;
            if (!mapping_start(line, &start) && hak_begins(line, rss)) {
                each(argument, start, read_kilobytes(line + sizeof rss - 1), 0);
                any = true;
            } else if (hak_begins(line, huge)) {
                each(argument, start, 0, read_kilobytes(line + sizeof huge - 1));
            }
        }
    }
    if (file >= 0)
        hak__syscall(SYS_close, file);
    return any;
}
