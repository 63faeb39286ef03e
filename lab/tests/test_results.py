"""The results file of an experiment, field by field, and the errors of writing and reading it."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import re
import resource
import subprocess
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import psutil
import pytest
from pydantic import ValidationError

from hakmem_lab import __version__
from hakmem_lab.measure import results
from hakmem_lab.measure.one_run import Metric, Outcome
from hakmem_lab.measure.results import NOISE, Machine, MetricModel, Run, Series, Writer
from hakmem_lab.target import allocators, libhakmem
from hakmem_lab.target.configuration import parse
from hakmem_lab.terminal import extras
from hakmem_lab.terminal.errors import LabError
from tests.conftest import files_of_at_most, make_experiment


def test_a_run_has_all_of_its_outcome() -> None:
    outcome = Outcome(0, 1.5, 0.25, 0.125, 7 << 20, 11, 2, 5, "said", {"p50": 3.0})
    run = Run.of(4, 1, "B", 12.34567, 9.5, outcome)
    assert run.model_dump() == {
        "round": 4,
        "position": 1,
        "label": "B",
        "value": 9.5,
        "at": 12.346,
        "wall_s": 1.5,
        "cpu_user_s": 0.25,
        "cpu_system_s": 0.125,
        "peak_rss_bytes": 7 << 20,
        "minor_faults": 11,
        "major_faults": 2,
        "switches": 5,
        "quantiles": {"p50": 3.0},
    }


def test_metrics_are_written_and_read() -> None:
    for text, lower in (("time", False), ("rss", False), ("x=([0-9]+)", False), ("x=([0-9]+)", True)):
        metric = Metric.parse(text, lower)
        kept = MetricModel.of(metric)
        assert kept.metric() == metric and kept.unit == metric.unit
    titles = [
        MetricModel(name=name, higher_is_better=False, unit="").title for name in ("time", "cpu", "rss", "mix", "x")
    ]
    assert titles == ["wall time, s", "CPU time, s", "peak memory, MiB", "time and memory, √(s·MiB)", "x"]


def test_the_machine_is_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def first_line(path: str) -> str:
        asked.append(path)
        return "powersave" if path.endswith("scaling_governor") else "unknown"

    monkeypatch.setattr(allocators, "first_line", first_line)
    monkeypatch.setattr(allocators, "environment_facts", lambda: {"processor": "it"})
    here = Machine.here()
    assert asked == ["/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"]
    libc = os.confstr("CS_GNU_LIBC_VERSION")
    assert here.facts == {"processor": "it", "C library": libc, "frequency governor": "powersave"}
    assert here.cpus == len(os.sched_getaffinity(0)) and here.page_bytes == resource.getpagesize()
    assert here.memory_bytes == psutil.virtual_memory().total
    assert here.versions["python"] == ".".join(map(str, __import__("sys").version_info[:3]))
    assert here.versions["hakmem-lab"] == __version__
    libraries = ("numpy", "scipy", "plotly", "pydantic")
    assert {name: here.versions[name] for name in libraries} == {
        name: importlib.metadata.version(name) for name in libraries
    }
    assert set(here.versions) == {"python", "hakmem-lab", *libraries}
    monkeypatch.setattr(allocators, "first_line", lambda _: "unknown")
    monkeypatch.setattr(os, "confstr", lambda _: None)
    again = Machine.here()
    assert "frequency governor" not in again.facts and again.facts["C library"] == "unknown"
    monkeypatch.setattr(extras, "has", lambda name: name == "numpy")
    assert set(Machine.here().versions) == {"python", "hakmem-lab", "numpy"}


def test_a_series_says_which_build_it_was(hakmem_library: Path) -> None:
    found = Series.of(parse("refill_count=64", "B", hakmem_library), {"refill_count": "64"})
    library = hakmem_library.resolve()
    build = hashlib.sha256(library.read_bytes()).hexdigest()[:12]
    tree = libhakmem.source_tree()
    assert tree is not None
    relative = str(library.relative_to(tree)) if library.is_relative_to(tree) else str(library)
    assert (found.label, found.text, found.allocator) == ("B", "refill_count=64", "hakmem")
    assert found.shared_object == relative and found.digest == build
    assert found.description == f"{relative}, build {build}"
    assert found.settings == {"HAKMEM_REFILL_COUNT": "64"} and found.point == {"refill_count": "64"}
    system = Series.of(parse("alloc:system", "A", hakmem_library))
    assert (system.allocator, system.shared_object, system.digest, system.point) == ("system", None, "", {})
    assert system.description == allocators.describe(parse("alloc:system", "A", hakmem_library).allocator)


def test_paths_are_shown_from_the_tree(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(libhakmem, "source_tree", lambda: tmp_path)
    assert results.shown(tmp_path / "out" / "x.so") == "out/x.so"
    assert results.shown(Path("/elsewhere/x.so")) == "/elsewhere/x.so"
    monkeypatch.setattr(libhakmem, "source_tree", lambda: None)
    assert results.shown(tmp_path / "x.so") == str(tmp_path / "x.so")


def test_commits(tmp_path: Path) -> None:
    assert results.commit_of(None) == "" and results.commit_of(tmp_path) == ""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@x"]
    subprocess.run([*git, "init", "-q"], check=True)
    (tmp_path / "file").write_text("1")
    subprocess.run([*git, "add", "file"], check=True)
    subprocess.run([*git, "commit", "-qm", "one"], check=True)
    clean = results.commit_of(tmp_path)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    assert re.fullmatch(r"[0-9a-f]{7,}", clean) and head.startswith(clean)
    (tmp_path / "file").write_text("2")
    assert results.commit_of(tmp_path) == f"{clean}-dirty"


def test_now_is_now_in_whole_seconds_of_utc() -> None:
    found = results.now()
    assert found.tzinfo == timezone.utc and found.microsecond == 0
    assert timedelta(0) <= datetime.now(timezone.utc) - found < timedelta(seconds=60)


def refusal(caught: pytest.ExceptionInfo[LabError]) -> tuple[str, str | None]:
    return caught.value.message, caught.value.advice


def test_a_file_that_cannot_be_begun(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "x.jsonl"
    writer = Writer(path)
    writer.line("head", make_experiment({"A": [1.0]}).head)
    writer.close()
    assert len(path.read_text().splitlines()) == 1
    with pytest.raises(LabError) as caught:
        Writer(path)
    assert refusal(caught) == (f"cannot write {path}: File exists", "Choose another place with --out.")
    more = Writer(path, append=True)
    more.line("run", make_experiment({"A": [1.0]}).runs[0])
    more.close()
    assert len(results.load(path).runs) == 1


def test_a_file_that_cannot_be_continued(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = make_experiment({"A": [1.0] * 3})
    path = tmp_path / "x.jsonl"
    with files_of_at_most(100):
        writer = Writer(path)
        with pytest.raises(LabError) as caught:
            writer.line("head", made.head)
        writer.close()
    assert refusal(caught) == (f"cannot write {path}: File too large", "Choose another place with --out.")
    assert not path.exists()
    writer = Writer(path)
    writer.line("head", made.head)
    length = path.stat().st_size
    with files_of_at_most(length + 10):
        for run in made.runs:
            writer.line("run", run)
        assert writer.problem == f"cannot write {path}: File too large"
        writer.close()
    said = " ".join(capsys.readouterr().err.split())
    expected = f"cannot write {path}: File too large Later runs are not saved, but the verdict includes them."
    assert said.count(" ".join(expected.split())) == 1, said


def test_documents_that_are_no_experiment() -> None:
    made = json.loads(results.document(make_experiment({"A": [1.0]})))
    made["head"]["plan"]["seed"] = "none"
    made["runs"] = "none"
    with pytest.raises(LabError) as caught:
        results.from_document(json.dumps(made), "x.json")
    message, advice = refusal(caught)
    assert re.fullmatch(r"x\.json is not an experiment: head\.plan\.seed: Input should be a valid integer.*", message)
    assert advice == "Give a file that the lab wrote."
    made = json.loads(results.document(make_experiment({"A": [1.0]})))
    made["head"]["version"] = 2
    with pytest.raises(LabError) as caught:
        results.from_document(json.dumps(made), "x.json")
    assert refusal(caught) == ("x.json was written by another version of the lab", "This one reads version 1.")


def test_lines_that_are_no_experiment(tmp_path: Path) -> None:
    made = make_experiment({"A": [1.0, 2.0]})
    path = tmp_path / "x.jsonl"
    writer = Writer(path)
    writer.line("head", made.head)
    for run in made.runs:
        writer.line("run", run)
    writer.close()
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:-1], lines[-1][:40]]) + "\n")
    assert len(results.load(path).runs) == 1  # the last line was cut off
    path.write_text("\n".join([lines[0], lines[1][:40], lines[2]]) + "\n")
    with pytest.raises(LabError) as caught:
        results.load(path)
    message, advice = refusal(caught)
    assert message.startswith(f"{path}:2: not a line of an experiment: ") and "None" not in message
    assert advice == "Give a .jsonl file that the lab wrote."
    path.write_text("\n".join(lines[1:]) + "\n")
    with pytest.raises(LabError) as caught:
        results.load(path)
    assert refusal(caught) == (
        f"{path} does not begin with the head of an experiment",
        "Give a .jsonl file that the lab wrote.",
    )
    with pytest.raises(LabError) as caught:
        results.load(tmp_path / "none.jsonl")
    assert caught.value.message.startswith(f"cannot read {tmp_path / 'none.jsonl'}: ")
    assert caught.value.advice == "Give a .jsonl file that the lab wrote."


def test_a_line_that_is_cut_off_is_the_last_and_not_the_first(tmp_path: Path) -> None:
    made = make_experiment({"A": [1.0]})
    path = tmp_path / "x.jsonl"
    writer = Writer(path)
    writer.line("head", made.head)
    writer.line("run", made.runs[0])
    writer.close()
    head, run = path.read_text().splitlines()
    path.write_text(f"{head}\n{run[:40]}\n")
    assert results.load(path).runs == []
    path.write_text(head[:40] + "\n")
    with pytest.raises(LabError, match=":1: not a line of an experiment: ") as caught:
        results.load(path)
    wrong = {"type": "run", "data": {**made.runs[0].model_dump(), "round": "none", "switches": "many"}}
    with pytest.raises(ValidationError) as found:
        results._Line.model_validate(wrong)
    said = found.value.errors()
    assert said[0]["msg"] != said[-1]["msg"]
    path.write_text(f"{head}\n{json.dumps(wrong)}\n{run}\n")
    with pytest.raises(LabError) as caught:
        results.load(path)
    assert caught.value.message == f"{path}:2: not a line of an experiment: {said[0]['msg']}"


def test_labels_leave_the_noise_check_out() -> None:
    assert make_experiment({"A": [1.0], "B": [1.0], NOISE: [1.0], "C": [1.0]}).labels == ["A", "B", "C"]


def test_bounds_of_a_plan() -> None:
    plan = make_experiment({"A": [1.0]}).head.plan.model_dump()
    for wanted in ({"runs": 1, "warmup": 0}, {"runs": 9, "warmup": 3}):
        kept = results.Plan.model_validate({**plan, **wanted})
        assert (kept.runs, kept.warmup) == (wanted["runs"], wanted["warmup"])
    for wrong in ({"runs": 0}, {"warmup": -1}):
        with pytest.raises(ValidationError):
            results.Plan.model_validate({**plan, **wrong})
    assert results.Plan(command=["x"], typed="x", runs=1, seed=1).warmup == 1


def test_builds_are_told_of_our_libraries_alone(hakmem_library: Path) -> None:
    peer = parse(f"lib:{hakmem_library}", "A", hakmem_library).allocator
    for kind in ("peer", "floor"):
        other = replace(peer, kind=kind)
        assert results.describe(other) == allocators.describe(other)
    bare = replace(peer, kind="ours", shared_object=None)
    assert results.describe(bare) == allocators.describe(bare)
