"""A program with planted waste of each kind, for the tests of `hakmem waste` and `hakmem cold`. Everything else that it
holds is random bytes without zeros."""

from __future__ import annotations

# Arguments: KIND COUNT pairs. Prints "ready", then reads a byte. Random blocks lie between the planted ones.
SOURCE = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t seed = 88172645463325252ull;
static void *kept[1 << 20];
static unsigned count;

static uint64_t drawn(void) { return seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17; }

static void *random_bytes(void *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((unsigned char *)p)[i] = (unsigned char)(1 + drawn() % 255);
    return p;
}

static void *keep(void *p) { return kept[count++] = p; }
__attribute__((noinline)) void *made(size_t n) { return keep(random_bytes(malloc(n), n)); }
__attribute__((noinline)) void *zeros(void) { return keep(memset(malloc(160), 0, 160)); }

__attribute__((noinline)) void *text(int i)
{
    char *p = random_bytes(malloc(96), 96);   /* what is behind the 0 differs */
    return sprintf(p, "configuration %d of a server", i % 10), keep(p);
}

__attribute__((noinline)) void *vector(void)
{
    char *p = memset(malloc(8192), 0, 8192);
    return random_bytes(p, 3000), keep(p);
}

__attribute__((noinline)) void pair(void)
{
    char *p = made(48), *q = made(200);
    memcpy(p + 8, &q, sizeof q);
}

__attribute__((noinline)) void child(void *parent)   /* of many, none of which can be joined with it */
{
    char *p = made(48);
    memcpy(p + 8, &parent, sizeof parent);
}

__attribute__((noinline)) void node(void)   /* two pointers to two blocks */
{
    char *p = made(64), *q = made(200), *r = made(200);
    memcpy(p + 8, &q, sizeof q);
    memcpy(p + 16, &r, sizeof r);
}

static void sparse(int n)   /* nine of ten blocks are free */
{
    static void *all[1 << 16];
    for (int i = 0; i < n; i++)
        all[i] = random_bytes(malloc(1280), 1280);
    for (int i = 0; i < n; i++)
        if (i % 10)
            free(all[i]);
        else
            keep(all[i]);
}

int main(int argc, char **argv)
{
    char letter;
    for (int a = 1; a + 1 < argc; a += 2) {
        int n = atoi(argv[a + 1]);
        for (int i = 0; i < n; i++) {
            if (strcmp(argv[a], "zero") == 0)
                zeros(), made(160);
            if (strcmp(argv[a], "equal") == 0)
                text(i), made(96);
            if (strcmp(argv[a], "tail") == 0)
                vector(), made(8192);
            if (strcmp(argv[a], "joined") == 0)
                pair();
            if (strcmp(argv[a], "fields") == 0)   /* zeros in small blocks, and in the middle of large ones */
                memset((char *)made(64) + 40, 0, 24), memset((char *)made(4096) + 100, 0, 3900);
            if (strcmp(argv[a], "children") == 0)
                child(kept[0]);
            if (strcmp(argv[a], "nodes") == 0)
                node();
            if (strcmp(argv[a], "structs") == 0) {   /* that begin alike: with a pointer, and with digits */
                void *where = (void *)(uintptr_t)&kept;
                memcpy((char *)made(64), &where, 8);
                memcpy((char *)made(64), "1234567", 8);
            }
            if (strcmp(argv[a], "rounding") == 0)
                made(1030);
            if (strcmp(argv[a], "smallest") == 0)
                made(16);
            if (strcmp(argv[a], "untouched") == 0)
                keep(random_bytes(malloc(8 << 20), 1 << 20));
            if (strcmp(argv[a], "nothing") == 0)
                made(16 + drawn() % 4000);
        }
        if (strcmp(argv[a], "sparse") == 0)
            sparse(n);
    }
    puts("ready");
    fflush(stdout);
    return read(0, &letter, 1) != 1;
}
"""
