/* Programs that test the library as programs load it, under qemu's user emulation (linked with --wrap, see library.cmake).
 *
 * Some execute themselves, and the kernel runs no program of another processor: the emulator that HAK_TEST_EMULATOR names is executed
 * with them. LD_PRELOAD is not for the emulator; QEMU_SET_ENV, which stays in the environment, says it to the program again. Limits of
 * time are multiplied by HAK_TEST_EMULATED. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

enum { WORDS_MOST = 30, SETTINGS_MOST = 300, PATH_SIZE = 4096 };

/* What is executed in place of a program. */
struct call {
    const char *program;
    char *words[WORDS_MOST], *settings[SETTINGS_MOST];
    char path[PATH_SIZE];
};

unsigned __real_alarm(unsigned seconds);
unsigned __wrap_alarm(unsigned seconds);
int __real_execve(const char *program, char *const words[], char *const settings[]);
int __wrap_execve(const char *program, char *const words[], char *const settings[]);
int __wrap_execv(const char *program, char *const words[]);
int __wrap_execl(const char *program, const char *word, ...);
int __real_posix_spawn(pid_t *child, const char *program, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes,
                       char *const words[], char *const settings[]);
int __wrap_posix_spawn(pid_t *child, const char *program, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes,
                       char *const words[], char *const settings[]);

unsigned __wrap_alarm(unsigned seconds)
{
    const char *factor = getenv("HAK_TEST_EMULATED");
    return __real_alarm(factor != NULL ? seconds * (unsigned)atoi(factor) : seconds);
}

static bool is_emulated(const char *program)
{
    Elf64_Ehdr head = { .e_machine = EM_NONE };
    int file = open(program, O_RDONLY | O_CLOEXEC);
    bool known = file >= 0 && read(file, &head, sizeof head) == sizeof head;
    if (file >= 0)
        close(file);
    return known && head.e_machine == EM_AARCH64 && getenv("HAK_TEST_EMULATOR") != NULL;
}

/* False: the program can be executed as it is. */
static bool turn(struct call *call, const char *program, char *const words[], char *const settings[])
{
    if (!is_emulated(program))
        return false;
    ssize_t length = readlink(program, call->path, sizeof call->path - 1);
    if (length < 0)
        strncpy(call->path, program, sizeof call->path - 1);
    else
        call->path[length] = 0;
    call->program = getenv("HAK_TEST_EMULATOR");
    unsigned n = 0;
    call->words[n++] = (char *)(uintptr_t)call->program;
    call->words[n++] = call->path;
    for (unsigned i = 1; words[0] != NULL && words[i] != NULL && n < WORDS_MOST - 1; i++)
        call->words[n++] = words[i];
    call->words[n] = NULL;
    n = 0;
    for (unsigned i = 0; settings[i] != NULL && n < SETTINGS_MOST - 1; i++)
        if (strncmp(settings[i], "LD_PRELOAD=", sizeof "LD_PRELOAD=" - 1) != 0)
            call->settings[n++] = settings[i];
    call->settings[n] = NULL;
    return true;
}

int __wrap_execve(const char *program, char *const words[], char *const settings[])
{
    struct call call;
    if (turn(&call, program, words, settings))
        return __real_execve(call.program, call.words, call.settings);
    return __real_execve(program, words, settings);
}

int __wrap_execv(const char *program, char *const words[]) { return __wrap_execve(program, words, environ); }

int __wrap_execl(const char *program, const char *word, ...)
{
    char *words[WORDS_MOST] = { (char *)(uintptr_t)word };
    va_list more;
    va_start(more, word);
    for (unsigned i = 1; i < WORDS_MOST - 1 && words[i - 1] != NULL; i++)
        words[i] = va_arg(more, char *);
    va_end(more);
    return __wrap_execve(program, words, environ);
}

int __wrap_posix_spawn(pid_t *child, const char *program, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes,
                       char *const words[], char *const settings[])
{
    struct call call;
    if (turn(&call, program, words, settings))
        return __real_posix_spawn(child, call.program, actions, attributes, call.words, call.settings);
    return __real_posix_spawn(child, program, actions, attributes, words, settings);
}
