"""Recordings: their size, completeness between full samples, a bound, a full disk, and their verdict."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hakmem_lab.inspect import background_recorder, recording_file
from hakmem_lab.inspect.snapshots import Snapshot
from hakmem_lab.pages import inputs, inside
from hakmem_lab.pages.inputs import Look, Recording
from tests.conftest import Hakmem, files_of_at_most
from tests.pages import LEDGER, figures

MIB = 1 << 20


def snapshots(count: int) -> Iterator[dict[str, Any]]:
    """Samples of a heap of 100 MiB with little change."""
    now = figures()
    now["map"] = [
        {"kind": "in_slabs", "slabs": 32, "spans": [[each, 1, 64, 500, 1024] for each in range(32)], "dirty": 0}
        for _ in range(52)
    ]
    for place in range(count):
        now["classes"][place % 3]["misses"] += 7
        now["remote"]["frees"] = place
        if place == 5:
            now["classes"].append({"size": 32, "live": 1})
        if place == 9:
            now["classes"].pop(0)
            del now["bytes"]["mapped"]
        yield copy.deepcopy(now)


def recorder(path: Path, most: int = recording_file.MOST_BYTES) -> recording_file.Recorder:
    path.write_bytes(recording_file.head())
    return recording_file.Recorder(path, most)


def write(path: Path, count: int, most: int = recording_file.MOST_BYTES) -> list[dict[str, Any]]:
    """Writes a recording with a sample per second; returns the samples."""
    into, seen = recorder(path, most), []
    for place, each in enumerate(snapshots(count)):
        into.add({"pid": 7, "time": 1000.0 + place, "snapshot": each}, place == 0)
        seen.append(each)
    return seen


def read(path: Path) -> Recording:
    found = inputs.read(path).content
    assert isinstance(found, Recording)
    return found


def test_every_look_comes_back(tmp_path: Path) -> None:
    seen = write(tmp_path / "r.jsonl", 150)
    found = read(tmp_path / "r.jsonl").looks
    assert [bool(each.snapshot.map) for each in found] == [place % 64 == 0 for place in range(150)]
    for place, look in enumerate(found):
        assert look.time == 1000.0 + place
        there, wanted = look.snapshot.model_dump(exclude={"map"}, exclude_none=True), seen[place]
        del wanted["map"]
        for each in (there, wanted):
            each["classes"].sort(key=lambda row: row["size"])
        assert there == wanted
    rows = {row["size"]: row["misses"] for row in (found[3].rates or {})["classes"]}
    assert rows == {16: 7, 64: 0, 512: 0, 4096: 0}
    assert found[0].rates is None


def test_a_look_is_a_difference(tmp_path: Path) -> None:
    seen = write(tmp_path / "r.jsonl", 128)
    whole = sum(len(json.dumps(each)) for each in seen)
    assert (tmp_path / "r.jsonl").stat().st_size * 20 < whole


def test_no_rate_leads_from_one_program_to_the_next(tmp_path: Path) -> None:
    into = recorder(tmp_path / "r.jsonl")
    for place, each in enumerate(snapshots(4)):
        into.add({"pid": 7, "time": float(place), "snapshot": each}, place in (0, 2))
    found = read(tmp_path / "r.jsonl").looks
    assert [each.rates is None for each in found] == [True, False, True, False]
    assert found[2].snapshot.map


def test_the_file_is_bounded_and_covers_all_of_the_time(tmp_path: Path) -> None:
    path, most = tmp_path / "r.jsonl", 200_000
    into = recorder(path, most)
    for place, each in enumerate(snapshots(2000)):
        if place % into.spread == 0:
            into.add({"pid": 7, "time": float(place), "snapshot": each}, place == 0)
        assert path.stat().st_size <= most
    assert into.spread > 1
    found = read(path).looks
    times = [each.time for each in found]
    assert times[0] == 0.0 and times[-1] >= 2000 - 2 * into.spread
    assert max(b - a for a, b in itertools.pairwise(times)) <= into.spread
    assert found[-1].snapshot.group("remote")["frees"] == times[-1]
    assert not list(tmp_path.glob("*.part"))


def test_what_was_written_before_the_disk_was_full_is_read(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    into = recorder(path)
    with files_of_at_most(70_000), pytest.raises(OSError, match="too large"):
        for place, each in enumerate(snapshots(1000)):
            into.add({"pid": 7, "time": float(place), "snapshot": each})
    with files_of_at_most(path.stat().st_size):  # not a byte more
        into.problem("the recording ends early: no space left")
    found = read(path)
    assert len(found.looks) > 10 and found.problem == "the recording ends early: no space left"
    assert found.problem in inside.recording_verdict("it", found).sentences


def test_a_full_disk_in_mid_recording_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(recording_file.head())

    def full(*_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(background_recorder, "_record", full)
    background_recorder._look(1, path, 1.0)
    assert json.loads(path.read_text())["problem"] == "the recording ends early: No space left on device"


def test_a_disk_that_is_full_from_the_start_is_said(hakmem_library: Path, hakmem: Hakmem) -> None:
    done = hakmem("run", "--sample", "/dev/full", "--", "true", status=125)
    assert "/dev/full: No space left on device" in done.stderr


def test_a_long_problem_keeps_the_first_lines_length() -> None:
    for said in ("", "x" * 1000, "é" * 1000, '"\\' * 500):
        line = recording_file.head(said)
        assert len(line) == recording_file.HEAD_BYTES and line.endswith(b"\n")
        assert said.startswith(json.loads(line)["problem"])


def look(at: float, **parts: int) -> Look:
    """A sample with this much memory in MiB, and the rest live."""
    now = figures()
    now["ledger"] = {name: parts.get(name, 0) * MIB for name in LEDGER}
    now["ledger"]["rss"] = sum(now["ledger"].values())
    del now["map"]
    return Look(time=at, snapshot=Snapshot.model_validate(now))


def test_the_verdict_is_of_the_peak_and_of_the_steady_part() -> None:
    looks = [look(0.0, live=1), look(1.0, live=50)]
    looks += [look(2.0 + place, live=100 + place % 3, cached=30) for place in range(20)]
    looks += [look(22.0, live=150, free_in_slabs=90), look(23.0, live=5, empty=80)]
    said = inside.recording_verdict("it", Recording(looks))
    assert said.figure == "1.0 MiB to 240.0 MiB resident in 23.0 s"
    assert said.sentences[0].startswith("24 samples. The peak, after 22.0 s, is 240.0 MiB: 90.0 MiB are free blocks")
    assert said.sentences[1].startswith("Steady from 2.0 to 21.0 s at 131.0 MiB: 30.0 MiB lie ready")
    assert "empty" not in " ".join(said.sentences)


def test_what_always_grows_is_not_steady() -> None:
    looks = [look(float(place), live=10 * 2**place) for place in range(12)]
    assert not inside.steady_part(looks)
    assert "never steady" in inside.recording_verdict("it", Recording(looks)).sentences[1]


@pytest.mark.parametrize("sizes", [[100, 105, 110, 111, 120, 100, 100], [100] * 5, [7, 100, 108, 99, 200, 90, 50]])
def test_the_steady_part_is_the_longest_of_all(sizes: list[int]) -> None:
    looks = [look(float(place), live=size) for place, size in enumerate(sizes)]
    found = inside.steady_part(looks)
    spans = [(a, b) for a in range(len(sizes)) for b in range(a, len(sizes))]
    steady = [b - a for a, b in spans if max(sizes[a : b + 1]) <= inside.STEADY * min(sizes[a : b + 1])]
    assert len(found) - 1 == max(steady)
