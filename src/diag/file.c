/* Files that appear whole (report.h). Only system calls, so that a signal handler may write one. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/syscall.h"
#include "diag/report.h"
#include "os/os.h"

enum { PART_PATH = 640, PART_ROOM = 32 };

/* Whether the path is no device, pipe or the like. */
static bool is_plain(const char *path)
{
    struct stat there;
    bool apart = hak_begins(path, "/dev/shm/") || (!hak_begins(path, "/dev/") && !hak_begins(path, "/proc/"));
    return apart && (hak__syscall(SYS_newfstatat, AT_FDCWD, path, &there, 0L) != 0 || S_ISREG(there.st_mode));
}

/* Whether the calling process alone writes the file, which still has that name; then it is empty. */
static bool is_only_writer(int fd, const char *name)
{
    struct stat mine, there;
    return hak__syscall(SYS_flock, fd, LOCK_EX | LOCK_NB) == 0 && hak__syscall(SYS_fstat, fd, &mine) == 0
        && hak__syscall(SYS_newfstatat, AT_FDCWD, name, &there, AT_SYMLINK_NOFOLLOW) == 0 && mine.st_ino == there.st_ino
        && mine.st_dev == there.st_dev && hak__syscall(SYS_ftruncate, fd, 0L) == 0;
}

/* Opens PATH.part, or while another process writes that, one with a number that no other has. */
static int open_beside(char *beside, size_t size, const char *path)
{
    hak__format(beside, size, "%s.part", path);
    int fd = hak__report_open(beside, O_CREAT | O_NOFOLLOW);
    if (fd < 0 || is_only_writer(fd, beside))
        return fd;
    hak__syscall(SYS_close, fd);
    hak__format(beside, size, "%s.%u.part", path, hak__os->random() ^ (uint64_t)hak__syscall(SYS_getpid));
    return hak__report_open(beside, O_CREAT | O_TRUNC | O_NOFOLLOW);
}

/* Closing may report what was not written. */
static int write_and_close(int fd, hak_file_writer *writer, const void *argument)
{
    int code = writer(fd, argument), closed = hak__syscall_code(hak__syscall(SYS_close, fd));
    return code != 0 ? code : closed;
}

static int write_beside(const char *path, hak_file_writer *writer, const void *argument)
{
    char beside[PART_PATH];
    if (strlen(path) >= sizeof beside - PART_ROOM)
        return ENAMETOOLONG;
    int fd = open_beside(beside, sizeof beside, path);
    if (fd < 0)
        return -fd;
    int lock = (int)hak__syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1); /* until the file has its name */
    int code = write_and_close(fd, writer, argument);
    if (code == 0)
        code = hak__syscall_code(hak__syscall(SYS_renameat2, AT_FDCWD, beside, AT_FDCWD, path, 0));
    if (code != 0)
        hak__syscall(SYS_unlinkat, AT_FDCWD, beside, 0L);
    if (lock >= 0)
        hak__syscall(SYS_close, lock);
    return code;
}

static int write_in_place(const char *path, int more, hak_file_writer *writer, const void *argument)
{
    int fd = hak__report_open(path, more);
    return fd < 0 ? -fd : write_and_close(fd, writer, argument);
}

int hak__file_write(const char *path, hak_file_writer *writer, const void *argument)
{
    if (!is_plain(path))
        return write_in_place(path, O_APPEND, writer, argument);
    int code = write_beside(path, writer, argument);
    /* The folder takes no new file, or the file is a mount. */
    bool refused = code == EACCES || code == EPERM || code == EROFS || code == EBUSY;
    return refused ? write_in_place(path, O_CREAT | O_TRUNC, writer, argument) : code;
}
