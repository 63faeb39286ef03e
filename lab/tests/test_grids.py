"""`hakmem sweep` and `hakmem compare` and their command lines, without running anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import typer

from hakmem_lab.commands import compare, sweep
from hakmem_lab.commands import options as opt
from hakmem_lab.experiment import interleaved
from hakmem_lab.measure.results import Experiment, Failure
from hakmem_lab.target import allocators, libhakmem
from hakmem_lab.terminal.errors import LabError
from tests.conftest import make_experiment


class Ran:
    """A finished session."""

    def __init__(self, made: Experiment, path: Path) -> None:
        self.experiment, self.path, self.ran = made, path, 0

    def run(self) -> None:
        self.ran += 1

    def __enter__(self) -> Ran:
        return self

    def __exit__(self, *_: object) -> None:
        return None


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Records the arguments with which experiments begin or resume, and conclude."""
    found: list[Any] = []
    session = Ran(make_experiment({"a": [1.0], "b": [1.0]}), tmp_path / "r.jsonl")

    def note(*given: Any, **named: Any) -> Ran:
        found.append((given, named))
        return session

    for name in ("begin", "resume"):
        monkeypatch.setattr(interleaved, name, note)
    for command in (sweep, compare):
        monkeypatch.setattr(command, "conclude", note)
    return found


def refused(run: Any) -> str:
    with pytest.raises(LabError) as caught:
        run()
    return caught.value.message


def test_what_a_sweep_begins_with(hakmem_library: Path, tmp_path: Path, begun: list[Any]) -> None:
    sweep.sweep(["p", "x"], ["HAKMEM_refill_count"], ["16, 64"], library=hakmem_library, out=tmp_path)
    ((kind, plan, metric, configurations, path), named), ((session, *rest), _) = begun
    assert (kind, plan.command, plan.runs, plan.warmup, plan.threshold) == ("sweep", ["p", "x"], 10, 1, 1.0)
    assert (metric.name, path.parent) == ("time", tmp_path) and not plan.noise_check
    labels = ["refill_count=32", "refill_count=16", "refill_count=64"]
    assert [each.label for each in configurations] == [each.text for each in configurations] == labels
    assert named == {"points": [{"refill_count": each} for each in ("32", "16", "64")]}
    assert session.ran == 1 and rest == [None, False, None]
    seeds = []
    for seed in (0, 9):
        sweep.sweep(["p"], ["refill_count"], ["16"], library=hakmem_library, seed=seed, timeout=3.0, metric="n=(.*)")
        seeds.append(begun[-2][0][1].seed)
        assert begun[-2][0][1].timeout_s == 3.0 and begun[-2][0][2].higher_is_better
    assert seeds == [0, 9]
    sweep.sweep(resume=tmp_path / "x.jsonl", page=tmp_path / "y", json=True)
    assert begun[-2][0] == (tmp_path / "x.jsonl", "sweep") and begun[-1][0][1:] == (tmp_path / "y", True, None)


def test_a_grid_is_every_combination(hakmem_library: Path) -> None:
    options = ["refill_count", "l2_ring_cap"]
    found, points = sweep.grid(options, ["16,32", "48,64"], "thp=never", hakmem_library)
    assert points == [{"refill_count": a, "l2_ring_cap": b} for a in ("32", "16") for b in ("48", "64")]
    assert [each.label for each in found] == [
        f"refill_count={p['refill_count']} l2_ring_cap={p['l2_ring_cap']}" for p in points
    ]
    assert [each.text for each in found] == [f"thp=never {each.label}" for each in found]
    for names, lists in (([], []), (options, ["1"]), ([*options, "thp"], ["1", "2", "3"]), (["thp"], [])):
        said = refused(lambda n=names, v=lists: sweep.grid(n, v, "", hakmem_library))
        assert said == f"{len(names)} times --option and {len(lists)} times --values"
    assert "only options of HAKMEM can be swept" in refused(
        lambda: sweep.grid(["thp"], ["never"], "alloc:system", hakmem_library)
    )
    assert refused(lambda: sweep.grid(["refill_cout"], ["1"], "", hakmem_library)).startswith("--option refill_cout")


def test_the_default_is_the_first_value(hakmem_library: Path) -> None:
    options = libhakmem.options(hakmem_library)
    assert sweep.axis_values(options["refill_count"], "16, 32 ,64") == ["32", "16", "64"]
    assert sweep.axis_values(options["refill_count"], "16,64") == ["32", "16", "64"]
    assert sweep.axis_values(options["preset"], "all_128,adaptive") == ["adaptive", "all_128"]
    assert sweep.axis_values(options["thp"], "never") == ["auto", "never"]
    for text in ("", " , ", "16,16"):
        assert refused(lambda t=text: sweep.axis_values(options["refill_count"], t)).startswith(f"--values {text}: ")


def test_what_a_comparison_begins_with(hakmem_library: Path, tmp_path: Path, begun: list[Any]) -> None:
    compare.compare(["p"], "system, hakmem,", ["refill_count=64"], library=hakmem_library, out=tmp_path)
    ((kind, plan, metric, columns, path), named), ((session, *rest), _) = begun
    assert (kind, plan.command, plan.runs, plan.warmup, metric.name) == ("compare", ["p"], 5, 1, "time")
    assert [each.label for each in columns] == ["system", "hakmem", "refill_count=64"]
    assert path.parent == tmp_path and named == {"drop_failures": True}
    assert session.ran == 1 and rest[0] is None and not rest[1].json
    assert rest[1].cases == ["a", "b"] and plan.retries is None
    compare.compare(["p"], "system,hakmem", seed=0, timeout=2.0, metric="n=(.*)", lower_is_better=True)
    given = begun[-2][0]
    assert (given[1].seed, given[1].timeout_s, given[2].higher_is_better) == (0, 2.0, False)
    compare.compare(resume=tmp_path / "x.jsonl", page=tmp_path / "y", json=True)
    assert begun[-2] == ((tmp_path / "x.jsonl", "compare"), {"drop_failures": True})
    assert begun[-1][0][1] == tmp_path / "y" and begun[-1][0][2].json


def test_which_allocators(hakmem_library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocators, "find_peers", lambda: {"jemalloc": hakmem_library, "mimalloc": None})
    found = compare.configurations("all", [], hakmem_library)
    assert [each.label for each in found] == ["system", "hakmem", "jemalloc"]
    assert refused(lambda: compare.configurations("system", [], None)) == "a comparison needs at least two allocators"
    assert refused(lambda: compare.configurations("system,hakmem,system", [], hakmem_library)) == "system: given twice"
    two = compare.configurations("hakmem", ["refill_count=64"], hakmem_library)
    assert [each.text for each in two] == ["alloc:hakmem", "refill_count=64"]


@pytest.mark.parametrize("failed", [False, True])
def test_the_end_of_a_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str], failed: bool) -> None:
    made = make_experiment({"a": [1.0, 1.1, 1.05], "b": [0.5, 0.5, 0.52], "c": [1.0] * 3})
    if failed:
        made.failures.append(Failure(round=1, label="c", problem="exit status 1", said="its words"))
        made.runs = [run for run in made.runs if run.label != "c"]
    made.failures.append(Failure(round=2, label="a", problem="exit status 7", said=""))  # and was repeated
    forms = {"junit": tmp_path / "v.xml", "markdown": tmp_path / "v.md", "csv": tmp_path / "v.csv"}
    for as_json in (True, False):
        session = Ran(made, tmp_path / "r.jsonl")
        try:
            compare.conclude(session, None, opt.Forms(dict(forms), True, as_json))  # type: ignore[arg-type]
            assert not failed
        except typer.Exit as end:
            assert failed and end.exit_code == 1
        said, err = capsys.readouterr()
        assert "::notice title=AHEAD%3A b::gain +10" in (err if as_json else said)
        if as_json:
            document = json.loads(said)
            assert [row["label"] for row in document["comparison"]["rows"]] == ["a", "b"] + ["c"] * (not failed)
            assert len(document["failures"]) == failed + 1 and set(document["files"]) == {"results", "page", *forms}
        else:
            assert "b is the fastest." in " ".join(said.split()) and "results: " in said
            assert ("exit status 1" in said) == failed
            assert "runs failed and was repeated, 1 of a: a in round 2, exit status 7." in " ".join(said.split())
    suites = ElementTree.parse(forms["junit"]).getroot()
    assert (suites.get("failures"), suites.get("errors")) == ("0", str(int(failed)))
    found = {(each.get("classname"), each.get("name")) for each in suites.iter("testcase")}
    assert found >= {("wall time, s", "c"), ("wall time, s", "b"), ("peak memory, MiB", "b")}
    text = forms["markdown"].read_text()
    assert text.startswith("### ERROR: " if failed else "### COMPARE: ") and ("its words" in text) == failed
    assert "| a | wall time, s | | |  | BASE |" in text and "\nb is the fastest. No allocator clearly takes" in text
    assert (tmp_path / "r.html").is_file()
    (tmp_path / "other.html").unlink(missing_ok=True)
    if not failed:
        plain = opt.Forms({}, False, True)
        compare.conclude(Ran(made, tmp_path / "r.jsonl"), tmp_path / "other.html", plain)  # type: ignore[arg-type]
        assert (tmp_path / "other.html").is_file()


def test_the_end_of_a_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = {f"cap={cap}": [seconds * each for each in (1.0, 1.001, 0.999)] for cap, seconds in ((48, 1.0), (8, 1.5))}
    made = make_experiment(values, points=[{"cap": "48"}, {"cap": "8"}])
    sweep.conclude(Ran(made, tmp_path / "r.jsonl"), None, True, None)  # type: ignore[arg-type]
    document = json.loads(capsys.readouterr().out)
    assert document["sweep"]["base"] == document["sweep"]["best"] == "cap=48"
    assert set(document["files"]) == {"results", "page"} and (tmp_path / "r.html").is_file()
    sweep.conclude(Ran(made, tmp_path / "r.jsonl"), tmp_path / "p.html", False, None)  # type: ignore[arg-type]
    said = capsys.readouterr().out
    assert (
        "gain over cap=48" in said
        and "page: " in " ".join(said.split())
        and "record:" not in said
        and (tmp_path / "p.html").is_file()
    )
