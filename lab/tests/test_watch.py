"""hakmem watch: rates that match the changes exactly, and an end when the process ends."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from hakmem_lab.inspect.sampler import Sampler, line_of
from hakmem_lab.terminal.errors import LabError
from tests.conftest import killed_after
from tests.inside import LIBRARY, clean_environment, hakmem, running


def test_rates_are_what_has_happened(program: Path) -> None:
    with running(program, more={"HAKMEM_STATS": "exact"}) as process:
        process.tell("a")
        watch = Sampler(process.pid)
        before = process.figures()
        for letter in "aaara":
            process.tell(letter)
        after = process.figures()
        watch.step()
        found = watch.as_json()
    row = next(row for row in found["rates"]["classes"] if row["size"] == 64)
    for name in ("misses", "refilled", "collected", "mallocs", "frees"):
        moved = after[f"class 64 {name}"] - before[f"class 64 {name}"]
        assert round(row[name] * found["seconds"]) == moved, name
    assert round(row["mallocs"] * found["seconds"]) == 400
    assert round(found["rates"]["remote"]["frees"] * found["seconds"]) == 50
    assert found["snapshot"]["ledger"]["sum"] > 0
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(watch.frame(10))
    said = console.export_text()
    assert "hit rate" in said and "Resident memory" in said and str(process.pid) in said and "remote.frees" in said


def test_nothing_happens(program: Path) -> None:
    with running(program) as process:
        done = hakmem("watch", process.pid, "--once", "--interval", "0.1")
    assert done.returncode == 0
    assert "No blocks moved" in done.stdout and "Resident memory" in done.stdout


def test_lines_for_scripts(program: Path) -> None:
    with running(program) as process:
        done = hakmem("watch", process.pid, "--json", "--count", "3", "--interval", "0.05")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0 and len(lines) == 3
    assert {line["pid"] for line in lines} == {process.pid}
    assert all(line["seconds"] > 0 for line in lines)
    assert lines[0]["time"] < lines[1]["time"] < lines[2]["time"]


def test_the_process_ends_meanwhile(program: Path) -> None:
    with (
        running(program) as process,
        killed_after(
            [sys.executable, "-m", "hakmem_lab", "watch", str(process.pid), "--json", "--interval", "0.05"],
            env=clean_environment(HAKMEM_LIBRARY=str(LIBRARY)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as watching,
    ):
        assert watching.stdout and watching.stdout.readline()
        assert process.end() == 0
        _, said = watching.communicate(timeout=60)
    assert watching.returncode == 0
    assert f"process {process.pid} has ended" in said.replace("\n", " ")


def test_control_c_ends_the_view(program: Path) -> None:
    with (
        running(program) as process,
        killed_after(
            [sys.executable, "-m", "hakmem_lab", "watch", str(process.pid), "--json", "--interval", "0.05"],
            env=clean_environment(HAKMEM_LIBRARY=str(LIBRARY)),
            stdout=subprocess.PIPE,
            text=True,
        ) as watching,
    ):
        assert watching.stdout and watching.stdout.readline()
        watching.send_signal(signal.SIGINT)
        assert watching.wait(60) == 0
        assert process.tell("a") == []  # goes on as if nothing had been


def test_the_program_is_not_stopped(program: Path) -> None:
    """Reading has no effect: the figures are the same before and after many samples."""
    with running(program) as process:
        process.tell("s")
        before = process.figures()
        watch = Sampler(process.pid)
        for _ in range(20):
            watch.step()
        after = process.figures()
    moving = {"process.minor_faults", "process.peak_rss_bytes"}
    assert {k: v for k, v in before.items() if k not in moving} == {k: v for k, v in after.items() if k not in moving}


def test_another_program_takes_its_place() -> None:
    with killed_after(
        ["sh", "-c", "echo ready; read line; exec env -u LD_PRELOAD cat"],
        env=clean_environment(LD_PRELOAD=str(LIBRARY)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin and child.stdout and child.stdout.readline() == "ready\n"
        watch = Sampler(child.pid)
        child.stdin.write("go\nword\n")
        child.stdin.flush()
        assert child.stdout.readline() == "word\n"
        with pytest.raises(LabError):
            watch.step()


def test_lines_over_time() -> None:
    assert line_of([0, 0]) == "▁▁"
    assert line_of([0, 50, 100]) == "▁▄█"


BUSY = """
import random, threading
def work():
    held = []
    while True:
        held.append(bytes(random.randrange(600, 60000)))
        if len(held) > 500:
            del held[::2]
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
print('ready', flush=True)
input()
"""


def test_a_process_with_busy_threads() -> None:
    """Figures that change while they are read stay consistent: counters only grow, the ledger is close to the
    kernel's."""
    with killed_after(
        [sys.executable, "-c", BUSY],
        env=clean_environment(LD_PRELOAD=str(LIBRARY), PYTHONMALLOC="malloc"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout and child.stdout.readline() == "ready\n"
        watch = Sampler(child.pid)
        for _ in range(20):
            before = {row["size"]: row["refilled"] for row in watch.now.snapshot.classes}
            watch.step()
            after = {row["size"]: row["refilled"] for row in watch.now.snapshot.classes}
            assert all(after[size] >= count for size, count in before.items())
            ledger = watch.now.snapshot.group("ledger")
            assert abs(ledger["sum"] - ledger["rss"]) <= ledger["rss"] * 0.2
        assert watch.now.snapshot.group("remote")["heaps"] >= 3
