// Runs a program and prints the most memory that it had resident, in KiB: peak_memory COMMAND [ARGUMENT...]
//
// The kernel counts what a process had before exec as well, so that a small program must be started by
// a smaller one. This one is linked statically, hence it isn't affected by LD_PRELOAD itself.
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **words) {
    if (count < 2) {
        return 2;
    }
    pid_t child = vfork();
    if (child == 0) {
        execvp(words[1], words + 1);
        _exit(127);
    }
    int status;
    struct rusage usage;
    if (child < 0 || wait4(child, &status, 0, &usage) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        return 1;
    }
    fprintf(stderr, "%ld\n", usage.ru_maxrss);
    return 0;
}
