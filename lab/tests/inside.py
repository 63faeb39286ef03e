"""Shared by the tests of run, stats, watch and doctor: real programs on the built library, and the command itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hakmem_lab.target import libhakmem
from tests.conftest import killed_after

TREE = Path(__file__).resolve().parents[2]
LIBRARY = libhakmem.find()
NOBODY = 65534

# Does what a letter on standard input says, answers by a line, and allocates nothing else meanwhile.
#   a  100 more blocks of 64 bytes       f  free them again       r  another thread frees 50 of them
#   s  all figures as the library itself gives them, "group.name value" and "class SIZE name value", then "end"
#   l  the same with the ledger
PROGRAM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
#include "hakmem_stats.h"

enum { STEP = 100, MOST = 100000 };
static void *blocks[MOST], *kept[3];
static int count;
static struct hak_stats s;
static char out[1 << 16];
typedef int gather(struct hak_stats *, size_t);
extern int hak_stats_snapshot(struct hak_stats *, size_t) __attribute__((weak));
extern int hak_stats_ledger(struct hak_stats *, size_t) __attribute__((weak));

static void *free_half(void *unused)
{
    for (int i = 0; i < STEP / 2; i++)
        free(blocks[--count]);
    return unused;
}

static void print_figures(gather *of)
{
    of(&s, sizeof s);
#define HAK_STATS_FIGURE(group, name, ...) \
    printf("%s.%s %llu\n", #group, #name, (unsigned long long)s.group##_##name);
#include "diag/stats.def"
    for (unsigned i = 0; i < s.class_count; i++) {
        const struct hak_stats_class *k = &s.classes[i];
#define HAK_STATS_COLUMN(name, ...) \
        printf("class %llu %s %llu\n", (unsigned long long)k->size, #name, (unsigned long long)k->name);
#include "diag/stats.def"
    }
}

int main(int argc, char **argv)
{
    char letter;
    pthread_t other;
    gather *snapshot = hak_stats_snapshot, *ledger = hak_stats_ledger;
    setvbuf(stdout, out, _IOFBF, sizeof out);
    if (argc > 1 && strcmp(argv[1], "hidden") == 0)
        prctl(PR_SET_DUMPABLE, 0);
    memset(kept[0] = malloc(3 << 20), 1, 2 << 20);
    memset(kept[1] = malloc(200 << 10), 1, 200 << 10);
    free(malloc(5 << 20));
    puts("ready");
    fflush(stdout);
    while (read(0, &letter, 1) == 1) {
        for (int i = 0; letter == 'a' && i < STEP; i++)
            memset(blocks[count++] = malloc(64), 1, 64);
        for (int i = 0; letter == 'f' && i < STEP; i++)
            free(blocks[--count]);
        if (letter == 'r') {
            pthread_create(&other, NULL, free_half, NULL);
            pthread_join(other, NULL);
        }
        if (letter == 's' || letter == 'l')
            print_figures(letter == 's' ? snapshot : ledger);
        puts("end");
        fflush(stdout);
    }
    return 0;
}
"""


def compile_c(folder: Path, source: str, *flags: str, name: str = "program") -> Path:
    target, includes = folder / name, [f"-I{TREE}/include", f"-I{TREE}/src"]
    subprocess.run(
        ["gcc", "-O0", "-fno-builtin", "-pthread", *includes, "-o", str(target), "-x", "c", "-", "-x", "none", *flags],
        input=source,
        text=True,
        check=True,
    )
    return target


def clean_environment(**more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HAKMEM_") and key != "LD_PRELOAD"}
    return {**kept, "COLUMNS": "200", **more}


def hakmem(*arguments: object, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs the command, with these additional variables."""
    return subprocess.run(
        [sys.executable, "-m", "hakmem_lab", *(str(each) for each in arguments)],
        env={libhakmem.VARIABLE: str(LIBRARY), **clean_environment(**more)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


class Running:
    """The program, under way."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self.child = child
        self.pid = child.pid

    def tell(self, letter: str) -> list[str]:
        """Sends a letter; returns the answer's lines without the last."""
        assert self.child.stdin and self.child.stdout
        self.child.stdin.write(letter)
        self.child.stdin.flush()
        lines = []
        while (line := self.child.stdout.readline().strip()) != "end":
            assert line, "the program has ended"
            lines.append(line)
        return lines

    def figures(self, letter: str = "s") -> dict[str, int]:
        """The library's own figures, by 'group.name' and by 'class SIZE name'."""
        return {name: int(value) for name, _, value in (line.rpartition(" ") for line in self.tell(letter))}

    def end(self) -> int:
        assert self.child.stdin
        self.child.stdin.close()
        return self.child.wait(10)


@contextmanager
def running(
    program: Path,
    *arguments: str,
    more: dict[str, str] | None = None,
    preload: Path | None = LIBRARY,
    user: int | None = None,
) -> Iterator[Running]:
    environment = clean_environment(**(more or {}))
    if preload:
        environment["LD_PRELOAD"] = str(preload)
    with killed_after(
        [str(program), *arguments],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        user=user,
        group=user,
        extra_groups=None if user is None else [],
    ) as child:
        assert child.stdout
        assert child.stdout.readline() == "ready\n"
        yield Running(child)


def as_user(user: int, function: Callable[[], str]) -> str:
    """The result of a function run as another user, which only root can become."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)  # a fork of a process with threads may wait for one that it does not have
        try:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            os.write(writing, function().encode())
        except BaseException as error:
            os.write(writing, f"{type(error).__name__}: {error}".encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as answer:
        return answer.read()
