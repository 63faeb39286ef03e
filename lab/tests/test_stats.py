"""hakmem stats: files and processes as tables, a ledger that adds up, and patience with newer libraries."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hakmem_lab.inspect import snapshot_tables, snapshots
from hakmem_lab.inspect.snapshots import Snapshot
from hakmem_lab.pages import inputs
from hakmem_lab.terminal.errors import LabError
from tests.inside import hakmem, running

MIB = 1 << 20


def snapshot(**more: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "pid": 1,
        "classes": [
            {
                "size": 64,
                "spans": 1,
                "live": 10,
                "cached": 20,
                "refilled": 60,
                "drained": 30,
                "collected": 0,
                "misses": 3,
                "outbox": 0,
            },
            {
                "size": 4096,
                "spans": 9,
                "live": 7,
                "cached": 1,
                "refilled": 8,
                "drained": 0,
                "collected": 0,
                "misses": 1,
                "outbox": 0,
            },
        ],
        "remote": {"frees": 5, "published": 1},
        **more,
    }


def ledger(**parts: int) -> dict[str, int]:
    whole = dict.fromkeys(snapshots.PARTS, 0) | parts
    return {**whole, "sum": sum(whole.values()), "rss": sum(whole.values()), "unread_spans": 0}


def show(each: Any) -> str:
    console = Console(width=100, record=True, file=io.StringIO())
    snapshot_tables.show(console, each)
    return console.export_text()


def test_file_of_the_library(program: Path, tmp_path: Path) -> None:
    file = tmp_path / "s.json"
    with running(program, more={"HAKMEM_STATS": f"json:{file}", "HAKMEM_STATS_LEDGER": "1"}) as process:
        process.tell("a")
        assert process.end() == 0
    done = hakmem("stats", file)
    assert done.returncode == 0 and done.stderr == ""
    for word in ("Size classes", "remote", "superslabs", "Resident memory", "not_ours", "the kernel says"):
        assert word in done.stdout
    again = hakmem("stats", file, "--json")
    assert json.loads(again.stdout) == json.loads(file.read_text())


def test_running_process(program: Path) -> None:
    with running(program, more={"HAKMEM_STATS": "exact", "HAKMEM_LATENCY": "1"}) as process:
        process.tell("a")
        done = hakmem("stats", process.pid)
        as_json = hakmem("stats", process.pid, "--json")
        inside = process.figures()
    assert done.returncode == 0, done.stderr
    assert "hit rate" in done.stdout and "Slow paths" in done.stdout and "Resident memory" in done.stdout
    found = json.loads(as_json.stdout)
    row = next(row for row in found["classes"] if row["size"] == 64)
    assert row["live"] == inside["class 64 live"] and row["mallocs"] == inside["class 64 mallocs"] >= 100
    assert sum(found["latency_malloc"]["buckets"]) > 0


def test_newer_fields_are_shown_and_break_nothing(tmp_path: Path) -> None:
    newer = snapshot(
        version=2,
        warm_pool={"hits": 95, "misses": 5, "prefilled": 12},
        tiers={"hot": 3, "draining": 1},
        notes={"nested": {"deep": 1}, "text": "x"},
        latency_remote={"sum": 10, "buckets": [0, 1, 2]},
        ledger=ledger(live=MIB, guard_pages=4096),
    )
    newer["classes"][0]["guarded"] = 77
    file = tmp_path / "newer.json"
    file.write_text(json.dumps(newer))
    done = hakmem("stats", file)
    assert done.returncode == 0
    assert "version 2" in done.stderr
    for word in ("warm_pool", "prefilled 12", "95.00 %", "tiers", "guarded", "77", "guard_pages"):
        assert word in done.stdout, word


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "it is empty"),
        ("{", "is not a snapshot"),
        ("[1, 2]", "is not a snapshot"),
        ('{"version": "x"}', "version"),
        ("# TYPE hakmem_remote_frees counter\n", "OpenMetrics"),
        ("hakmem: statistics\n", "the text of HAKMEM_STATS=1"),
    ],
)
def test_wrong_files(content: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text(content)
    done = hakmem("stats", file)
    assert done.returncode == 1 and said in done.stderr.replace("\n", " ") and "HAKMEM_STATS=json" in done.stderr


def test_devices_are_not_read() -> None:
    """/dev/zero has no end."""
    for read in (snapshots.from_file, inputs.read):
        with pytest.raises(LabError, match="/dev/null: it is a device"):
            read(Path("/dev/null"))


def test_missing_file() -> None:
    with pytest.raises(LabError, match="No such file"):
        snapshots.load("no/such/file")


@pytest.mark.parametrize(
    "sizes", [[1], [1, 1, 1], [0, 5, 0], [999, 1, 1, 1], [3, 3, 3, 3, 3, 3, 3], [10**15, 1, 7 * 10**14]]
)
@pytest.mark.parametrize("width", [1, 7, 72])
def test_the_bar_adds_up(sizes: list[int], width: int) -> None:
    found = snapshot_tables.shares(sizes, width)
    assert sum(found) == width
    assert all(abs(cells - size * width / sum(sizes)) < 1 for cells, size in zip(found, sizes, strict=True))
    assert snapshot_tables.shares([0, 0], width) == [0, 0]


def test_the_ledger_shows_every_part_and_their_sum() -> None:
    found = Snapshot.model_validate(snapshot(ledger=ledger(live=30 * MIB, empty=10 * MIB)))
    said = show(snapshot_tables.ledger(found))
    assert "30.0 MiB" in said and "75.0 %" in said and "25.0 %" in said and "40.0 MiB" in said
    assert said.count("█" * 72) == 1
    assert snapshot_tables.ledger(Snapshot.model_validate(snapshot())) is None


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"live": 10 * MIB, "empty": 50 * MIB}, ("50.0 MiB", "empty", "HAKMEM_RETURN")),
        ({"live": 10 * MIB, "cached": 20 * MIB}, ("20.0 MiB", "caches", "HAKMEM_THREAD_BUDGET", "64 bytes")),
        ({"live": 10 * MIB, "free_in_slabs": 20 * MIB}, ("20.0 MiB", "no option", "4096 bytes")),
        ({"live": 10 * MIB, "free_in_slabs": 60 * MIB}, ("60.0 MiB", "hardened", "HAKMEM_RETURN")),
        ({"live": 10 * MIB, "frontier_slack": 20 * MIB}, ("ends of slabs", "HAKMEM_REFILL_COUNT")),
        ({"live": 1000 * MIB, "empty": 1 * MIB}, ("Nothing to speak of", "live blocks")),
        ({"not_ours": 1000 * MIB, "empty": 1 * MIB}, ("Nothing to speak of", "outside of HAKMEM")),
    ],
)
def test_one_sentence_on_what_pins(parts: dict[str, int], words: tuple[str, ...]) -> None:
    raw = snapshot(ledger=ledger(**parts))
    raw["classes"][1]["pinned"] = 5 * MIB
    raw["classes"][0]["cached"] = 10**6
    sentence = snapshots.what_pins(Snapshot.model_validate(raw))
    assert sentence is not None and sentence.count(". ") == 0
    for word in words:
        assert word in sentence


def test_options_that_are_named_exist() -> None:
    """The sentences name options that the library has."""
    import re

    from hakmem_lab.target import libhakmem
    from tests.inside import LIBRARY

    source = Path(snapshots.__file__).read_text()
    known = {option.variable for option in libhakmem.options(LIBRARY).values()} | {"HAKMEM_STATS"}
    assert set(re.findall(r"HAKMEM_[A-Z]\w+", source)) <= known


def test_hit_rates() -> None:
    assert snapshots.hit_rate({"mallocs": 100, "misses": 7}) == pytest.approx(0.93)
    assert snapshots.hit_rate({"misses": 7}) is None
    assert snapshots.pairs({"hits": 9, "misses": 1, "warm_hits": 1, "warm_misses": 3, "odd_hits": 5}) == {
        "hit rate": 0.9,
        "warm": 0.25,
    }


def test_latency_bounds() -> None:
    assert snapshot_tables.below([0, 0, 50, 49, 1], 0.5) == "4 ns"
    assert snapshot_tables.below([0, 0, 50, 49, 1], 0.99) == "8 ns"
    assert snapshot_tables.below([0, 0, 0, 0, 1], 0.5) == "longer"
    assert snapshot_tables.below([0, 0], 0.5) == ""
