"""`hakmem waste` finds planted waste of each kind, and none where there is none; of a live process, of its core, by
stack, in hardened mode; and says why it cannot look."""

from __future__ import annotations

import json
import mmap
import os
import shutil
import signal
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hakmem_lab.inspect.live import MAGIC, VERSION, Live
from hakmem_lab.inspect.live_blocks import Heap
from hakmem_lab.inspect.waste import KINDS, find
from hakmem_lab.target import process
from tests import planted
from tests.inside import LIBRARY, NOBODY, as_user, compile_c, hakmem, running

# What each kind of planted waste could save per piece, by kind.
PLANTED: dict[str, dict[str, float]] = {
    "zero": {"zero": 160},
    "equal": {"equal": 96},
    "tail": {"tail": 8192 - 3072},
    "joined": {"joined": 8},
    "sparse": {"sparse": 0.9 * 1280},
    "nothing": {},
    "fields": {},
    "structs": {},
    "nodes": {},
    "children": {},
    "rounding": {},
    "smallest": {},
    "untouched": {},
}
ERROR = 0.02  # of each kind; sparse spans have unused ends of their own
SMALL = 100 << 10  # what the start and the last spans may add


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(tmp_path_factory.mktemp("planted"), planted.SOURCE)


def of(pid: int, *arguments: str) -> dict[str, Any]:
    done = hakmem("waste", "--json", *arguments, pid)
    assert done.returncode == 0 and not done.stderr, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def agrees(saved: dict[str, int], expected: dict[str, float]) -> None:
    for kind in KINDS:
        error = (0.1 if kind == "sparse" else ERROR) * expected.get(kind, 0) + SMALL
        assert abs(saved[kind] - expected.get(kind, 0)) <= error, (kind, saved, expected)


@pytest.mark.parametrize("kind", PLANTED)
def test_finds_what_was_planted_and_nothing_else(program: Path, kind: str) -> None:
    count = 4 if kind == "untouched" else 10_000
    with running(program, kind, str(count)) as child:
        found = of(child.pid)
    agrees(found["saved"], {name: count * each for name, each in PLANTED[kind].items()})
    assert found["live_blocks"] >= count / 10 and found["unread"] == found["in_hand"] == 0
    if kind == "untouched":
        assert found["live_bytes"] - found["resident"] == pytest.approx(28 << 20, rel=0.01)
    for name, most in (("rounding", 127), ("smallest", 15)):  # of 1030 bytes 121 are added
        assert kind != name or found["rounding_most"] == pytest.approx(count * most, rel=0.05)


def test_finds_all_kinds_together_and_the_same_in_a_stopped_process(program: Path) -> None:
    kinds = ("zero", "equal", "tail", "joined", "sparse", "nothing")
    words = [word for kind in kinds for word in (kind, "4000")]
    with running(program, *words) as child:
        found, stopped = of(child.pid), of(child.pid, "--snapshot")
        assert process.status_field(child.pid, "State").startswith("S")
        os.kill(child.pid, signal.SIGSTOP)
        assert of(child.pid, "--snapshot") == found
        assert process.status_field(child.pid, "State").startswith("T")
    agrees(found["saved"], {k: 4000 * each for kind in kinds for k, each in PLANTED[kind].items()})
    assert found == stopped


def test_hardened_mode_knows_requests(program: Path) -> None:
    with running(program, "rounding", "5000", "equal", "2000", more={"HAKMEM_HARDEN": "1"}) as child:
        found = of(child.pid)
    assert found["saved"]["rounding"] >= 5000 * 122 and found["rounding_most"] == 0
    agrees({**found["saved"], "rounding": 0, "sparse": 0}, {"equal": 2000 * 96})


def test_looking_neither_maps_nor_writes(program: Path) -> None:
    with running(program, "untouched", "8", "tail", "500") as child:
        faults, resident = process.minor_faults(child.pid), process.kilobytes(child.pid, "VmRSS")
        of(child.pid)
        assert process.minor_faults(child.pid) == faults
        assert abs(process.kilobytes(child.pid, "VmRSS") - resident) < 1 << 20  # the kernel's count is inexact


@pytest.fixture
def sampled(program: Path) -> Iterator[dict[str, Any]]:
    profile = {"HAKMEM_PROFILE": "1:/dev/null", "HAKMEM_PROFILE_INTERVAL": "4096"}
    with running(program, "zero", "20000", "tail", "2000", "rounding", "5000", more=profile) as child:
        yield of(child.pid)


def test_names_the_stacks_of_a_profile(sampled: dict[str, Any]) -> None:
    by_function = {each["frames"][0]["name"]: each for each in sampled["stacks"]}
    for function, kind, expected in (
        ("zeros", "zero", 20_000 * 160),
        ("vector", "tail", 2000 * 5120),
        ("made", "rounding", 5000 * 122),
    ):
        stacks = [each[kind] for each in sampled["stacks"] if each["frames"][0]["name"] == function and kind in each]
        total, error = sum(each["bytes"] for each in stacks), sum(each["error"] ** 2 for each in stacks) ** 0.5
        assert abs(total - expected) <= 4 * error and 0 < error < 0.2 * expected, (function, total, error)
    assert "pair" not in by_function
    agrees(sampled["saved"], {"zero": 20_000 * 160, "tail": 2000 * 5120})


CPLUSPLUS = r"""
#include <cstdio>
#include <unistd.h>
struct Shape { virtual ~Shape() {} long x = 1; };
namespace shop { struct Order : Shape { long body[12] = {}; }; }
int main()
{
    char letter;
    for (int i = 0; i < 3000; i++)
        new shop::Order;
    puts("ready"), fflush(stdout);
    return read(0, &letter, 1);
}
"""


def test_names_classes_by_their_vtables(tmp_path: Path) -> None:
    program = tmp_path / "shop"
    subprocess.run(["g++", "-x", "c++", "-", "-o", str(program)], input=CPLUSPLUS, text=True, check=True)
    with running(program) as child:
        found = of(child.pid)
        shown = hakmem("waste", child.pid, "--page", tmp_path / "waste.html")
    orders = next(each for each in found["groups"] if each["type"] == "shop::Order")
    assert (orders["blocks"], orders["size"]) == (3000, 112) and orders["saved"]["equal"] == 2999 * 112
    assert "shop::Order" in shown.stdout and "shop::Order" in (tmp_path / "waste.html").read_text()


def test_a_process_that_changes_is_read_nevertheless(tmp_path: Path) -> None:
    source = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void *churn(void *unused)
{
    static __thread void *kept[4096];
    unsigned seed = 1;
    for (;;) {
        unsigned i = rand_r(&seed) % 4096, n = 1u << rand_r(&seed) % 22;
        free(kept[i]), kept[i] = malloc(n), memset(kept[i], 1, n < 5000 ? n : 5000);
    }
    return unused;
}
int main(void)
{
    pthread_t id;
    pthread_create(&id, NULL, churn, NULL), pthread_create(&id, NULL, churn, NULL);
    puts("ready"), fflush(stdout), getchar();
}
"""
    with running(compile_c(tmp_path, source)) as child:
        for _ in range(5):
            of(child.pid)


def test_a_core_says_the_same(program: Path, tmp_path: Path) -> None:
    if not shutil.which("gcore"):
        pytest.skip("gdb is not installed")
    with running(program, "zero", "3000", "equal", "3000", "tail", "300", "joined", "1000") as child:
        live = of(child.pid)
        subprocess.run(["gcore", "-o", tmp_path / "core", str(child.pid)], capture_output=True, check=True)
        core = tmp_path / f"core.{child.pid}"
        done = hakmem("waste", "--json", core)
    assert done.returncode == 0, done.stderr
    dead = json.loads(done.stdout)
    assert dead["saved"]["tail"] == pytest.approx(300 * 1024, rel=0.1)  # a page of zeros may never have been touched
    for kind in ("zero", "equal", "joined"):
        assert abs(dead["saved"][kind] - live["saved"][kind]) <= 0.02 * live["saved"][kind] + 8192, (dead, live)
    assert dead["live_blocks"] == live["live_blocks"]
    content = bytearray(core.read_bytes())
    at = content.find(struct.pack("=II", MAGIC, VERSION))
    content[at + 4 : at + 8] = struct.pack("=I", VERSION + 1)
    core.write_bytes(content)
    other = hakmem("waste", core)
    assert other.returncode == 1 and "whose tables have version" in other.stderr and "Traceback" not in other.stderr


def test_refuses_what_it_may_not_read_or_does_not_know(program: Path, tmp_path: Path) -> None:
    with running(program, "nothing", "10") as child:

        def look() -> str:
            try:
                return str(find(Heap(Live(child.pid))).total)
            except Exception as error:
                return str(error)

        assert "it belongs to user" in as_user(NOBODY, look)
    ended = hakmem("waste", child.pid)
    assert ended.returncode == 1 and "there is no process" in ended.stderr and "Traceback" not in ended.stderr
    # That this process reads the library's file does not make it one that runs on HAKMEM.
    with LIBRARY.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ):
        other = hakmem("waste", os.getpid())
    assert other.returncode == 1 and "does not run on HAKMEM" in other.stderr
    (tmp_path / "text").write_text("no core")
    assert "is not a core dump" in hakmem("waste", tmp_path / "text").stderr
