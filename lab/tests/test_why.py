"""`hakmem why` tells the six reasons for a process's memory apart, in programs that have just one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hakmem_lab.inspect import why
from hakmem_lab.inspect.live import Live
from tests.inside import compile_c, hakmem, running

SOURCE = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct node { struct node *next; char body[1000]; };
static struct node *list;
static void *kept[1 << 16], *volatile sink;

static void *full(size_t n) { return memset(malloc(n), 1, n); }

static struct node *add(struct node *before)
{
    struct node *new = full(sizeof *new);
    new->next = before;
    return new;
}

static pthread_barrier_t filled;

static void *thread(void *unused)   /* frees what fills its cache, and waits */
{
    static __thread void *mine[1024];
    for (int size = 1024; size <= 32768; size *= 2)
        for (int i = 0, n = (1 << 20) / size; i < 2 * n; i++)
            if (i < n)
                mine[i] = full((size_t)size);
            else
                free(mine[i - n]);
    pthread_barrier_wait(&filled);
    pause();
    return unused;
}

int main(int argc, char **argv)
{
    const char *what = argv[argc - 1];
    setvbuf(stdout, NULL, _IONBF, 0);
    for (int i = 0, n = strcmp(what, "live") ? 8000 : 32000; i < n; i++)
        list = add(list);
    if (strcmp(what, "fragmentation") == 0) {
        for (int i = 0; i < 40000; i++)
            kept[i] = full(1280);
        for (int i = 0; i < 40000; i++)
            if (i % 12)
                free(kept[i]);
    }
    if (strcmp(what, "retention") == 0) {
        for (int i = 0; i < 200; i++)
            kept[i] = full(200 << 10);
        for (int i = 0; i < 200; i++)
            free(kept[i]);
    }
    pthread_barrier_init(&filled, NULL, 2);
    if (strcmp(what, "cache") == 0)
        for (int i = 0; i < 12; i++) {  /* one by one: what several had at once would stay as unused memory */
            pthread_t id;
            pthread_create(&id, NULL, thread, NULL);
            pthread_barrier_wait(&filled);
        }
    if (strcmp(what, "elsewhere") == 0)
        memset(mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1, 64 << 20);
    usleep(300000);
    puts("ready");
    for (;;) {
        if (strcmp(what, "growth") == 0)
            list = add(list);
        if (strcmp(what, "leak") == 0)
            sink = full(1000), sink = NULL;
        usleep(strcmp(what, "leak") == 0 || strcmp(what, "growth") == 0 ? 200 : 50000);
    }
}
"""
REASONS = {
    "growth": "profile",
    "leak": "leaks",
    "fragmentation": "waste",
    "retention": "HAKMEM_RETURN",
    "cache": "HAKMEM_THREAD_BUDGET",
    "elsewhere": "smaps",
    "live": "cold",
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(tmp_path_factory.mktemp("why"), SOURCE)


@pytest.mark.parametrize("reason", REASONS)
def test_tells_reasons_apart(program: Path, reason: str) -> None:
    kept = {"HAKMEM_PURGE_DELAY": "3600s", "HAKMEM_BACKGROUND": "0"} if reason in ("retention", "cache") else {}
    with running(program, reason, more=kept) as child:
        done = hakmem("why", child.pid, "--for", "2s" if reason in ("growth", "leak") else "500ms", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["word"] == reason, found
    assert REASONS[reason] in found["next"] and "resident" in found["said"]


def test_a_leak_that_has_ended_is_seen_by_its_blocks() -> None:
    still = {0: 0, 1024: 50 << 20}
    ledger = {"rss": 60 << 20, "live": 50 << 20, "not_ours": 5 << 20}
    course = why.Course([0.0, 1.0], [ledger, ledger], [still, still])
    assert why.judge(course, (30_000, 30 << 20), 1).word == "leak"
    assert why.judge(course, (3, 3000), 1).word == "live"


def test_code_and_stacks_of_a_small_process_are_no_reason() -> None:
    still = {1024: 7 << 20}
    for elsewhere, word in ((3 << 20, "live"), (5 << 20, "elsewhere")):
        ledger = {"rss": (7 << 20) + elsewhere, "live": 7 << 20, "not_ours": elsewhere}
        assert why.judge(why.Course([0.0, 1.0], [ledger] * 2, [still] * 2), (0, 0), 1).word == word


def test_an_interrupt_before_the_first_look_says_nothing(monkeypatch: pytest.MonkeyPatch, program: Path) -> None:
    def interrupted(_: Live) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Live, "snapshot", interrupted)
    with running(program, "live") as child, pytest.raises(KeyboardInterrupt):
        why.look(Live(child.pid), 1.0)


def test_words(program: Path) -> None:
    with running(program, "live") as child:
        said = hakmem("why", child.pid, "--for", "200ms").stdout
    assert said.startswith("live: ") and "\nNext: hakmem waste" in said
