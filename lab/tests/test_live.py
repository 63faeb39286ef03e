"""Reading a running process from outside: the same figures as hak_stats_snapshot gives inside, field by field."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hakmem_lab.inspect import ledger
from hakmem_lab.inspect.live import Live, NotHakmem
from hakmem_lab.target import libhakmem
from hakmem_lab.terminal.errors import LabError
from tests.inside import LIBRARY, NOBODY, PROGRAM, as_user, clean_environment, compile_c, hakmem, running

# The kernel's figures, which the look itself changes.
MOVING = {"process.minor_faults", "process.peak_rss_bytes"}


def flat(snapshot: dict[str, Any]) -> dict[str, int]:
    """A snapshot with the names of Running.figures."""
    found = {
        f"{group}.{name}": value
        for group, figures in snapshot.items()
        if isinstance(figures, dict)
        for name, value in figures.items()
    }
    for row in snapshot["classes"]:
        found |= {f"class {row['size']} {name}": value for name, value in row.items()}
    return found


@pytest.mark.parametrize(
    "more",
    [{}, {"HAKMEM_STATS": "exact"}, {"HAKMEM_HARDEN": "1"}],
    ids=["", "exact", "hardened"],
)
def test_outside_is_inside(program: Path, more: dict[str, str]) -> None:
    with running(program, more=more) as process:
        for letter in "aaaraaf":
            process.tell(letter)
        process.tell("s")  # once for the output's own first pages
        outside = flat(Live(process.pid).snapshot())
        inside = process.figures()
    assert len(outside) > 50
    assert {
        name
        for name in inside
        if name.partition(".")[0] in ("remote", "system", "bytes", "superslabs", "huge", "total")
    } <= set(outside)
    assert ("calls.malloc" in outside) == ("HAKMEM_STATS" in more)
    different = {
        name: (value, inside[name]) for name, value in outside.items() if name not in MOVING and value != inside[name]
    }
    assert different == {}
    assert 0 < outside["process.minor_faults"] <= inside["process.minor_faults"]
    assert 0 < outside["process.peak_rss_bytes"] <= inside["process.peak_rss_bytes"] + (1 << 20)
    if "HAKMEM_HARDEN" not in more:  # blocks of another class then, with room for a seal
        assert outside["class 64 live"] >= 350
    assert inside["remote.frees"] == 50 and inside["huge.live"] == 1 and inside["huge.allocated"] == 2
    left_out = {
        name for name, value in inside.items() if name.startswith("class ") and name.endswith(" refilled") and value
    }
    assert left_out <= set(outside)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"HAKMEM_PROFILE": "1", "HAKMEM_PROFILE_INTERVAL": "1"},
        {"HAKMEM_SAMPLE_GUARDS": "1", "HAKMEM_SAMPLE_SLOTS": "4096"},
    ],
    ids=["", "profiled", "guarded"],
)
def test_ledger_is_that_of_inside(program: Path, more: dict[str, str]) -> None:
    with running(program, more=more) as process:
        for letter in "a" * 200 + "f" * 100:
            process.tell(letter)
        process.tell("l")
        live = Live(process.pid)
        snapshot = live.snapshot()
        assert ledger.add(live, snapshot)
        inside = process.figures("l")
    found = snapshot["ledger"]
    assert found["sum"] == sum(value for name, value in found.items() if name not in ("sum", "rss"))
    assert abs(found["sum"] - found["rss"]) <= found["rss"] * 0.03
    assert abs(found["rss"] - inside["ledger.rss"]) <= 64 << 10
    assert found["not_ours"] < 16 << 20
    for name in ("huge", "metadata", "empty", "not_ours"):
        assert abs(found[name] - inside[f"ledger.{name}"]) <= 64 << 10, name
    free = inside["ledger.free_in_slabs"] + inside["ledger.frontier_slack"]
    assert abs(found["free_in_slabs"] - free) <= 64 << 10
    for name in ("live", "cached"):
        assert abs(found[name] - inside[f"ledger.{name}"]) <= 64 << 10, name
    assert found["huge"] == 2 << 20  # the touched part of 3 MiB


def test_options_are_those_of_hak_option_next(program: Path) -> None:
    settings = {
        "HAKMEM_PRESET": "hot_512",
        "HAKMEM_TINY_UNIFIED_C3": "77",
        "HAKMEM_CONF": "purge_delay:5s",
        "HAKMEM_STATS": "exact",
    }
    with running(program, more=settings) as process:
        outside = Live(process.pid).options()
    inside = libhakmem.options(LIBRARY, clean_environment(**settings))
    assert outside == inside
    assert (outside["preset"].word, outside["preset"].origin) == ("hot_512", "variable")
    assert (outside["tiny_unified_c3"].value, outside["tiny_unified_c3"].origin) == (77, "variable")
    assert (outside["tiny_unified_c2"].value, outside["tiny_unified_c2"].origin) == (512, "preset")
    assert (outside["purge_delay"].value, outside["purge_delay"].origin) == (5000, "conf")
    assert outside["refill_count"].origin == "default"


def test_capacities_follow_the_options(program: Path) -> None:
    with running(program, more={"HAKMEM_TINY_UNIFIED_C3": "40", "HAKMEM_RING_ADAPT": "0"}) as process:
        by_size = {size: (now, most) for size, now, most in Live(process.pid).capacities()}
    assert by_size[64] == (40, 40)


def test_library_linked_into_a_static_program(tmp_path: Path) -> None:
    archive = LIBRARY.parent / "libhakmem.a"
    static = compile_c(tmp_path, PROGRAM, "-static", "-Wl,-u,malloc", str(archive))
    with running(static, preload=None) as process:
        process.tell("a")
        live = Live(process.pid)
        assert live.file == str(static)
        outside, inside = flat(live.snapshot()), process.figures()
    assert outside["class 64 live"] == inside["class 64 live"] >= 100
    assert outside["total.refilled"] == inside["total.refilled"]


def test_stripped_library(tmp_path: Path, program: Path) -> None:
    stripped = tmp_path / "libhakmem.so"
    subprocess.run(["strip", "-o", str(stripped), str(LIBRARY)], check=True)
    with running(program, preload=stripped) as process:
        assert Live(process.pid).file == str(stripped)


def test_deleted_library(tmp_path: Path, program: Path) -> None:
    copy = tmp_path / "libhakmem.so"
    shutil.copy(LIBRARY, copy)
    with running(program, preload=copy) as process:
        copy.unlink()
        try:
            assert Live(process.pid).file == f"{copy} (deleted)"
        except LabError as error:  # only root may open such files
            assert os.geteuid() != 0 and "deleted or replaced" in error.message


def test_not_on_hakmem(program: Path) -> None:
    with running(program, preload=None) as process:
        with pytest.raises(NotHakmem, match="does not run on HAKMEM"):
            Live(process.pid)
        done = hakmem("watch", process.pid, "--once")
    assert done.returncode == 1
    assert "does not run on HAKMEM" in done.stderr and "hakmem run" in done.stderr


def test_no_such_process() -> None:
    done = hakmem("stats", 4194304 + 1)
    assert done.returncode == 1 and "there is no process" not in done.stdout
    assert "there is no process" in done.stderr


def refusal(pid: int) -> str:
    try:
        Live(pid)
    except LabError as error:
        return f"{error.message} | {error.advice}"
    return "read"


def test_process_of_another_user(program: Path) -> None:
    with running(program) as process:
        assert refusal(process.pid) == "read"
        said = as_user(NOBODY, lambda: refusal(process.pid))
    assert f"it belongs to user {os.getuid()}, and you are user {NOBODY}" in said
    assert "sudo" in said


def readable_by_all(folder: Path) -> Path:
    """A copy of the library that another user can load."""
    folder.chmod(0o755)
    copy = folder / "libhakmem.so"
    shutil.copy(LIBRARY, copy)
    copy.chmod(0o755)
    return copy


def test_process_that_is_not_dumpable(program: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    if os.geteuid() != 0:
        with running(program, "hidden") as process:
            said = refusal(process.pid)
    else:
        copy = readable_by_all(tmp_path_factory.mktemp("library"))
        with running(program, "hidden", preload=copy, user=NOBODY) as process:
            said = as_user(NOBODY, lambda: refusal(process.pid))
        with running(program, preload=copy, user=NOBODY) as process:
            assert as_user(NOBODY, lambda: refusal(process.pid)) == "read"
    assert "it is not dumpable" in said and "as root" in said


def test_root_reads_what_is_not_dumpable(program: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    with running(program, "hidden") as process:
        assert refusal(process.pid) == "read"
