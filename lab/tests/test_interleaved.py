"""An experiment from the command line to its files: order, failures, interrupts, resuming, looks."""

from __future__ import annotations

import html
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

import pytest

from hakmem_lab.decide import verdict
from hakmem_lab.experiment import interleaved
from hakmem_lab.measure import one_run, results, workload
from hakmem_lab.measure.one_run import Metric
from hakmem_lab.measure.results import NOISE, Plan
from hakmem_lab.target import libhakmem
from hakmem_lab.target.configuration import parse
from hakmem_lab.terminal import progress
from hakmem_lab.terminal.errors import LabError
from tests.conftest import Hakmem, killed_after, make_experiment

# Prints a figure that depends on an option, with a little noise.
PRINTER = 'echo "ops=$(( ${HAKMEM_REFILL_COUNT:-32} * 1000 + $(date +%N | cut -c 1-2 | sed s/^0//) ))"'


def plan(command: list[str], **more: object) -> Plan:
    given = {"runs": 3, "warmup": 1, "seed": 5, **more}
    return Plan.model_validate({"command": command, "typed": "hakmem ab", **given})


def begin(path: Path, command: list[str], texts: list[str], **more: object) -> interleaved.Session:
    configurations = [parse(text, "AB"[place]) for place, text in enumerate(texts)]
    return interleaved.begin("ab", plan(command, **more), Metric.parse("ops=(.*)"), configurations, path)


def test_rounds_are_interleaved_in_random_order(hakmem_library: Path, tmp_path: Path) -> None:
    command, texts = ["sh", "-c", PRINTER], ["", "refill_count=64"]
    with begin(tmp_path / "r.jsonl", command, texts, runs=20, noise_check=True) as session:
        session.run()
    found = results.load(tmp_path / "r.jsonl")
    assert found == session.experiment
    assert [run.round for run in found.runs] == [number for number in range(21) for _ in range(3)]
    orders = [tuple(run.label for run in found.runs if run.round == number) for number in range(1, 21)]
    assert all(sorted(order) == ["A", NOISE, "B"] for order in orders)
    assert len(set(orders)) > 2
    assert orders == [tuple(session.order(number)) for number in range(1, 21)]  # the seed alone decides
    assert len(found.rounds()) == 20  # the warm-up is saved, but does not count


def test_a_failing_program_names_its_configuration_and_keeps_the_rest(hakmem_library: Path, tmp_path: Path) -> None:
    command = f'{PRINTER}; test "$HAKMEM_REFILL_COUNT" != 64 || {{ echo broken by 64 >&2; exit 9; }}'
    path = tmp_path / "r.jsonl"
    with begin(path, ["sh", "-c", command], ["", "refill_count=64"]) as session, pytest.raises(LabError) as caught:
        session.run()
    assert caught.value.message.startswith("B in round 0: exit status 9")
    assert "broken by 64" in caught.value.advice and str(path) in caught.value.advice
    assert [failure.label for failure in results.load(path).failures] == ["B"]


def flaky(*numbers: int) -> list[str]:
    """A program that fails in the given runs."""
    fails = "|".join(map(str, numbers)) or "none"
    return ["sh", "-c", f"echo >>n; case $(wc -l <n) in {fails}) echo out of luck >&2; exit 9;; esac; {PRINTER}"]


def test_a_failed_run_is_made_again_and_counted(hakmem_library: Path, hakmem: Hakmem, tmp_path: Path) -> None:
    """One failure of twenty runs ended everything."""
    common = ["--a", "", "--b", "refill_count=64", "--metric", "ops=(.*)", "--runs", "4", "--no-noise-check"]
    common += ["--markdown", "v.md", "--seed", "3", "--out", "r.jsonl"]
    done = hakmem("ab", *common, "--retries", "2", "--", *flaky(4, 7, 8))
    said, told = (" ".join(each.split()) for each in (done.stdout, done.stderr))
    assert "GO" in said and "3 of 13 runs failed and were repeated, " in said
    assert told.count("exit status 9; it is repeated (1 of 2)") == 2 and told.count("repeated (2 of 2)") == 1
    found = results.load(tmp_path / "r.jsonl")
    assert len(found.failures) == 3 and not found.failed() and len(found.rounds()) == 4
    assert found.retried() in said and found.retried().rstrip(".") in (tmp_path / "v.md").read_text()
    assert found.retried() in html.unescape((tmp_path / "r.html").read_text())


def test_retries_are_bounded_and_an_error_is_in_each_form(hakmem_library: Path, hakmem: Hakmem, tmp_path: Path) -> None:
    common = ["--a", "", "--b", "refill_count=64", "--metric", "ops=(.*)", "--runs", "4", "--no-noise-check"]
    forms = ["--markdown", "v.md", "--csv", "v.csv", "--junit", "v.xml", "--github"]
    done = hakmem("ab", *common, *forms, "--retries", "1", "--", *flaky(3, 4), status=1)
    assert "in round 1: exit status 9" in done.stderr and "(1 of 1)" in done.stderr and "out of luck" in done.stderr
    assert "::error title=ERROR%3A sh::" in done.stdout
    assert (tmp_path / "v.md").read_text().startswith("### ERROR: hakmem ab\n")
    assert "out of luck" in (tmp_path / "v.xml").read_text() and ' errors="1"' in (tmp_path / "v.xml").read_text()
    assert "sh,,,,,,,ERROR," in (tmp_path / "v.csv").read_text()
    (tmp_path / "n").unlink()
    done = hakmem("ab", *common, "--json", "--junit", "v.xml", "--", *flaky(3), status=1)
    document = json.loads(done.stdout)
    assert document["error"]["message"].endswith("in round 1: exit status 9") and document["error"]["status"] == 1
    assert document["files"] == {"junit": "v.xml"} and "--retries N" in done.stderr
    done = hakmem("ab", "--junit", "w.xml", "--a", "", "--b", "", "--", "/nowhere/bench", status=1)
    assert "no such program" in (tmp_path / "w.xml").read_text()  # a program that cannot start is an error too
    done = hakmem("compare", "--junit", "c.xml", "--alloc", "system", "--", "true", status=2)
    assert "at least two allocators" in (tmp_path / "c.xml").read_text()


def test_a_case_that_fails_is_the_error_and_not_the_others(
    hakmem_library: Path, hakmem: Hakmem, tmp_path: Path
) -> None:
    common = ["--a", "", "--b", "refill_count=64", "--metric", "ops=(.*)", "--runs", "2", "--no-noise-check"]
    program = ["sh", "-c", f"test {{n}} != 2 || exit 9; {PRINTER}"]
    hakmem("ab", *common, "--junit", "v.xml", "--param", "n=1,2", "--", *program, status=1)
    suite = ElementTree.parse(tmp_path / "v.xml").getroot()
    assert [[child.tag for child in test] for test in suite.iter("testcase")] == [["skipped"], ["error"]]


def test_what_was_made_again_after_a_resume_is_no_failure(hakmem_library: Path, hakmem: Hakmem, tmp_path: Path) -> None:
    common = ["--a", "", "--b", "refill_count=64", "--metric", "ops=(.*)", "--runs", "3", "--no-noise-check"]
    hakmem("ab", *common, "--out", "r.jsonl", "--", *flaky(3), status=1)
    assert results.load(tmp_path / "r.jsonl").failed()
    hakmem("ab", "--resume", "r.jsonl")
    found = results.load(tmp_path / "r.jsonl")
    assert not found.failed() and len(found.rounds()) == 3 and verdict.compare(found, "A", "B").verdict == "GO"


def test_compare_and_sweep_make_a_failed_run_again(hakmem_library: Path, hakmem: Hakmem, tmp_path: Path) -> None:
    common = ["--metric", "ops=(.*)", "--runs", "2", "--retries", "1"]
    done = hakmem("compare", "--alloc", "system,hakmem", *common, "--junit", "c.xml", "--", *flaky(3))
    assert "1 of 7 runs failed and was repeated" in " ".join(done.stdout.split())
    assert ' errors="0"' in (tmp_path / "c.xml").read_text()
    (tmp_path / "n").unlink()
    done = hakmem("sweep", "--option", "refill_count", "--values", "16,64", *common, "--", *flaky(5))
    assert "1 of 10 runs failed and was repeated" in " ".join(done.stdout.split())


def test_static_programs_are_refused(hakmem_library: Path, tmp_path: Path) -> None:
    source, program = tmp_path / "a.c", tmp_path / "static"
    source.write_text("int main(void) { return 0; }\n")
    built = subprocess.run(["gcc", "-static", "-o", str(program), str(source)], capture_output=True, check=False)
    if built.returncode != 0:
        pytest.skip("no static C library")
    with pytest.raises(LabError, match="linked statically"):
        begin(tmp_path / "r.jsonl", [str(program)], ["", "refill_count=64"])


def test_a_file_that_is_there_is_not_overwritten(hakmem_library: Path, tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text("precious")
    with pytest.raises(LabError, match="cannot write"):
        begin(tmp_path / "r.jsonl", ["true"], ["", ""])
    assert (tmp_path / "r.jsonl").read_text() == "precious"


def test_until_decided_stops_at_a_look(hakmem_library: Path, hakmem: Hakmem, tmp_path: Path) -> None:
    arguments = ["--a", "", "--b", "refill_count=64", "--metric", "ops=(.*)", "--runs", "4", "--until-decided"]
    arguments += ["--max-runs", "50", "--no-noise-check", "--json"]
    done = hakmem("ab", *arguments, "--", "sh", "-c", PRINTER)
    document = json.loads(done.stdout)
    assert document["comparison"]["verdict"] == "GO"
    assert document["comparison"]["rounds"] in (4, 6, 9)
    assert document["comparison"]["confidence"] > 0.98
    assert document["comparison"]["gain"] == pytest.approx(100, abs=1)
    assert Path(tmp_path / document["files"]["page"]).is_file()


def test_ab_exit_status_and_words(hakmem_library: Path, hakmem: Hakmem) -> None:
    common = ["--metric", "ops=(.*)", "--runs", "4", "--no-noise-check", "--seed", "3"]
    program = ["--", "sh", "-c", PRINTER]
    done = hakmem("ab", "--a", "", "--b", "refill_count=64", "--predict", "90..110", *common, *program)
    assert "GO" in done.stdout and "Predicted +90 .. +110 %: met" in done.stdout
    done = hakmem("ab", "--a", "", "--b", "refill_count=16", "--predict", "1..2", *common, *program, status=3)
    assert "NO-GO" in done.stdout and "missed" in done.stdout
    # The seed decides the order of the runs, and so which of these figures each side gets: chance has no part in it.
    noisy = ["sh", "-c", "echo >>runs; echo ops=$(( $(wc -l <runs) * 7919 % 10007 + 1 ))"]
    done = hakmem("ab", "--a", "", "--b", "refill_count=64", *common, "--", *noisy, status=4)
    assert "INCONCLUSIVE" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "part", "status"),
    [
        (["--a", "", "--b", "refil_count=1", "--", "true"], "did you mean refill_count", 1),
        (["--a", "", "--", "true"], "--a and --b are needed", 2),
        (["--a", "", "--b", "", "--predict", "2..1", "--", "true"], "ends before it begins", 2),
        (["--a", "", "--b", "", "--predict", "5..", "--", "true"], "not a range of gains", 2),
        (["--a", "", "--b", "", "--", "/nowhere/bench"], "no such program", 1),
        (["--a", "", "--b", ""], "no program given", 2),
        (["--a", "", "--b", "", "--metric", "x", "--", "true"], "needs exactly one group", 2),
        (["--a", "", "--b", "", "--metric", "x=(.*)", "--", "true"], "no match for --metric", 1),
        (["--a", "", "--b", "", "--record", "title", "--", "true"], "NNNN-title", 2),
        (["--a", "", "--b", "", "--until-decided", "--max-runs", "5", "--", "true"], "--max-runs 5 is below", 2),
        (["--resume", "nowhere.jsonl"], "cannot read", 1),
    ],
)
def test_mistakes_end_with_one_message(
    hakmem_library: Path, hakmem: Hakmem, arguments: list[str], part: str, status: int
) -> None:
    done = hakmem("ab", *arguments, status=status)
    assert done.stderr.startswith("hakmem: ") and part in done.stderr
    assert "Traceback" not in done.stderr


def test_interrupt_keeps_what_was_measured_and_resume_goes_on(hakmem_library: Path, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    configurations = ["--a", "", "--b", "refill_count=64", "--metric", "ops=(.*)"]
    arguments = ["ab", *configurations, "--runs", "10", "--no-noise-check", "--out", str(path)]
    program = ["--", "sh", "-c", f"sleep 0.1; {PRINTER}"]
    command = [sys.executable, "-m", "hakmem_lab", *arguments, *program]
    with killed_after(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as lab:
        deadline = time.monotonic() + 60
        while (not path.exists() or path.read_text().count('"run"') < 6) and time.monotonic() < deadline:
            time.sleep(0.02)
        lab.send_signal(signal.SIGINT)
        _, said = lab.communicate(timeout=60)
    assert lab.returncode == 130 and f"--resume {path}" in said
    before = results.load(path)
    assert 6 <= len(before.runs) < 22
    with path.open("a") as file:
        file.write('{"type": "run", "da')  # what a crash would leave
    resumed = [sys.executable, "-m", "hakmem_lab", "ab", "--resume", str(path)]
    done = subprocess.run(resumed, capture_output=True, text=True, check=False, cwd=tmp_path, env=dict(os.environ))
    assert done.returncode == 0 and "GO" in done.stdout, done.stdout + done.stderr
    after = results.load(path)
    assert after.runs[: len(before.runs)] == before.runs
    assert len(after.rounds()) == 10 and len(after.runs) == 22


def test_resume_refuses_another_kind_and_another_build(hakmem_library: Path, hakmem: Hakmem, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with begin(path, ["sh", "-c", PRINTER], ["", "refill_count=64"]) as session:
        session.one_round(1)
    done = hakmem("sweep", "--resume", str(path), status=1)
    assert "hakmem ab" in done.stderr
    digest = session.experiment.head.series[0].digest
    path.write_text(path.read_text().replace(digest, "0" * 12))
    done = hakmem("ab", "--resume", str(path), status=1)
    assert "has changed" in done.stderr


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "does not begin with the head"),
        ("{}\n{}\n", "not a line of an experiment"),
        ('{"type": "head", "data": {"format": "hakmem-experiment", "version": 99}}\n{}\n', "another version"),
    ],
)
def test_files_that_are_no_experiments(tmp_path: Path, text: str, part: str) -> None:
    (tmp_path / "x.jsonl").write_text(text)
    with pytest.raises(LabError) as caught:
        results.load(tmp_path / "x.jsonl")
    assert part in caught.value.message


def test_results_survive_being_written_and_read(tmp_path: Path) -> None:
    made = make_experiment({"A": [1.0, 2.0, 3.0], "B": [1.0, 2.5, 3.0]})
    writer = results.Writer(tmp_path / "x.jsonl")
    writer.line("head", made.head)
    for run in made.runs:
        writer.line("run", run)
    writer.close()
    read = results.load(tmp_path / "x.jsonl")
    assert read == made
    assert verdict.compare(read, "A", "B") == verdict.compare(made, "A", "B")


def test_kept_results_are_read_and_written_as_they_are() -> None:
    """A field renamed in the code keeps its name in files, so decision records stay the same."""
    tree = libhakmem.source_tree()
    assert tree is not None
    kept = sorted((tree / "bench" / "runs").glob("*/*.json"))
    assert kept
    for path in kept:
        text = path.read_text()
        read = results.from_document(text, path.name)
        assert results.document(read) == text, path.name
        assert json.loads(read.head.model_dump_json()) == json.loads(text)["head"], path.name


def test_names_of_results_and_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, asked = results.now(), list[int]()
    monkeypatch.setattr(results, "now", lambda: now)
    path = interleaved.results_path("ab", tmp_path)
    assert path == tmp_path / f"ab-{now.astimezone():%Y%m%d-%H%M%S}.jsonl"
    assert interleaved.results_path("ab", None) == interleaved.FOLDER / path.name
    for number in (2, 3):
        path.touch()
        path = interleaved.results_path("ab", tmp_path)
        assert path.stem.endswith(f"-{number}") and path.parent == tmp_path
    assert interleaved.results_path("ab", path) == path
    monkeypatch.setattr("secrets.randbelow", lambda most: asked.append(most) or 5)  # type: ignore[func-returns-value]
    assert interleaved.seed_or_new(None) == 5 and asked == [1 << 31] and interleaved.seed_or_new(0) == 0


@pytest.mark.parametrize(("metric", "anyway"), [("time", False), ("gib_seconds", False), ("instructions", True)])
def test_what_each_run_is_given(
    hakmem_library: Path, metric: str, anyway: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, told = list[tuple[str, object, bool]](), list[object]()
    outcome = one_run.Outcome(0, 1.0, 0.0, 0.0, 1 << 20, 0, 0, 0, "==1== I refs: 10", gib_seconds=1.0)

    def run(_: Plan, command: list[str], variables: dict[str, str], watch: object, over_time: bool) -> object:
        given.append((variables.get(interleaved.LAYOUT, ""), watch, over_time))
        return outcome, None

    @contextmanager
    def of(count: int, what: str) -> Iterator[Callable[[str], None]]:
        told.append(count)
        yield told.append

    monkeypatch.setattr(workload, "run", run)
    monkeypatch.setattr(progress, "of", of)
    monkeypatch.setattr(one_run, "counter", lambda: (("true",), r"I refs: (\d+)"))
    texts = ("", "refill_count=64", "alloc:system", "layout_seed=7")
    every = [parse(text, "ABCD"[place]) for place, text in enumerate(texts)]
    steps = plan(["true"], runs=3, warmup=1, anyway=anyway)
    with interleaved.begin("ab", steps, Metric.parse(metric), every, tmp_path / "r.jsonl") as session:
        session._began -= 1000.0
        session.run()
    runs = session.experiment.runs
    assert told[0] == 16 and told[1:] == [*["warm-up"] * 4, *(f"round {i}" for i in (1, 2, 3) for _ in range(4))]
    assert all(1000 <= each.at < 1100 for each in runs)
    for each, (layout, watch, over_time) in zip(runs, given, strict=True):
        assert each.layout_seed == (int(layout) if each.label in "AB" else None)
        assert layout == {"C": "", "D": "7"}.get(each.label, layout) and over_time == (metric == "gib_seconds")
        assert (watch is not None) == (each.round == 0 and each.label != "C" and metric != "instructions")
    seeds = [{each.layout_seed for each in runs if each.round == i and each.label in "AB"} for i in range(4)]
    assert all(len(each) == 1 for each in seeds) and len(set.union(*seeds)) == 4
