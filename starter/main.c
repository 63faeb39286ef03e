/* hakmem: runs programs on HAKMEM, shows what a process does with memory and what a dead one did, with nothing but this file. */
#include "commands.h"

static const struct command {
    const char *name, *words, *help;
    int (*run)(int count, char **words);
} commands[] = {
    { "run", "[--require] [--canary] [-o NAME=VALUE]... [--] PROGRAM [ARGUMENT]...", "run a program on HAKMEM", command_run },
    { "stats", "PID", "the figures of a running process", command_stats },
    { "ledger", "PID", "where its resident memory is", command_ledger },
    { "doctor", "[PID]", "whether the machine, or the process, is as HAKMEM needs it", command_doctor },
    { "profile", "PID -o FILE [-s SECONDS]", "the stacks that hold its memory", command_profile },
    { "postmortem", "DIR|FILE [PID]", "what held the memory of a process that is gone", command_postmortem },
    { "options", "[NAME]", "what can be set", command_options },
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static int usage(void)
{
    say("usage: hakmem COMMAND ...\n\n");
    for (unsigned i = 0; i < COMMANDS; i++)
        say("  %-11s %-58s %s\n", commands[i].name, commands[i].words, commands[i].help);
    say("\nThe lab (pip install hakmem-lab) has more: watch, serve, compare, tune, leaks, report.\n");
    return 0;
}

int starter_main(int count, char **words)
{
    const char *name = count > 1 ? words[1] : "--help";
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0)
        return usage();
    if (strcmp(name, "--version") == 0) {
        say("hakmem %s\n", HAK_VERSION_STRING);
        return 0;
    }
    for (unsigned i = 0; i < COMMANDS; i++)
        if (strcmp(name, commands[i].name) == 0)
            return commands[i].run(count - 2, words + 2);
    complain("%s: no such command; hakmem --help lists them", name);
    return STATUS_USAGE;
}
