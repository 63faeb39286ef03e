// One mistake of a program that knows nothing of the library:
//
//     outside KIND SIZE      makes it with a block of SIZE bytes among others, goes on as if nothing had happened, and ends
//
// Prints "made" when the mistake has been made and "survived" at the end of main: outside.py tells by that when it was stopped.
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NEIGHBOURS = 8, LATER = 3000, MIB = 1 << 20 };
static char *before[NEIGHBOURS], *behind[NEIGHBOURS], *p;
static size_t n;
static volatile char seen;

static void say(const char *text)
{
    if (write(1, text, strlen(text)) < 0)
        _exit(3);
}

static char *make(size_t size)
{
    char *block = malloc(size);
    if (block == NULL)
        _exit(3);
    memset(block, 'b', size);
    return block;
}

/* What a program does afterwards: frees the block, its neighbours, and uses as much again. */
static void go_on(void)
{
    for (unsigned i = 0; i < NEIGHBOURS; i++)
        free(before[i]), free(behind[i]);
    unsigned rounds = n > MIB / 8 ? LATER / 50 : LATER;
    for (unsigned i = 0; i < rounds; i++)
        free(make(n));
}

static void release_and_go_on(void)
{
    say("made\n");
    free(p);
    go_on();
}

static void write_at(size_t at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        ((volatile char *)p)[at + i] = (char)('0' + i % 10);
}

static size_t rounded(void) { return (n + 15) & ~(size_t)15; }

static void over_1(void) { write_at(n, 1); }
static void over_16(void) { write_at(n, 16); }
static void over_256(void) { write_at(n, 256); }
static void over_4096(void) { write_at(n, 4096); }
static void over_mib(void) { write_at(n, MIB); }
static void jump_16(void) { write_at(rounded() + 16, 8); }
static void jump_4096(void) { write_at(n + 4096, 8); }
static void jump_mib(void) { write_at(n + MIB, 8); }
static void under_16(void) { write_at((size_t)0 - 16, 16); }
static void read_4096(void) { seen = p[rounded() + 4095]; }
static void read_mib(void) { seen = p[n + MIB]; }

static void zeros_kept(void) { memset(p, 0, n + 24); }

static void *free_it(void *block) { return free(block), NULL; }
static void elsewhere(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, free_it, p) != 0 || pthread_join(thread, NULL) != 0)
        _exit(3);
}

static void freed_write(void) { free(p), write_at(n / 2, 8); }
static void freed_write_first(void) { free(p), write_at(0, 8); }
static void freed_write_elsewhere(void) { elsewhere(), write_at(n / 2, 8); }
static void freed_read(void) { free(p), seen = p[n / 2]; }
static void twice(void) { free(p), free(p); }
static void twice_later(void)
{
    free(p);
    for (unsigned i = 0; i < NEIGHBOURS; i++)
        free(before[i]), before[i] = NULL;
    free(p);
}
static void twice_elsewhere(void) { free(p), elsewhere(); }
static void interior(void) { free(p + 16); }
static void misaligned(void) { free(p + 3); }
static void freed_realloc(void) { free(p), p = realloc(p, 2 * n); }

/* What ends with a free of the block, what without. */
static const struct kind {
    const char *name;
    void (*make)(void);
    void (*after)(void);
} kinds[] = {
    { "over-1", over_1, release_and_go_on },         { "over-16", over_16, release_and_go_on },
    { "over-256", over_256, release_and_go_on },     { "over-4096", over_4096, release_and_go_on },
    { "over-mib", over_mib, release_and_go_on },     { "jump-16", jump_16, release_and_go_on },
    { "jump-4096", jump_4096, release_and_go_on },   { "jump-mib", jump_mib, release_and_go_on },
    { "under-16", under_16, release_and_go_on },     { "zeros-kept", zeros_kept, NULL },
    { "over-kept", over_1, NULL },                   { "freed-write", freed_write, go_on },
    { "freed-write-first", freed_write_first, NULL },{ "freed-write-elsewhere", freed_write_elsewhere, go_on },
    { "twice", twice, go_on },                       { "twice-later", twice_later, go_on },
    { "twice-elsewhere", twice_elsewhere, go_on },   { "interior", interior, go_on },
    { "misaligned", misaligned, go_on },             { "freed-realloc", freed_realloc, go_on },
    { "read-4096", read_4096, release_and_go_on },   { "read-mib", read_mib, release_and_go_on },
    { "freed-read", freed_read, go_on },
};

int main(int argc, char **argv)
{
    if (argc != 3 || (n = strtoull(argv[2], NULL, 0)) == 0)
        return 2;
    for (unsigned i = 0; i < NEIGHBOURS; i++)
        before[i] = make(n);
    p = make(n);
    for (unsigned i = 0; i < NEIGHBOURS; i++)
        behind[i] = make(n);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        if (strcmp(kinds[k].name, argv[1]) == 0) {
            kinds[k].make();
            if (kinds[k].after != release_and_go_on)
                say("made\n");
            if (kinds[k].after != NULL)
                kinds[k].after();
            say("survived\n");
            return 0;
        }
    return 2;
}
