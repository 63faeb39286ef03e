"""The check, in the first run of each configuration, that the allocator under test serves the program."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from hakmem_lab.measure import one_run, results, server_runner
from hakmem_lab.measure.allocator_check import NOT_LOADED, AllocatorCheck, Image, NotServed
from hakmem_lab.target.allocators import Allocator
from hakmem_lab.target.configuration import find_allocator
from tests.conftest import Hakmem, killed_after
from tests.test_server_runner import is_free

# Allocates and frees for some tenths of a second, or a given number of times; with -DOWN it has its own malloc, with
# -DPOOL it maps its memory itself.
SOURCE = r"""
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#ifdef OWN
static char area[1 << 26];
static size_t at;
void *malloc(size_t n) { at = at + n + 31 & (1 << 25) - 1 & ~15ul; *(size_t *)(area + at) = n; return area + at + 16; }
void free(void *p) { (void)p; }
void *calloc(size_t a, size_t b) { return memset(malloc(a * b), 0, a * b); }
void *realloc(void *p, size_t n) { void *q = malloc(n); return p ? memcpy(q, p, n) : q; }
#endif
int main(int count, char **arguments)
{
    static void *volatile kept[256];
    long rounds = count > 1 ? atol(arguments[1]) : 20000000;
    for (long i = 0; i < rounds; i++) {
        free(kept[i & 255]);
        kept[i & 255] = malloc(i % 200 + 1);
    }
#ifdef POOL
    char *all = mmap(0, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 100; i++)
        memset(all, i, 64 << 20);
#endif
    puts("n=1");
    return 0;
}
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The variants of the program that can be built here."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "p.c").write_text(SOURCE)
    forms = {"plain": [], "static": ["-static"], "own": ["-DOWN"], "pool": ["-DPOOL"]}
    found = {}
    for name, flags in forms.items():
        command = ["gcc", "-O1", "-fno-builtin", "-w", *flags, "-o", str(folder / name), str(folder / "p.c")]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            found[name] = str(folder / name)
    return found


def refused(hakmem: Hakmem, *program: str, sides: tuple[str, str] = ("", "refill_count=64")) -> str:
    common = ["--a", sides[0], "--b", sides[1], "--runs", "2", "--no-noise-check"]
    return " ".join(hakmem("ab", *common, "--", *program, status=1).stderr.split())


def test_a_static_program_behind_a_script(
    hakmem_library: Path, hakmem: Hakmem, programs: Mapping[str, str], tmp_path: Path
) -> None:
    if "static" not in programs:
        pytest.skip("no static C library")
    said = refused(hakmem, "sh", "-c", f"{programs['static']}; true")
    assert f"A in round 0: HAKMEM served no block of {programs['static']} (" in said or "B in round 0" in said
    assert "it is linked statically" in said and "--anyway" in said
    common = ["--a", "", "--b", "refill_count=64", "--runs", "2", "--no-noise-check", "--anyway", "--out", "r.jsonl"]
    hakmem("ab", *common, "--", programs["static"], status=None)  # which is refused by its file without --anyway
    assert len(results.load(tmp_path / "r.jsonl").rounds()) == 2 and results.load(tmp_path / "r.jsonl").head.plan.anyway


def test_a_program_from_which_the_variable_is_taken(
    hakmem_library: Path, hakmem: Hakmem, programs: Mapping[str, str]
) -> None:
    for program in (["env", "-u", "LD_PRELOAD", programs["plain"]], ["sh", "-c", f"env -i {programs['plain']}; true"]):
        said = refused(hakmem, *program, sides=("alloc:system", ""))
        assert f"B in round 0: HAKMEM served no block of {programs['plain']}" in said
        assert "LD_PRELOAD does not reach it" in said


def test_a_malloc_of_its_own(hakmem_library: Path, hakmem: Hakmem, programs: Mapping[str, str]) -> None:
    # Its malloc is fast: as many turns as leave time to look on a busy machine, too.
    said = refused(hakmem, programs["own"], "400000000")
    assert f"HAKMEM served no block of {programs['own']}" in said and "it has a malloc of its own" in said


def test_compare_sweep_and_tune_ask_too(
    hakmem_library: Path, hakmem: Hakmem, programs: Mapping[str, str], tmp_path: Path
) -> None:
    program = ["--", "env", "-u", "LD_PRELOAD", programs["plain"]]
    done = hakmem("compare", "--alloc", "system,hakmem", "--runs", "2", "--junit", "c.xml", *program, status=1)
    assert "hakmem failed: HAKMEM served no block of" in " ".join(done.stdout.split())
    assert "system is the only one that ran" in done.stdout
    assert '<error message="ERROR: HAKMEM served no block of' in (tmp_path / "c.xml").read_text()
    done = hakmem("sweep", "--option", "refill_count", "--values", "16,64", "--runs", "2", *program, status=1)
    assert "HAKMEM served no block of" in done.stderr
    done = hakmem("tune", "--budget", "5m", "--options", "refill_count", *program, status=1)
    assert "with the default settings: HAKMEM served no block of" in done.stderr


def watched(allocator: Allocator, program: list[str]) -> tuple[AllocatorCheck, one_run.Outcome]:
    with AllocatorCheck(allocator) as watch:
        outcome = one_run.run(one_run.resolve(program), allocator.environment())
    return watch, outcome


def test_a_program_that_is_served_is_not_refused(hakmem_library: Path, programs: Mapping[str, str]) -> None:
    """Neither its helpers nor short-lived children matter."""
    ours = find_allocator("hakmem", hakmem_library)
    for program in (
        [programs["plain"]],
        ["sh", "-c", f"{programs['plain']}; env -u LD_PRELOAD sleep 0.2"],
        ["sh", "-c", "sleep 0.3"],
        ["true"],
        [sys.executable, "-c", "sum(range(10**7))"],
    ):
        watch, outcome = watched(ours, program)
        watch.require_served(outcome.cpu_s)
        assert watch.remark() == ""
    watch, outcome = watched(ours, [programs["plain"], "200000000"])  # leaves time to look on a busy machine, too
    (image,) = [each for each in watch.images.values() if each.program == programs["plain"]]
    assert image.loaded and image.served and 0 < image.cpu_s <= outcome.cpu_s + 0.02


def test_a_program_that_sleeps_is_known_as_well(hakmem_library: Path) -> None:
    watch, outcome = watched(find_allocator("hakmem", hakmem_library), ["env", "-u", "LD_PRELOAD", "sleep", "0.4"])
    with pytest.raises(NotServed, match=r"HAKMEM served no block of \S*sleep"):
        watch.require_served(outcome.cpu_s)


def test_an_allocator_inside_is_said(hakmem_library: Path, hakmem: Hakmem, programs: Mapping[str, str]) -> None:
    common = ["--a", "", "--b", "refill_count=64", "--runs", "2", "--no-noise-check"]
    done = hakmem("ab", *common, "--", programs["pool"], "1000", status=None)
    said = " ".join(done.stderr.split())
    assert f"MiB of {programs['pool']}, which seems to have its own allocator" in said
    assert said.count("seems to have") == 1 and done.returncode in (0, 3, 4)


def test_another_allocator(hakmem_library: Path, programs: Mapping[str, str], tmp_path: Path) -> None:
    """Its counters are unknown, but not whether it is loaded, also under another name of its file."""
    (tmp_path / "libother.so").symlink_to(hakmem_library)
    other = Allocator("other", "peer", tmp_path / "libother.so")
    watch, outcome = watched(other, [programs["plain"]])
    watch.require_served(outcome.cpu_s)
    assert [each.served for each in watch.images.values() if each.program == programs["plain"]] == [True]
    with pytest.raises(NotServed, match=r"other served no block of .*: it has a malloc of its own"):
        watch, outcome = watched(other, [programs["own"]])
        watch.require_served(outcome.cpu_s)


def test_the_client_of_a_server_is_no_part_of_it(hakmem_library: Path, programs: Mapping[str, str]) -> None:
    """It runs on the system's malloc, and may take far more processor time."""
    ours = find_allocator("hakmem", hakmem_library)
    port = next(each for each in random.sample(range(12_000, 32_000), 1000) if is_free(each))
    server = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port)]
    with AllocatorCheck(ours) as watch:
        server_runner.run(server, ours.environment(), programs["plain"], f"port:{port}", 30.0, None, watch.without)
    assert len(watch.without) == 1
    assert not any(each.program == programs["plain"] for each in watch.images.values())
    watch.require_served(0.0)


def test_how_a_run_is_weighed(hakmem_library: Path) -> None:
    def image(cpu_s: float, lasts_s: float = 1.0, **more: object) -> Image:
        return Image("p", 0.0, 0.0, ("why", "advice"), last=lasts_s, cpu_s=cpu_s, **more)  # type: ignore[arg-type]

    def is_refused(used_s: float, *images: Image) -> bool:
        watch = AllocatorCheck(find_allocator("hakmem", hakmem_library))
        watch.images = {(number, "p"): each for number, each in enumerate(images)}
        try:
            watch.require_served(used_s)
        except NotServed:
            return True
        return False

    served = {"loaded": True, "served": True}
    assert is_refused(1.0, image(0.125)) and not is_refused(1.0, image(0.124))  # the rest was not seen
    assert is_refused(1.0, image(0.6), image(0.4, **served)) and not is_refused(1.0, image(0.4), image(0.6, **served))
    early = image(0.9, lasts_s=0.02)
    assert is_refused(1.0, early)
    early.obstacle = NOT_LOADED  # which a look in the middle of exec would say as well
    assert not is_refused(1.0, early)
    idle = image(1.0, loaded=True)
    idle.obstacle = None
    assert not is_refused(1.0, idle)  # its figures could not be read
    idle.without_s = 0.9
    assert is_refused(1.0, idle) and not is_refused(1.2, idle)  # it may have asked for a block after the last look
    assert is_refused(0.01, image(0.001)) and not is_refused(0.01, image(0.001), image(0.001, **served))
    assert not is_refused(0.0) and not is_refused(1.0)


def test_what_cannot_be_seen_is_passed_over(hakmem_library: Path) -> None:
    watch = AllocatorCheck(find_allocator("hakmem", hakmem_library))
    with killed_after(["sleep", "30"], start_new_session=True) as child:
        time.sleep(0.1)
        watch.look(child.pid)
        assert [each.obstacle is not None for each in watch.images.values()] == [True]
    with pytest.raises(Exception, match="there is no process"):
        watch.look(child.pid)
    watch.look(os.getpid())  # a child before it executes another program is this one still
    assert len(watch.images) == 1
