/* What test_stderr.py runs: a program that does something to descriptor 2 before it ends.
 *   replace FILE      closes 2, and opens a file of its own, which gets that number; writes "data\n"
 *   dump FILE         the same, and has a profile begin and be written to /dev/stderr
 *   misuse FILE       the same, then frees a block twice
 *   redirect FILE     has 2 lead to a log that it appends to, then frees a block twice
 *   all FILE          closes every descriptor, opens a file, which gets a low number, and 2,000 more */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int hak_profile_start(size_t interval) __attribute__((weak));
int hak_profile_dump(const char *path) __attribute__((weak));

static int own_file(const char *name)
{
    int file = open(name, O_CREAT | O_TRUNC | O_RDWR, 0600);
    return write(file, "data\n", 5) == 5 ? file : -1;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 2 ? argv[1] : "", *name = argv[argc - 1];
    char *volatile p = malloc(100);
    if (strcmp(mode, "redirect") == 0) {
        dup2(open(name, O_CREAT | O_WRONLY | O_APPEND, 0600), 2);
    } else if (strcmp(mode, "all") == 0) {
        for (int i = 0; i < 20000; i++)
            close(i);
        for (int i = 0; i < 2000; i++)
            own_file(name);
        return 0;
    } else {
        close(2);
        if (own_file(name) != 2)
            return 3;
    }
    if (strcmp(mode, "dump") == 0)
        return hak_profile_start(1) != 0 || hak_profile_dump("/dev/stderr") != 0;
    free(p);
    if (strcmp(mode, "replace") != 0)
        free(p);
    return 0;
}
