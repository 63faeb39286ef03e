/* hakmem run and hakmem options. The program replaces this process, so that its exit status, signals and number are its own. */
#include "commands.h"
#include "elf.h"

#include "diag/options.h"

#include <errno.h>
#include <linux/stat.h>
#include <signal.h>
#include <unistd.h>

enum { VARIABLES_MOST = 4096, WORDS_MOST = 4096, TEXT_SIZE = 16384, SCRIPTS_MOST = 4, VALUE_SIZE = 1024 };

/* --- the environment ---------------------------------------------------------------------------------------------------- */

static char *environment[VARIABLES_MOST + 1];
static unsigned variables;

static bool put_variable(char *entry)
{
    size_t name = 0;
    while (entry[name] != 0 && entry[name] != '=')
        name++;
    for (unsigned i = 0; i < variables; i++)
        if (memcmp(environment[i], entry, name + 1) == 0) {
            environment[i] = entry;
            return true;
        }
    if (variables == VARIABLES_MOST)
        return false;
    environment[variables++] = entry;
    return true;
}

/* "refill_count=64" as HAKMEM_REFILL_COUNT=64. */
static bool put_option(const char *word, char text[VALUE_SIZE])
{
    bool in_name = true;
    size_t length = hak__format(text, VALUE_SIZE, "HAKMEM_%s", word);
    if (length < sizeof "HAKMEM_" || length + 1 == VALUE_SIZE || text[sizeof "HAKMEM_" - 1] == '=')
        return false;
    for (char *at = text; *at != 0 && in_name; at++) {
        in_name = *at != '=';
        *at = *at >= 'a' && *at <= 'z' && in_name ? (char)(*at - 'a' + 'A') : *at;
    }
    return !in_name && put_variable(text);
}

/* --- the library ------------------------------------------------------------------------------------------------------------- */

static bool exists(const char *path) { return hak__syscall(SYS_faccessat, AT_FDCWD, path, R_OK) == 0; }

const char *library_path(char *path, size_t size)
{
    static const char *const above[] = { "", "libhakmem.so", "lib/libhakmem.so.0", "lib64/libhakmem.so.0",
                                         "lib/" HAK_MULTIARCH "/libhakmem.so.0" };
    char own[PATH_SIZE];
    const char *given = variable("HAKMEM_LIBRARY");
    if (given != NULL && given[0] != 0)
        return given;
    long length = hak__syscall(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", own, sizeof own - 1);
    while (length > 0 && own[length - 1] != '/')
        length--;
    for (unsigned i = 0; i < sizeof above / sizeof *above && length > 0; i++) {
        own[length] = 0;
        hak__format(path, size, "%s%s", own, i == 0 ? "libhakmem.so" : above[i]);
        if (exists(path))
            return path;
        for (length -= i == 0; i == 0 && length > 0 && own[length - 1] != '/'; length--)
            continue;
    }
    return "libhakmem.so.0";
}

/* --- the program --------------------------------------------------------------------------------------------------------------- */

/* The file that a name stands for, as execvp(3) finds it. */
static bool find_program(const char *name, char *path, size_t size)
{
    const char *folders = variable("PATH");
    for (const char *at = name; *at != 0; at++)
        if (*at == '/') {
            hak__format(path, size, "%s", name);
            return hak__syscall(SYS_faccessat, AT_FDCWD, path, F_OK) == 0;
        }
    for (folders = folders != NULL ? folders : "/usr/local/bin:/usr/bin:/bin"; *folders != 0;) {
        size_t length = 0;
        while (folders[length] != 0 && folders[length] != ':')
            length++;
        if (length + strlen(name) + 2 < size) {
            memcpy(path, folders, length);
            hak__format(path + length, size - length, length == 0 ? "./%s" : "/%s", name);
            if (hak__syscall(SYS_faccessat, AT_FDCWD, path, X_OK) == 0)
                return true;
        }
        folders += length + (folders[length] == ':');
    }
    return false;
}

/* Goes from a script to its interpreter; false: the file cannot be read. */
static bool follow_scripts(char *path, size_t size)
{
    char text[PATH_SIZE];
    for (unsigned i = 0; i < SCRIPTS_MOST; i++) {
        if (read_file(path, text, sizeof text) == 0)
            return false;
        if (!hak_begins(text, "#!"))
            return true;
        char *start = text + 2, *end;
        while (*start == ' ')
            start++;
        for (end = start; *end != 0 && *end != ' ' && *end != '\n'; end++)
            continue;
        *end = 0;
        hak__format(path, size, "%s", start);
    }
    return true;
}

/* What the dynamic linker of the program says it would load; false: it loads nothing. */
static bool would_load(char *interpreter, char *program, char *text)
{
    char *words[] = { interpreter, (char *)"--list", program, NULL };
    int ends[2], status = -1;
    size_t length = 0;
    long got;
    if (hak__syscall(SYS_pipe2, ends, 0) != 0)
        return false;
    long child = hak__syscall(SYS_clone, SIGCHLD, 0L, 0L, 0L, 0L);
    if (child == 0) {
        hak__syscall(SYS_dup3, ends[1], 1, 0);
        hak__syscall(SYS_dup3, ends[1], 2, 0);
        hak__syscall(SYS_execve, interpreter, words, environment);
        hak__syscall(SYS_exit_group, STATUS_NOT_FOUND);
    }
    hak__syscall(SYS_close, ends[1]);
    while (child > 0 && length < TEXT_SIZE - 1
           && (got = hak__syscall(SYS_read, ends[0], text + length, TEXT_SIZE - 1 - length)) > 0)
        length += (size_t)got;
    text[length] = 0;
    hak__syscall(SYS_close, ends[0]);
    if (child > 0)
        hak__syscall(SYS_wait4, child, &status, 0, 0L);
    return status == 0;
}

/* Why the library would not serve the program, or NULL. */
static const char *why_not(const char *program, const char *library)
{
    static char path[PATH_SIZE], text[TEXT_SIZE];
    struct statx about = { 0 };
    struct view file;
    const char *interpreter;
    uint64_t address;
    hak__format(path, sizeof path, "%s", program);
    if (!follow_scripts(path, sizeof path) || !map_file(path, &file))
        return "cannot be read";
    if (!elf_is(&file, &interpreter))
        return "is no 64-bit program";
    if (interpreter == NULL)
        return "is static: nothing can be preloaded";
    if (elf_address(&file, "malloc", &address))
        return "has a malloc of its own";
    bool known = hak__syscall(SYS_statx, AT_FDCWD, path, 0, STATX_MODE | STATX_UID, &about) == 0;
    if (known && (about.stx_mode & (S_ISUID | S_ISGID)) != 0 && hak__syscall(SYS_geteuid) != about.stx_uid)
        return "changes its user at its start, so that the dynamic linker ignores LD_PRELOAD";
    static char linker[PATH_SIZE];
    hak__format(linker, sizeof linker, "%s", interpreter);
    if (!would_load(linker, path, text))
        return "cannot be loaded together with the library";
    for (const char *at = text; *at != 0; at++)
        if (hak_begins(at, library))
            return hak_begins(text, "ERROR") ? "cannot be loaded together with the library" : NULL;
    return "would be loaded without the library";
}

/* As execvp(3) does, has the shell run a text without an interpreter of its own. */
static int start(char *path, char **words, int count)
{
    static char *through_shell[WORDS_MOST];
    long code = hak__syscall(SYS_execve, path, words, environment);
    if (code == -ENOEXEC && count + 2 <= WORDS_MOST) {
        through_shell[0] = (char *)"/bin/sh";
        through_shell[1] = path;
        memcpy(through_shell + 2, words + 1, (size_t)count * sizeof *words); /* with the NULL behind them */
        code = hak__syscall(SYS_execve, through_shell[0], through_shell, environment);
    }
    return complain("%s: cannot be executed (error %u)", path, (uint64_t)-code), STATUS_NOT_FOUND - 1;
}

int command_run(int count, char **words)
{
    static char canary[] = "HAKMEM_MISUSE=report", path[PATH_SIZE], library_text[PATH_SIZE], preload[2 * PATH_SIZE],
                values[32][VALUE_SIZE];
    bool require = false;
    unsigned given = 0;
    for (char **at = starter_environment; *at != NULL; at++)
        put_variable(*at);
    for (; count > 0 && words[0][0] == '-'; count--, words++) {
        if (strcmp(words[0], "--") == 0) {
            count--, words++;
            break;
        }
        if (strcmp(words[0], "--require") == 0) {
            require = true;
        } else if (strcmp(words[0], "--canary") == 0) {
            put_variable(canary);
        } else if (strcmp(words[0], "-o") == 0 && count > 1 && given < 32 && put_option(words[1], values[given])) {
            given++, count--, words++;
        } else {
            complain("run: %s: not understood; hakmem --help", words[0]);
            return STATUS_NOT_SERVED;
        }
    }
    if (count == 0)
        return complain("run: which program?"), STATUS_NOT_SERVED;
    const char *library = library_path(library_text, sizeof library_text), *former = variable("LD_PRELOAD");
    hak__format(preload, sizeof preload, former != NULL && former[0] != 0 ? "LD_PRELOAD=%s %s" : "LD_PRELOAD=%s", library, former);
    for (const char *at = library; *at != 0; at++)
        if (*at == ' ' || *at == ':')
            return complain("run: %s: the dynamic linker cannot preload a path with a blank or a colon", library),
                   STATUS_NOT_SERVED;
    if (!put_variable(preload))
        return complain("run: there are more than %u variables", (uint64_t)VARIABLES_MOST), STATUS_NOT_SERVED;
    environment[variables] = NULL;
    if (!find_program(words[0], path, sizeof path))
        return complain("%s: not found", words[0]), STATUS_NOT_FOUND;
    const char *why = require ? why_not(path, library) : NULL;
    if (why != NULL)
        return complain("not started: %s %s (library %s)", path, why, library), STATUS_NOT_SERVED;
    flush();
    return start(path, words, count);
}

/* --- options ---------------------------------------------------------------------------------------------------------------------- */

#define X(member, name) name,
static const char *const kinds[] = { HAK_OPTION_KINDS(X) }, *const whens[] = { HAK_OPTION_WHENS(X) };
#undef X

static const struct option {
    const char *name, *help;
    uint64_t value, least, most;
    int kind, when;
} options[] = {
#define X(name, kind, value, least, most, when, group, help) { #name, help, value, least, most, HAK_##kind, HAK_##when },
#include "diag/options.def"
#undef X
};
enum { OPTIONS = sizeof options / sizeof *options, LINE_MOST = 78 };

static void say_value(const struct option *option, uint64_t value)
{
    char text[AMOUNT_SIZE];
    if (option->kind == HAK_BYTES)
        say("%s", amount(value, text));
    else if (option->kind == HAK_THP || (option->kind == HAK_BACKGROUND && value == HAK_OPTION_AUTO))
        say("auto");
    else if (option->kind == HAK_PRESET)
        say("adaptive");
    else
        say(option->kind == HAK_TIME ? "%u ms" : option->kind == HAK_PERCENT ? "%u %%" : "%u", value);
}

static void say_wrapped(const char *text)
{
    while (*text != 0) {
        char line[LINE_MOST + 1];
        size_t length = 0, blank = 0;
        for (; text[length] != 0 && length < LINE_MOST; length++)
            blank = text[length] == ' ' ? length : blank;
        length = text[length] == 0 || blank == 0 ? length : blank;
        memcpy(line, text, length);
        line[length] = 0;
        say("    %s\n", line);
        text += length + (text[length] == ' ');
    }
}

static void say_option(const struct option *option)
{
    bool words = option->kind == HAK_THP || option->kind == HAK_PRESET || option->kind == HAK_HARDEN || option->kind == HAK_STATS
              || option->kind == HAK_PROFILE || option->kind == HAK_BACKGROUND || option->kind == HAK_FOLDER
              || option->kind == HAK_EVERY;
    char name[64];
    size_t i = 0;
    for (; option->name[i] != 0; i++)
        name[i] = option->name[i] >= 'a' && option->name[i] <= 'z' ? (char)(option->name[i] - 'a' + 'A') : option->name[i];
    name[i] = 0;
    say("HAKMEM_%s (%s, %s; default ", name, kinds[option->kind], whens[option->when]);
    say_value(option, option->value);
    if (!words) {
        say("; ");
        say_value(option, option->least);
        say(" to ");
        say_value(option, option->most);
    }
    say(")\n");
    say_wrapped(option->help);
}

static char lower_case(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

/* Whether the option is meant by this word: its name, in any case, with HAKMEM_ or without, or a part of it. */
static bool is_meant(const char *name, const char *word, bool whole)
{
    for (const char *from = name; *from != 0; from++) {
        size_t i = 0;
        while (word[i] != 0 && from[i] == lower_case(word[i]))
            i++;
        if (word[i] == 0 && (!whole || (from == name && from[i] == 0)))
            return true;
        if (whole)
            return false;
    }
    return false;
}

int command_options(int count, char **words)
{
    unsigned said = 0;
    const char *word = count > 0 ? words[0] : "";
    word += hak_begins(word, "HAKMEM_") || hak_begins(word, "hakmem_") ? 7 : 0;
    for (int whole = 1; whole >= 0 && said == 0; whole--)
        for (unsigned i = 0; i < OPTIONS; i++)
            if (is_meant(options[i].name, word, whole != 0)) {
                say_option(&options[i]);
                said++;
            }
    return said != 0 ? 0 : complain("options: none is named %s", word);
}
