/* A running process's HAKMEM, read by its documented live page (include/hakmem_live.h), whatever its version. */
#pragma once

#include "elf.h"
#include "hakmem_live.h"

enum { CLASSES_MOST = 64, TABLES_MOST = 64 << 10, HEAP_MOST = 256 << 10 };

struct live {
    uint64_t pid;
    char path[PATH_SIZE]; /* the file that has the library */
    struct hak_live page;
    _Alignas(8) char tables[TABLES_MOST];
};

struct live_class {
    uint64_t size, spans, live, cached, refilled, drained, collected, misses;
};

struct live_figures {
    struct live_class classes[CLASSES_MOST];
    uint64_t class_count, heaps, live, cached, spans, huge; /* bytes */
};

/* Finds the library; a complaint and false: the process is gone, does not run on HAKMEM, or may not be read. */
bool live_open(struct live *live, uint64_t pid);

/* Whether this process may read that one's memory; true also if it is gone. */
bool may_be_read(uint64_t pid);

bool live_read(const struct live *live, uint64_t address, void *to, size_t size);
bool live_write(const struct live *live, uint64_t address, const void *from, size_t size);
uint64_t live_word(const struct live *live, uint64_t address); /* 0: cannot be read */
uint32_t live_half(const struct live *live, uint64_t address);

/* The address of a root, or a number; 0: this version has none of the name. */
uint64_t live_root(const struct live *live, const char *name);
uint32_t live_number(const struct live *live, const char *name);

/* The i-th figure's name, or NULL at the end; false: it follows from others, or only the kernel knows it. */
const char *live_figure(const struct live *live, unsigned i, uint64_t *value, bool *known);

void live_count(const struct live *live, struct live_figures *out);

/* The value of an option in force; false: no such option. */
bool live_option(const struct live *live, const char *name, uint64_t *value);

/* A process's number in a word; 0 and a complaint: it is none. */
uint64_t pid_of(const char *word);
