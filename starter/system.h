/* What the starter needs of a system: it is linked with no C library where the processor is one that base/syscall.h knows, so that one
 * file runs in every container, with glibc, with musl and with neither. */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/bits.h"
#include "base/compiler.h"
#include "base/syscall.h"
#include "diag/report.h"

enum { PATH_SIZE = 4096 /* PATH_MAX */, AMOUNT_SIZE = 24, STATUS_FAILED = 1, STATUS_USAGE = 2, STATUS_NOT_SERVED = 125, STATUS_NOT_FOUND = 127 };

extern char **starter_environment;
int starter_main(int count, char **words);

/* The value of a variable, or NULL. */
const char *variable(const char *name);

/* Text on standard output, in the formats of diag/report.h; `flush` writes what is left and returns 0 or an errno code. */
void say(const char *format, ...);
int flush(void);

/* The whole text to a descriptor; 0 or an errno code. */
int write_all(int fd, const char *text, size_t length);

/* One line on standard error; returns STATUS_FAILED. */
int complain(const char *format, ...);

/* "12.3 MiB", into a buffer of AMOUNT_SIZE. */
const char *amount(uint64_t bytes, char *text);

/* The digits at the beginning of a text, and what is behind them. */
uint64_t number_at(const char *text, const char **behind);

/* A file's first bytes, or those bytes as a text. Their number; 0 if it cannot be read. */
size_t read_bytes(const char *path, void *to, size_t size);
size_t read_file(const char *path, char *text, size_t size);

bool is_running(uint64_t pid);

/* A whole file, readable until the process ends, if nobody truncates it; false: it cannot be read, or is empty. */
struct view {
    const char *start;
    size_t size;
};
bool map_file(const char *path, struct view *out);
void unmap_file(struct view *view);

/* Calls for each name in a folder; 0 or an errno code. */
int each_name(const char *folder, void (*call)(const char *name, void *argument), void *argument);

void nap_ms(uint64_t ms);
uint64_t clock_ms(void);
