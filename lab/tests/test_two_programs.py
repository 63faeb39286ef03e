"""`hakmem ab` of two programs, by instructions and by memory over time."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("scipy")

from hakmem_lab.children import shutdown
from hakmem_lab.experiment import interleaved
from hakmem_lab.measure import one_run, results
from hakmem_lab.measure.one_run import Metric
from hakmem_lab.target.configuration import parse
from hakmem_lab.terminal.errors import LabError
from tests.inside import clean_environment, compile_c, hakmem

# ARGUMENTS: MiB to hold, milliseconds to hold them, turns of work.
SOURCE = r"""
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    size_t size = (size_t)atol(argv[1]) << 20;
    volatile long x = 0;
    char *p = memset(malloc(size + 1), 1, size + 1);
    for (long i = 0; i < atol(argv[3]) * FACTOR; i++)
        x += i;
    usleep((unsigned)atol(argv[2]) * 1000);
    return argc != 4 || p == NULL;
}
"""
COUNTED = pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("two")
    old, new = (
        compile_c(folder, SOURCE.replace("FACTOR", factor), name=name) for factor, name in (("2", "old"), ("1", "new"))
    )
    return old, new


def verdict(tmp_path: Path, *arguments: object) -> dict[str, Any]:
    done = hakmem("ab", "--json", "--out", tmp_path, *arguments)
    assert done.returncode in (0, 3, 4), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@COUNTED
def test_instructions_of_two_programs_are_exact(two: tuple[Path, Path], tmp_path: Path) -> None:
    old, new = two
    words = ["--metric", "instructions", "--runs", "3", "--warmup", "0"]
    found = verdict(tmp_path, "--a", f"cmd:{old}", "--b", f"cmd:{new}", *words, "--", "1", "0", "2000000")
    text = json.dumps(found)
    assert '"GO"' in text
    values: dict[str, list[float]] = {}
    for each in results.load(next(tmp_path.glob("*.jsonl"))).runs:
        values.setdefault(each.label, []).append(each.value)
    assert max(values["A"]) / min(values["A"]) < 1.001 and 1.8 < values["A"][0] / values["B"][0] < 2.05


def test_memory_over_time(two: tuple[Path, Path]) -> None:
    metric = Metric.parse("gib_seconds")
    command = [str(two[0]), "128", "800", "0"]
    found = metric.of(one_run.run(command, clean_environment(), beside=one_run.MemoryOverTime))
    assert 0.8 * 128 / 1024 <= found <= 128 / 1024 * 10  # the machine may be busy, and let it hold them for longer
    with pytest.raises(LabError, match="not of a server"):
        metric.of(one_run.run(["/bin/true"], clean_environment()))


def test_memory_over_time_is_a_sum_of_products(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([0.0, 2.0, 5.0])
    monkeypatch.setattr(one_run, "time", SimpleNamespace(monotonic=lambda: next(moments)))
    monkeypatch.setattr(shutdown, "descendants", lambda leader: [leader])
    monkeypatch.setattr(Path, "read_text", lambda _: "9 1000 0")
    watcher = one_run.MemoryOverTime(7)
    watcher._look(), watcher._look()
    assert watcher.gib_seconds == pytest.approx(5 * 1000 * one_run.PAGE / (1 << 30))


def test_a_program_of_its_own(two: tuple[Path, Path]) -> None:
    found = parse(f"cmd:{two[0]}", "A")
    assert found.command(["x", "1"]) == [str(two[0]), "1"] and found.allocator.name == "system"
    assert parse(f"alloc:system cmd:'{two[0]} 5'", "A").command(["x"]) == [str(two[0]), "5"]
    assert parse("", "A").command(["x", "1"]) == ["x", "1"]
    with pytest.raises(LabError, match="names no program"):
        parse("cmd:", "A")
    assert interleaved.results_path("ab", None).suffix == ".jsonl"


def test_the_first_program_is_the_command_if_none_is_given(two: tuple[Path, Path], tmp_path: Path) -> None:
    old, new = (f"cmd:'{each} 1 0 1000'" for each in two)
    verdict(tmp_path, "--a", old, "--b", new, "--runs", "2", "--warmup", "0", "--no-noise-check")
    missing = hakmem("ab", "--a", "cmd:./nothing", "--b", new)
    assert missing.returncode == 1 and "no such program" in missing.stderr


@COUNTED
def test_counters_that_do_not_work_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    one_run.counter.cache_clear()
    monkeypatch.setattr(one_run, "COUNTERS", ((("false",), "x"), *one_run.COUNTERS))
    assert one_run.counter()[0][0] in ("perf", "valgrind")
    one_run.counter.cache_clear()
    monkeypatch.setattr(one_run, "COUNTERS", ((("false",), "x"),))
    with pytest.raises(LabError, match="needs valgrind"):
        one_run.counter()
    one_run.counter.cache_clear()
