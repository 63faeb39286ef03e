"""A program with known blocks in every state, dumped in several ways, for the tests of core dumps and `hakmem
block`."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import killed_after
from tests.inside import LIBRARY, clean_environment

ARCHIVE = LIBRARY.parent / "libhakmem.a"

# Makes blocks and prints "NAME ADDRESS" for each, then does what a letter on standard input says, without allocating:
#   a  abort()    w  answer each line "0xADDRESS" by what the library itself says of it (linked with the archive)
# plain: live, freed and never used blocks of all pools; hardened: run with HAKMEM_HARDEN=1; sampled: with
# HAKMEM_SAMPLE_GUARDS=1; idle: nothing is allocated.
SOURCE = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern size_t hak_collect(void) __attribute__((weak));
#ifdef WITH_DESCRIPTION
extern void hak__describe(uintptr_t address, char *text, size_t size);
#else
static void hak__describe(uintptr_t address, char *text, size_t size)
{
    (void)address, text[size - 1] = text[0] = 0;
}
#endif

enum { OTHERS = 20 };   /* more than a bucket of an outbox takes of 1000 bytes */

static char out[1 << 16];
static int in_data = 1;
static pthread_barrier_t step;
static void *others[OTHERS];
static unsigned char zeros[64];

static void say(const char *name, const void *p) { printf("%s %p\n", name, p); }

static void *made(const char *name, size_t n)
{
    void *p = malloc(n);
    memset(p, 0x5a, n);
    say(name, p);
    return p;
}

/* Frees blocks of the first thread: the first are published, the last stay in its outbox. Lives on. */
static void *other(void *unused)
{
    say("of_thread", malloc(3000));
    for (int i = 0; i < OTHERS; i++)
        free(others[i]);
    pthread_barrier_wait(&step);
    pause();
    return unused;
}

static void *short_lived(void *unused)
{
    made("of_the_parked", 700);
    return unused;
}

static void plain(void)
{
    pthread_t id;
    char *p;
    void *holes[40];
    for (int i = 0; i < 40; i++)
        memset(holes[i] = malloc(640), 1, 640);
    say("before_hole", holes[10]);
    say("hole", holes[11]);
    say("behind_hole", holes[12]);
    free(holes[11]);
    hak_collect();
    made("small", 64);
    made("mid", 8000);
    made("large", 200 << 10);
    made("huge", 3 << 20);
    free(malloc(3900 << 10));
    say("huge_tail", (char *)malloc(2900 << 10) + (3500 << 10));
    free(made("cached", 48));
    for (int i = 0; i < 50; i++)
        free(malloc(100 << 10));
    free(made("kept", 100 << 10));
    p = malloc(80 << 20);   /* too large to wait */
    say("huge_freed", p + (78 << 20));   /* what is beyond 64 MiB goes back */
    free(p);
    free(made("huge_waiting", 5 << 20));
    p = made("little", 96);
    say("never", (char *)((uintptr_t)p & ~(uintptr_t)0xffff) + 96 * 600);
    for (int i = 0; i < OTHERS; i++)
        others[i] = malloc(1000);
    say("published", others[0]);
    say("outbox", others[OTHERS - 1]);
    pthread_barrier_init(&step, NULL, 2);
    pthread_create(&id, NULL, other, NULL);
    pthread_barrier_wait(&step);
    pthread_create(&id, NULL, short_lived, NULL);
    pthread_join(id, NULL);
}

static void hardened(void)
{
    char *p = made("sealed", 50);
    made("huge_sealed", (3 << 20) + 5);
    p = made("overrun", 41);
    p[43] ^= 1;   /* of a pattern that is another in each process */
    p = made("smashed", 56);
    memset(p, 1, 64);
    free(made("quarantined", 100));
    p = made("written", 200);
    free(p);
    p[120] = 1;
    say("zero_size", malloc(0));
    p = malloc(0);
    say("zero_size_freed", p);
    say("zero_size_never", p + 4096);
    free(p);
}

static void sampled(void)
{
    char *p = made("sampled", 100);
    say("sampled_behind", p + 100 + 65536);
    p = made("sampled_overrun", 33);
    p[33] = 1;
    free(made("sampled_freed", 200));
}

/* With HAKMEM_PURGE_DELAY=2: the pages of free blocks between two live ones have gone back. */
static void purged(void)
{
    enum { COUNT = 24, SIZE = 2048 };
    char *all[COUNT];
    for (int i = 0; i < COUNT; i++)
        memset(all[i] = malloc(SIZE), 1, SIZE);
    for (int i = 1; i < COUNT - 1; i++)
        free(all[i]);
    for (int round = 0; round < 20; round++) {
        usleep(20000);
        hak_collect();
    }
    say("purged", all[COUNT / 2]);
    say("beside", all[0]);
}

static void describe_all(void)
{
    static char line[64];
    unsigned at = 0;
    while (read(0, line + at, 1) == 1) {
        if (line[at++] != '\n')
            continue;
        static char text[256];
        line[at - 1] = 0;
        at = 0;
        hak__describe((uintptr_t)strtoull(line, NULL, 16), text, sizeof text);
        fprintf(stdout, "%s\n", text);
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    char letter;
    setvbuf(stdout, out, _IOFBF, sizeof out);
    (void)argc;
    say("data", &in_data);
    if (strcmp(argv[1], "plain") == 0)
        plain();
    if (strcmp(argv[1], "hardened") == 0)
        hardened();
    if (strcmp(argv[1], "purged") == 0)
        purged();
    if (strcmp(argv[1], "sampled") == 0)
        sampled();
    puts("ready");
    fflush(stdout);
    while (read(0, &letter, 1) == 1) {
        if (letter == 'a')
            abort();
        if (letter == 'w')
            describe_all();
    }
    return zeros[0];
}
"""

# The ways in which a program can get the library.
FLAVOURS: dict[str, list[str]] = {
    "preload": [],
    "shared": [f"-L{LIBRARY.parent}", "-lhakmem", f"-Wl,-rpath,{LIBRARY.parent}"],
    "archive": ["-Wl,-u,malloc", str(ARCHIVE)],
    "static": ["-static", "-Wl,-u,malloc", str(ARCHIVE)],
}


@dataclass
class Subject:
    """The program, waiting for a letter."""

    child: subprocess.Popen[str]
    folder: Path
    places: dict[str, int]

    @property
    def pid(self) -> int:
        return self.child.pid

    def tell(self, words: str) -> None:
        assert self.child.stdin
        self.child.stdin.write(words)
        self.child.stdin.flush()

    def line(self) -> str:
        assert self.child.stdout
        return self.child.stdout.readline().rstrip("\n")

    def die(self) -> Path:
        """Aborts; returns the kernel's core."""
        self.tell("a")
        assert self.child.wait(30) == -6
        return self.core()

    def core(self) -> Path:
        return core_of_kernel(self.folder)

    def gcore(self) -> Path:
        """The debugger's core; the program continues."""
        if shutil.which("gcore") is None:
            pytest.skip("no gcore: install gdb")
        made = subprocess.run(
            ["gcore", "-o", str(self.folder / "gcore"), str(self.pid)], capture_output=True, text=True, check=False
        )
        path = self.folder / f"gcore.{self.pid}"
        assert path.exists(), made.stdout + made.stderr
        return path


def kernel_writes_here() -> bool:
    """Whether the kernel writes cores into the process's folder."""
    pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
    return "/" not in pattern and not pattern.startswith("|") and resource.getrlimit(resource.RLIMIT_CORE)[1] != 0


def core_of_kernel(folder: Path) -> Path:
    found = [path for path in folder.iterdir() if re.fullmatch(r"core(\..*)?", path.name)]
    assert len(found) == 1, list(folder.iterdir())
    return found[0]


@contextmanager
def waiting(
    program: Path, mode: str, folder: Path, preload: Path | None = LIBRARY, more: dict[str, str] | None = None
) -> Iterator[Subject]:
    # No background thread: it would take steps between two looks, and drain and return what is to stay.
    environment = clean_environment(**{"HAKMEM_BACKGROUND": "0", **(more or {})})
    if preload:
        environment["LD_PRELOAD"] = str(preload)
    folder.mkdir(exist_ok=True)
    with killed_after(
        [str(program), mode],
        env=environment,
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as child:
        assert child.stdout
        most = resource.getrlimit(resource.RLIMIT_CORE)[1]
        resource.prlimit(child.pid, resource.RLIMIT_CORE, (most, most))
        places = {}
        while (line := child.stdout.readline().strip()) != "ready":
            assert line, "the program has ended"
            name, _, place = line.partition(" ")
            places[name] = int(place, 16)
        yield Subject(child, folder, places)


def stripped_copy(path: Path, target: Path) -> Path:
    """A stripped copy of a program or a library."""
    subprocess.run(["strip", "-o", str(target), str(path)], check=True)
    os.chmod(target, 0o755)
    return target
