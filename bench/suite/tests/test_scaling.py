"""The scaling experiment: its cases, its order, what it reads and what it concludes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import listing
import model
import publish
import pytest
import scaling
import session
from conftest import BUILD, ROOT, make_head, make_sample
from hakmem_lab.target.allocators import FLOOR, HAKMEM, SYSTEM, Allocator
from hakmem_lab.terminal.errors import LabError
from listing import Case, Places
from session import Results

NAMES = (HAKMEM, SYSTEM, FLOOR)
built = pytest.mark.skipif(not (BUILD / "bench_idle").is_file(), reason="./dev build release makes the programs")


# --- cases ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", scaling.PATTERNS, ids=lambda pattern: pattern.name)
def test_the_total_work_is_the_same_with_all_numbers_of_threads(pattern: scaling.Pattern) -> None:
    place = pattern.words.split().index("N")
    slots = pattern.words.split().index("S") if pattern.slots else None
    for threads in scaling.THREADS:
        if threads < pattern.least:
            continue
        arguments = pattern.arguments(threads, quick=False)
        senders = threads // pattern.sending
        assert int(arguments[place]) * senders == pytest.approx(pattern.total, rel=0.001)
        if slots is not None:
            assert int(arguments[slots]) * threads == pytest.approx(pattern.slots, rel=0.01)
        assert len(arguments) == len(pattern.words.split())


def test_cases_have_names_of_their_own_and_read_back() -> None:
    cases = scaling.all_cases(scaling.THREADS, 1000)
    assert len(cases) == len({case.name for case in cases})
    named = {model.split_name(case.name) for case in cases if case.group == model.GROUP}
    assert ("mid", 256) in named
    assert ("remote", 1) not in named  # one thread has nobody to hand blocks to
    assert not [case for case in scaling.all_cases([2], 0) if case.group == model.IDLE]


def test_numbers_of_threads() -> None:
    assert scaling.parse_threads(None, quick=False) == list(scaling.THREADS)
    assert scaling.parse_threads("16,1,4,4", quick=False) == [1, 2, 4, 16]  # 2 is what the others are compared with
    for wrong in ("", "x", "1,,2", "0", "257,2", "3"):
        with pytest.raises(LabError, match="--threads"):
            scaling.parse_threads(wrong, quick=False)
    for wrong in ("(", "nothing-like-it"):
        with pytest.raises(LabError, match="--only"):
            scaling.select(scaling.all_cases([2], 1), wrong)


# --- order ---------------------------------------------------------------------------------------------------


def make_session(path: Path, rounds: int = 4) -> scaling.ScalingSession:
    cases = scaling.all_cases([1, 2], 5)
    head = make_head([case.name for case in cases], NAMES, rounds, model.GROUP)
    allocators = [Allocator(name, "floor" if name == FLOOR else "peer") for name in NAMES]
    return scaling.ScalingSession(Results(head=head), cases, allocators, None, path)  # type: ignore[arg-type]


def test_a_round_mixes_threads_patterns_and_allocators(tmp_path: Path) -> None:
    running = make_session(tmp_path / "r.jsonl")
    steps = list(running.steps())
    running.close()
    assert steps == list(running.steps())  # a resumed run keeps to the order
    rounds = [[(case.name, name) for number, _, case, name in steps if number == each] for each in range(5)]
    throughput = [[each for each in pairs if "@" in each[0] and ":" not in each[0]] for pairs in rounds]
    assert all(len(pairs) == len(set(pairs)) for pairs in rounds)
    assert len({tuple(pairs) for pairs in throughput}) == 5
    assert len({frozenset(pairs) for pairs in throughput}) == 1
    assert ("remote@2", FLOOR) not in throughput[0]  # the floor cannot run one way
    patterns = [name.partition("@")[0] for name, _ in throughput[1]]
    assert patterns != sorted(patterns, key=patterns.index)  # one pattern's runs are not side by side
    counted = [[name for case, name in pairs if case.startswith(model.COUNTS_PREFIX)] for pairs in rounds]
    assert [set(names) for names in counted] == [set(), {HAKMEM}, set(), set(), set()]
    idle = [{name for case, name in pairs if case == "idle:few"} for pairs in rounds]
    assert idle == [set(), {HAKMEM, SYSTEM}, set(), set(), set()]
    assert {name for case, name in rounds[1] if case == "idle:few+alone"} == {HAKMEM}


# --- figures -------------------------------------------------------------------------------------------------

COUNTS = {
    "stages": {"own_hint": 1, "own_empty": 2, "adopted": 3, "claimed": 4, "locked": 5},
    "superslabs": {"opened": 5, "closed": 4, "lock_takes": 9},
    "system": {"mmap": 1, "munmap": 0, "madvise": 2, "mremap": 0, "probe": 0, "failed": 7},
    "remote": {"heaps": 3, "published": 6, "frees": 12, "lock_waits": 1},
    "total": {"misses": 20},
    "process": {"minor_faults": 30},
    "upkeep": {"steps": 2},
    "classes": [{"warm_hits": 3, "collected": 1}, {"warm_hits": 4, "collected": 2}],
    "version": 1,
}


def make_results(falling: float) -> Results:
    """Two threads take 10 ns an operation, four of them by `falling` more; the floor's time does not change."""
    names = ["mid@1", "mid@2", "mid@4", "counts:mid@2", "counts:mid@4", "idle:least"]
    head = make_head(names, [HAKMEM, FLOOR], 2, model.GROUP)
    for row in head.cases:
        row.group = {"counts:": model.COUNTS, "idle:": model.IDLE}.get(row.name.partition(":")[0] + ":", model.GROUP)
        row.command = ["program", "7"]
    kept = Results(head=head)
    for number in (1, 2):
        for case, time in (("mid@1", 20e-9), ("mid@2", 10e-9), ("mid@4", 10e-9 * falling)):
            kept.add(make_sample(number, case, HAKMEM, time))
            kept.add(make_sample(number, case, FLOOR, 5e-9))
    for case in names[3:5]:
        counts = make_sample(1, case, HAKMEM, 1)
        counts.extra = {**model.flatten(COUNTS), "operations": 2_000_000.0}
        kept.add(counts)
    idle = make_sample(1, "idle:least", HAKMEM, 1)
    idle.extra = {"idle_bytes": 70_000.0, "rested_bytes": 20480.0}
    kept.add(idle)
    return kept


def test_falling_throughput_is_said() -> None:
    for falling, said in ((1.0, "yes"), (1.05, "yes"), (1.2, "no")):
        table = model.verdicts(model.Runs(make_results(falling)))
        assert table is not None
        assert [row[0] for row in table.rows] == ["mid", "mid / floor"]
        assert {row[-1] for row in table.rows} == {said}
        assert table.rows[0][2].startswith(f"{1 / falling:.2f} ")


def test_what_the_program_loses_itself_is_divided_out() -> None:
    kept = make_results(1.5)
    for sample in kept.samples:
        if (sample.case, sample.allocator) == ("mid@4", FLOOR):
            sample.time *= 1.5
    table = model.verdicts(model.Runs(kept))
    assert table is not None
    assert [row[-1] for row in table.rows] == ["no", "yes"]


def test_counters_per_million_and_the_estimate() -> None:
    runs = model.Runs(make_results(1.0))
    table = model.counters(runs)
    assert table is not None
    cells = {row[0]: row[1] for row in table.rows}
    assert cells["published"] == "3"
    assert cells["misses of the thread's cache"] == "10"
    assert cells["... served without a search (warm pool)"] == "3.5"
    assert cells["system calls"] == "1.5"  # those that failed are among them already
    lock = next(word for word in model.SHARED if word.name == "arena's lock")
    busy = model.estimate(9 / 2e6, 50e6, lock)
    assert busy == pytest.approx(4.5e-6 * 50e6 * model.LOCKED_NS * 1e-9 * model.CORES)
    words = model.estimates(runs)
    assert words is not None
    assert next(row for row in words.rows if row[0] == lock.name)[-1] == f"4.5: {model.percent(busy)}"


def test_idle_memory_is_judged_after_the_rest() -> None:
    table = model.idle(model.Runs(make_results(1.0)))
    assert table is not None
    assert table.rows == [["least", "about idle:least; 7 threads", "68.4 / 20.0", "yes"]]


def test_files_of_the_suite_and_of_this_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "suite.jsonl"
    head = make_head(["one"], NAMES, 1)
    path.write_text(json.dumps({"type": "head", "data": json.loads(head.model_dump_json())}) + "\n")
    with pytest.raises(LabError, match="result of the suite"):
        scaling.load(path)
    with pytest.raises(LabError, match="--scaling"):
        publish.publish([make_results(1.0)], tmp_path)


def test_tables_go_between_the_markers(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "scaling.md"
    page.write_text("before\n<!-- scaling:begin -->\nold\n<!-- scaling:end -->\nafter\n")
    kept = make_results(1.0)
    scaling.publish_file(kept, tmp_path)
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "\nold\n" not in text
    assert "### Throughput by threads" in text and "### Shared words" in text
    medians = (tmp_path / "docs" / "scaling" / "throughput.csv").read_text().splitlines()
    assert medians[0].startswith("pattern,allocator,") and len(medians) > 1
    kept.head.plan.quick = True
    with pytest.raises(LabError, match="quick"):
        scaling.publish_file(kept, tmp_path)


def test_the_page_has_its_markers() -> None:
    text = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    assert publish.replace(text, "scaling", "x", "docs/scaling.md").count("x\n\n<!-- scaling:end -->") == 1


# --- the real thing, small -----------------------------------------------------------------------------------


@built
def test_idle_threads_are_measured() -> None:
    case = Case("idle:x", model.IDLE, "", "bench_idle", ("8", "4", "64", "64", "0"), ("8", "4", "64", "64", "0"))
    found = scaling.ScalingRunner(Places(BUILD), quick=True).run(case, Allocator(SYSTEM, "peer"), quick=True)
    assert found is not None
    assert found["extra"]["idle_bytes"] >= 0
    refused = subprocess.run(
        [str(BUILD / "bench_idle"), "4", "1", "64", "32"], capture_output=True, text=True, timeout=20, check=False
    )
    assert (refused.returncode, refused.stdout) == (2, "")


@built
def test_a_quick_run_from_the_command_line(tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    command = [sys.executable, str(ROOT / "bench" / "suite" / "scaling.py"), "--quick", "--threads", "1,4"]
    options = ["--alloc", f"{HAKMEM},{FLOOR}", "--only", "mid|remote|idle:least", "--idle", "4", "--out", str(out)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Throughput by threads" in done.stdout and "Shared words" in done.stdout
    kept = session.load(out)
    assert not kept.failures
    counted = [each for each in kept.samples if each.case == "counts:remote@4"]
    assert len(counted) == 1 and counted[0].extra["remote.published"] > 0
    again = subprocess.run([*command, "--out", str(out)], capture_output=True, text=True, timeout=60, check=False)
    assert (again.returncode, "--resume" in again.stderr) == (2, True)


def test_patterns_name_programs_of_the_list() -> None:
    frozen = {case.program for case in listing.load()}
    assert {pattern.program for pattern in scaling.PATTERNS} <= frozen
