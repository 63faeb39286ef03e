"""What `hakmem waste`, `cold`, `why` and `worth` print of results that are built here: tables, documents, sentences."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from inspect import Parameter, signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

pytest.importorskip("scipy")

from hakmem_lab.commands import block, cold, options, run, waste, why, worth
from hakmem_lab.experiment import worth as bounds
from hakmem_lab.inspect import cold as colds
from hakmem_lab.inspect import live, live_blocks
from hakmem_lab.inspect import waste as wastes
from hakmem_lab.inspect import why as reasons
from hakmem_lab.inspect.cold import Cold
from hakmem_lab.inspect.waste import KINDS, Group, Waste
from hakmem_lab.profile import by_stack
from hakmem_lab.profile.by_stack import Stacks
from hakmem_lab.profile.heap_dumps import Estimate
from hakmem_lab.profile.symbols import Frame
from hakmem_lab.terminal import console
from hakmem_lab.terminal.console import make_console

MIB = 1 << 20
STACK, OTHER = (Frame("made"), Frame("main")), (Frame("grown"), Frame("main"))
STACKS: Stacks = {
    STACK: {"zero": Estimate(1, MIB, 9 * 1024.0**2), "tail": Estimate(1, 1024.0, 0)},
    OTHER: {"zero": Estimate(2, 3 * MIB, 0)},
}
COLD_STACKS: Stacks = {
    STACK: {"cold": Estimate(1, MIB, 1024.0**2), "age": Estimate(1, 90.0 * MIB, 0)},
    OTHER: {"age": Estimate(1, 5.0, 0)},
}


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Standard output."""
    file = io.StringIO()
    for module in (waste, cold):
        monkeypatch.setattr(module, "out", make_console(file, 200))
    monkeypatch.setattr(console, "out", make_console(file, 200))
    return file


def rows(file: io.StringIO) -> list[str]:
    """The lines without frames, each with single spaces."""
    lines = (" ".join(line.split()) for line in file.getvalue().splitlines())
    return [line for line in lines if line.strip("─ ")]


def wasted() -> Waste:
    groups = [
        Group(64, "[bold]", 1000, 64_000, {"zero": 2048, "equal": 1024}, "'a', 3 times"),
        Group(0, "other data", 2, 3 * MIB, {"tail": MIB}),
        Group(128, "used", 5, 640),
        Group(256, "last", 1, 256, {"tail": 16}),
    ]
    saved = dict.fromkeys(KINDS, 0) | {"zero": 2048, "equal": 1024, "tail": MIB + 16}
    return Waste(groups, saved, 4 * MIB, 1008, 3 * MIB, 5, 6, 7)


def test_tables_of_waste(shown: io.StringIO) -> None:
    waste.show(wasted(), STACKS, 2)
    assert rows(shown) == [
        "by kind",
        "kind what it is bytes",
        "zero blocks of zeros only 2 KiB",
        "equal copies: blocks with the contents of another 1 KiB",
        "tail unused ends of blocks 1.0 MiB",
        "by what the blocks hold",
        "blocks of they hold blocks bytes could be saved as",
        "64 B [bold] 1,000 62 KiB 3 KiB zero 2 KiB, equal 1 KiB ('a', 3 times)",
        "huge other data 2 3.0 MiB 1.0 MiB tail 1.0 MiB",
        by_stack.TITLE,
        "could be saved as allocated by",
        "3.0 MiB ± 0 B zero 3.0 MiB grown < main",
        "1.0 MiB ± 3 KiB zero 1.0 MiB, tail 1 KiB made < main",
    ]


def test_without_a_profile_there_are_no_stacks(shown: io.StringIO) -> None:
    waste.show(wasted(), {}, 15)
    assert by_stack.TITLE not in shown.getvalue() and "used" not in [row.split()[2] for row in rows(shown)[7:]]
    cold.show(Cold(1.0), {}, 15)
    assert by_stack.TITLE not in shown.getvalue()


def test_the_document_of_waste() -> None:
    found = waste.as_document(wasted(), STACKS, "it")
    assert list(found) == [
        "target",
        "saved",
        "live_bytes",
        "live_blocks",
        "resident",
        "rounding_most",
        "unread",
        "in_hand",
        "total",
        "groups",
        "stacks",
    ]
    assert [found[name] for name in ("target", "live_bytes", "live_blocks", "resident")] == [
        "it",
        4 * MIB,
        1008,
        3 * MIB,
    ]
    assert [found[name] for name in ("rounding_most", "unread", "in_hand", "total")] == [5, 6, 7, MIB + 3088]
    assert found["groups"][0] == {
        "size": 64,
        "type": "[bold]",
        "blocks": 1000,
        "bytes": 64_000,
        "total": 3072,
        "saved": {"zero": 2048, "equal": 1024},
        "example": "'a', 3 times",
    }
    assert [each["frames"][0]["name"] for each in found["stacks"]] == ["made", "grown"]
    assert found["stacks"][0]["zero"] == {"bytes": MIB, "error": 3072}


def unused() -> Cold:
    found = Cold(2.0, 10 * MIB, 4 * MIB, 5 * MIB, 1, 2, 3, 4, 0.5, 6)
    found.used = [(0.1, MIB), (2.0, 6 * MIB)]
    found.classes = [(8192, 4 * MIB, 3 * MIB), (0, 0, MIB), (64, MIB, 0), (1024, MIB, 1024)]
    return found


def test_tables_of_cold(shown: io.StringIO) -> None:
    cold.show(unused(), COLD_STACKS, 2)
    found = rows(shown)
    assert found[:8] == [
        "by size of block",
        "blocks of bytes cold %",
        "8,192 B 4.0 MiB 3.0 MiB 75",
        "huge 0 B 1.0 MiB",
        "pages that were used",
        "within bytes",
        "0.1 s 1.0 MiB",
        "2.0 s 6.0 MiB",
    ]
    assert " ".join(found[8:-2]) == by_stack.TITLE
    assert found[-2:] == ["cold mean age, s allocated by", "1.0 MiB ± 1 KiB 90 made < main"]


def test_the_document_of_cold() -> None:
    found = cold.as_document(unused(), COLD_STACKS, "it")
    figures = {
        "seconds": 2.0,
        "live_bytes": 10 * MIB,
        "cold_bytes": 4 * MIB,
        "cold_pages": 5 * MIB,
        "swapped": 1,
        "huge": 6,
    }
    figures |= {"drift": 2, "looks": 3, "unit": 4, "look_seconds": 0.5}
    assert {name: found[name] for name in figures} == figures and found["used"] == [(0.1, MIB), (2.0, 6 * MIB)]
    assert found["classes"][0] == {"size": 8192, "bytes": 4 * MIB, "cold": 3 * MIB} and len(found["stacks"]) == 2


def test_defaults() -> None:
    known = [signature(each).parameters for each in (why.why, waste.waste, cold.cold, worth.worth)]
    given = [{name: each.default for name, each in of.items() if each.default is not Parameter.empty} for of in known]
    nothing = {"as_json": False, "page": None}
    assert given[0] == {"time": "10s", "as_json": False}
    assert given[1] == {"snapshot": False, "top": 15, "file": None, **nothing}
    assert given[2] == {"time": "1m", "top": 15, **nothing}
    assert given[3] == {"runs": 5, "cpu": False, "seed": None, "timeout": None, "library": None, **nothing}


class Told:
    """What a command gives to told()."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.said, self.document, self.page = list[str](), dict[str, Any](), ""
        self.drawn: Any = None
        monkeypatch.setattr(options, "told", self)

    def __call__(self, said: Sequence[str], document: Any, as_json: bool, page: Any = None, draw: Any = None) -> bool:
        self.said, self.document = list(said), json.loads(json.dumps(document()))
        if page is not None:
            draw(page)
            self.page = page.read_text()
        return not as_json


def test_why_looks_then_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    told, still = Told(monkeypatch), {1024: 50 * MIB}
    ledger = {"rss": 60 * MIB, "live": 50 * MIB}
    course, asked = reasons.Course([0.0, 1.5, 3.0], [{}, {}, ledger], [still] * 3), list[float]()

    def look(process: Any, seconds: float) -> reasons.Course:
        asked.append(seconds)
        return course

    monkeypatch.setattr(live, "Live", lambda pid: SimpleNamespace(pid=pid))
    monkeypatch.setattr(reasons, "look", look)
    monkeypatch.setattr(reasons, "lost", lambda process: (7, 40 * MIB))
    why.why(7, "2m")
    assert asked == [120.0] and told.said[0].startswith("leak: 60.0 MiB are resident") and "leaks" in told.said[1]
    assert told.said[1].startswith("Next: ") and told.document["word"] == "leak"
    facts = {"ledger": ledger, "live": [50 * MIB] * 3, "unreferenced": [7, 40 * MIB], "seconds": [0.0, 1.5, 3.0]}
    assert {name: told.document[name] for name in facts} == facts


@pytest.mark.parametrize("samples", [None, SimpleNamespace()])
def test_waste_walks_and_draws(
    samples: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shown: io.StringIO
) -> None:
    told, allocator = Told(monkeypatch), SimpleNamespace(name="it", pid=0)
    monkeypatch.setattr(block, "open_target", lambda target, file: allocator)
    monkeypatch.setattr(live_blocks, "Heap", lambda allocator: SimpleNamespace(samples=samples))
    monkeypatch.setattr(wastes, "find", lambda heap: wasted())
    monkeypatch.setattr(by_stack, "estimates", lambda *_: STACKS)
    waste.waste("7", page=tmp_path / "page.html")
    assert told.said == wastes.says(wasted(), "it") and "[bold]" in told.page and "could be saved" in shown.getvalue()
    assert len(told.document["stacks"]) == (2 if samples else 0) and (by_stack.TITLE in shown.getvalue()) == bool(
        samples
    )
    shown.truncate(0)
    waste.waste("7", as_json=True)
    assert "could be saved" not in shown.getvalue()


@pytest.mark.parametrize("of", [None, False, True])
def test_cold_watches_and_draws(of: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shown: io.StringIO) -> None:
    told, asked, given = Told(monkeypatch), list[float](), list[Any]()
    found = unused()
    found.samples = {"cold": 2.0, "age": 30.0} if of else {}

    def watch(process: Any, seconds: float) -> tuple[Cold, Any]:
        asked.append(seconds)
        return found, SimpleNamespace(samples=None if of is None else "samples")

    def estimates(process: Any, samples: str, kinds: Any) -> Any:
        given.append(kinds)
        return COLD_STACKS

    monkeypatch.setattr(live, "Live", lambda pid: SimpleNamespace(pid=pid, name="it"))
    monkeypatch.setattr(colds, "watch", watch)
    monkeypatch.setattr(by_stack, "estimates", estimates)
    cold.cold(7, "30s", page=tmp_path / "page.html")
    assert asked == [30.0] and told.said == colds.says(found, "it") and "Cold memory in it" in told.page
    assert given == ([{"cold": 2.0, "age": 60.0}] if of else []) and len(told.document["stacks"]) == (2 if of else 0)
    assert "by size of block" in shown.getvalue()
    shown.truncate(0)
    cold.cold(7, as_json=True)
    assert asked[1] == 60.0 and "by size of block" not in shown.getvalue()


def test_worth_measures_and_draws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told, asked = Told(monkeypatch), list[Any]()
    rounds = [bounds.Round(1.0, (1, 1.01, 1.02, 1.04), 1_000_000, 0.1, 0.01)] * 3
    found = bounds.Worth(rounds, bounds.Memory(100, 60, 6, 10))

    def measure(*given: Any) -> bounds.Worth:
        asked.extend(given)
        return found

    def prepare(program: list[str], *more: object) -> tuple[list[str], dict[str, str]]:
        assert more == (None, [], None, None, [], False, Path("/h.so"))
        return program, {"A": "1"}

    monkeypatch.setattr(run, "prepare", prepare)
    monkeypatch.setattr(bounds, "measure", measure)
    worth.worth(
        ["true", "1"], runs=4, cpu=True, seed=9, timeout=3.0, page=tmp_path / "page.html", library=Path("/h.so")
    )
    assert asked == [["true", "1"], {"A": "1"}, 4, 9, 3.0, True] and told.said == bounds.says(found)
    assert told.document["memory"] == {"resident": 100, "live": 60, "rounding": 6, "elsewhere": 10, "most_saved": 36}
    time = told.document["time"]
    assert [time["gain"], time["low"], time["high"]] == pytest.approx(found.bound()) and len(time["felt"]) == 3
    assert time["rounds"][0] == vars(rounds[0]) | {"delayed_s": [1, 1.01, 1.02, 1.04]}
    assert "What an allocator could gain for true 1" in told.page
    app = typer.Typer()
    worth.register(app)
    monkeypatch.setattr(run, "prepare", lambda *_: ([], {}))
    for rounds_, status in ((1, 2), (2, 0), (1000, 0), (1001, 2)):
        assert CliRunner().invoke(app, ["--runs", str(rounds_), "--", "true"]).exit_code == status
    asked.clear()
    assert CliRunner().invoke(app, ["--", "true"]).exit_code == 0 and (asked[2], asked[5]) == (5, False)
