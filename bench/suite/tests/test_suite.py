"""The suite: its list, its programs' results, its rounds, what it concludes, what it writes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import figures
import gen_readme
import listing
import numpy as np
import publish
import pytest
import session
import tables
from conftest import BUILD, ROOT, make_head, make_sample
from figures import Figures
from hakmem_lab.target.allocators import FLOOR, HAKMEM, SYSTEM, Allocator
from hakmem_lab.terminal.errors import INTERRUPTED, LabError
from listing import Case, Places
from session import Results, Runner, Session

WRITTEN = [case for case in listing.load() if case.group == listing.WRITTEN]
built = pytest.mark.skipif(not (BUILD / "suite_factor").is_file(), reason="./dev build release makes the programs")


# --- the list ------------------------------------------------------------------------------------------------


def test_list_names_every_kind() -> None:
    cases = listing.load()
    assert {case.group for case in cases} == {listing.MICRO, listing.WRITTEN, listing.REAL, listing.FAMILY}
    assert len(cases) == len({case.name for case in cases})
    assert all(case.quick != case.args or case.name == "larson" for case in cases)


def test_wrong_lists_are_refused(tmp_path: Path) -> None:
    row = '[[case]]\nname = "a"\ngroup = "real"\nabout = "b"\nprogram = "c"\nargs = []\nquick = []\n'
    path = tmp_path / "cases.toml"
    for text, said in (
        ('[micro]\ncases = ["nosuch"]\n' + row, "no nosuch"),
        ("[micro]\ncases = []\n" + row + 'colour = "red"\n', "no such field: colour"),
        ("[micro]\ncases = []\n" + row + row, "two cases"),
    ):
        path.write_text(text)
        with pytest.raises(LabError, match=said):
            listing.load(path)


def test_missing_programs_are_a_line(tmp_path: Path) -> None:
    places = Places(tmp_path, tmp_path)
    case = Case("a", listing.REAL, "", "no-such-program", (), ())
    assert "is not there" in (listing.prepare(case, places) or "")
    broken = Case("a", listing.REAL, "", "sh", (), (), prepare=("sh", "-c", "echo it is broken; exit 3"))
    assert listing.prepare(broken, places) == "could not be prepared: it is broken"
    assert listing.prepare(Case("a", listing.REAL, "", "sh", (), (), prepare=("true",)), places) is None


# --- the programs --------------------------------------------------------------------------------------------


@built
@pytest.mark.parametrize("case", WRITTEN, ids=lambda case: case.name)
def test_programs_compute_the_same_under_both_allocators(case: Case) -> None:
    runner = Runner(Places(BUILD), quick=True)
    found = [
        runner.run(case, allocator, quick=True)
        for allocator in (Allocator(SYSTEM, "peer"), Allocator(HAKMEM, "ours", BUILD / "libhakmem.so"))
    ]
    assert found[0] and found[1]
    assert found[0]["check"] == found[1]["check"]
    assert (found[0]["check"] != "") == (case.program != "bench_calloc")
    assert float(found[0]["time"]) > 0


@built
@pytest.mark.parametrize("program", sorted({case.program for case in WRITTEN}))
def test_programs_explain_themselves_and_refuse_nonsense(program: str) -> None:
    def run(argument: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([str(BUILD / program), argument], capture_output=True, text=True, timeout=20, check=False)

    helped, refused = run("--help"), run("-x")
    assert (helped.returncode, helped.stdout.startswith(f"usage: {program}")) == (0, True)
    assert (refused.returncode, refused.stdout) == (2, "")


@built
def test_what_a_program_holds_by_itself_is_less_than_its_peak() -> None:
    runner, case = Runner(Places(BUILD), quick=True), next(each for each in WRITTEN if each.name == "large_churn")
    whole = runner.run(case, Allocator(SYSTEM, "peer"), quick=True)
    held = runner.bare(case)
    assert whole and held
    assert 200 << 10 < held < int(whole["peak_rss_bytes"]) - (8 << 20)  # two runs' pages of files differ by some 100 KiB


@built
def test_another_seed_is_another_result() -> None:
    def check(seed: str) -> str:
        done = subprocess.run(
            [str(BUILD / "suite_factor"), "32", "5", seed], capture_output=True, text=True, timeout=20, check=True
        )
        return done.stdout.splitlines()[0]

    assert check("1") == check("1") != check("2")


@pytest.mark.parametrize("name", ["python_json", "python_source", "sqlite", "hyper", "bundler", "java"])
def test_real_programs_repeat_their_results(name: str) -> None:
    case = next(each for each in listing.load() if each.name == name)
    places = Places(BUILD)
    if listing.prepare(case, places) is not None:
        pytest.skip(f"{case.program} is not installed")
    runner = Runner(places, quick=True)
    first, second = (runner.run(case, Allocator(SYSTEM, "peer"), quick=True) for _ in range(2))
    assert first and second
    assert first["check"] == second["check"] != ""


Make = Callable[..., Results]


def flat(value: float, rounds: int = 8) -> Sequence[float]:
    return [value] * rounds


# --- the rounds ----------------------------------------------------------------------------------------------


class FakeRunner:
    """Answers at once; may be told to stop, to fail, or to compute something else."""

    def __init__(self, stop_after: int | None = None, failing: str = "", lying: str = "") -> None:
        self.calls: list[tuple[str, str, bool]] = []
        self.stop_after, self.failing, self.lying = stop_after, failing, lying
        self.bare_calls: list[str] = []

    def bare(self, case: Case) -> int | None:
        self.bare_calls.append(case.name)
        return 1000 if case.name == "one" else None

    def run(self, case: Case, allocator: Allocator, quick: bool) -> dict[str, float | int | str] | None:
        if self.stop_after is not None and len(self.calls) >= self.stop_after:
            raise KeyboardInterrupt
        self.calls.append((case.name, allocator.name, quick))
        if allocator.name == self.failing:
            raise LabError("ended by signal 11", "Its last words:\noh")
        return {
            "time": 1.0,
            "wall_s": 1.0,
            "cpu_s": 1.0,
            "peak_rss_bytes": 1,
            "minor_faults": 1,
            "major_faults": 0,
            "check": "bad" if allocator.name == self.lying else "good",
        }


NAMES = (HAKMEM, SYSTEM, "other", FLOOR)
CASES = (Case("one", listing.MICRO, "", "p", (), (), floor="one"), Case("two", listing.WRITTEN, "", "p", (), ()))


def make_session(path: Path, runner: Any, kept: Results | None = None) -> Session:
    head = make_head([case.name for case in CASES], NAMES, 3)
    allocators = [Allocator(name, "floor" if name == FLOOR else "peer") for name in NAMES]
    return Session(kept or Results(head=head), CASES, allocators, runner, path, resumed=kept is not None)


def test_every_round_runs_every_pair_once(tmp_path: Path) -> None:
    runner = FakeRunner()
    running = make_session(tmp_path / "r.jsonl", runner)
    running.run()
    running.close()
    assert len(runner.calls) == 4 * (4 + 3)  # the warm-up and three rounds; the floor runs one case only
    assert [quick for _, _, quick in runner.calls] == [True] * 7 + [False] * 21
    orders = {tuple(running.order(number, "one")) for number in range(12)}
    assert len(orders) > 3
    assert session.load(tmp_path / "r.jsonl") == running.results


def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path) -> None:
    whole = FakeRunner()
    running = make_session(tmp_path / "whole.jsonl", whole)
    running.run()
    path = tmp_path / "r.jsonl"
    first = FakeRunner(stop_after=10)
    running = make_session(path, first)
    with pytest.raises(LabError, match="interrupted") as raised:
        running.run()
    assert (raised.value.status, f"--resume {path}" in raised.value.advice) == (INTERRUPTED, True)
    running.close()
    path.write_bytes(path.read_bytes() + b'{"type": "run", "da')  # as a crash leaves it
    second = FakeRunner()
    running = make_session(path, second, session.load(path))
    running.run()
    running.close()
    assert first.calls + second.calls == whole.calls
    keys = [(each.round, each.case, each.allocator) for each in session.load(path).samples]
    assert len(keys) == len(set(keys)) == 28
    assert (first.bare_calls, second.bare_calls) == (["one", "two"], ["two"])  # what is known is not asked again
    assert session.load(path).bare == {"one": 1000}


def test_further_rounds_have_what_is_not_known(tmp_path: Path) -> None:
    """One case is known after two further rounds, the other from the start; a resumed run asks for more."""

    def known(kept: Results, case: str) -> bool:
        return case == "two" or max(each.round for each in kept.samples) >= 5

    def make(runner: FakeRunner, path: Path, kept: Results | None, more: int) -> Session:
        head = make_head([case.name for case in CASES], NAMES, 3)
        allocators = [Allocator(name, "floor" if name == FLOOR else "peer") for name in NAMES]
        return Session(
            kept or Results(head=head), CASES, allocators, runner, path, resumed=kept is not None, more=more, known=known
        )

    path, counts = tmp_path / "r.jsonl", []
    for more, stop in ((0, None), (1, None), (4, 2), (4, None), (4, None)):
        runner = FakeRunner(stop_after=stop)
        running = make(runner, path, session.load(path) if counts else None, more)
        try:
            running.run()
        except LabError:
            assert stop is not None
        running.close()
        counts.append(len(runner.calls))
        assert {case for case, _, _ in runner.calls} <= ({"one"} if len(counts) > 1 else {"one", "two"})
    assert counts == [28, 4, 2, 2, 0]
    rounds = {(each.round, each.case) for each in session.load(path).samples if each.round > 3}
    assert rounds == {(4, "one"), (5, "one")}


def test_a_ratio_is_known_when_it_would_show_five_percent(results: Make) -> None:
    times = {("a", HAKMEM): [1.0, 1.3] * 4, ("a", SYSTEM): flat(2.0), ("b", HAKMEM): [1.0, 1.01] * 4, ("b", SYSTEM): flat(2.0)}
    found = Figures(results(times))
    assert (found.is_known("a"), found.is_known("b"), found.rounds) == (False, True, "8 rounds")
    assert Figures(results({("a", HAKMEM): flat(1.0)})).is_known("a")  # nobody to compare with
    kept = results({("a", HAKMEM): flat(1.0), ("b", HAKMEM): flat(1.0, 12)})
    assert Figures(kept).rounds == "8 to 12 rounds"
    assert Figures(kept.before(9)).rounds == "8 rounds"


def test_a_pair_that_fails_is_not_tried_again(tmp_path: Path) -> None:
    runner = FakeRunner(failing="other")
    running = make_session(tmp_path / "r.jsonl", runner)
    running.run()
    assert [name for _, name, _ in runner.calls].count("other") == 2
    assert {(each.case, each.allocator) for each in running.results.failures} == {("one", "other"), ("two", "other")}
    assert running.results.failures[0].reason == "ended by signal 11 oh"


def test_a_wrong_result_is_a_failure(tmp_path: Path) -> None:
    running = make_session(tmp_path / "r.jsonl", FakeRunner(lying="other"))
    running.run()
    failed = {each.case for each in running.results.failures}
    assert failed == {"one", "two"}
    assert "computed" in running.results.failures[0].reason


def test_memory_beyond_the_programs_own(results: Callable[..., Results]) -> None:
    times = {("a", HAKMEM): [1.0, 1.0], ("a", SYSTEM): [1.0, 1.0], ("a", "lean"): [1.0, 1.0]}
    kept = results(times, rss={HAKMEM: 3 << 20, SYSTEM: 2 << 20, "lean": 2 << 20})
    assert [table.title for table in tables.all_tables(Figures(kept))].count("Peak memory beyond the program's own") == 0
    kept.add(session.Bare(case="a", bytes=1 << 20))
    found = Figures(kept)
    ratio = found.ratio("a", HAKMEM, "lean", found.beyond)
    assert ratio is not None and ratio.value == 2.0  # 3 - 1 by 2 - 1
    table = next(each for each in tables.all_tables(found) if each.title == "Peak memory beyond the program's own")
    assert table.rows == [["a", "1.0", "2.0", "1.0", "1.0"]]
    said = {claim.text: claim.found for claim in figures.claims(found)}
    assert said["peak memory: on no benchmark more than 1.10 x the leanest fast peer"] == "a 1.50"
    assert said["beyond the program's own: on no benchmark more than 1.10 x the leanest fast peer"] == "a 2.00"
    kept.add(session.Bare(case="a", bytes=4 << 20))
    assert found.beyond(kept.samples[0]) == 4096  # never nothing


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    for text in (
        "",
        "nothing\nhere\n",
        '{"type": "failure", "data": {"round": 1, "case": "a", "allocator": "b", "reason": "c"}}\n',
    ):
        path.write_text(text)
        with pytest.raises(LabError):
            session.load(path)
    with pytest.raises(LabError, match="cannot read"):
        session.load(tmp_path / "none")


def test_a_run_is_resumed_only_with_what_it_measured() -> None:
    head = make_head(["one"], NAMES, 3)
    session.require_same(head, head.model_copy(deep=True))
    other = head.model_copy(deep=True)
    other.allocators[0].digest = "changed"
    with pytest.raises(LabError, match="no longer the library"):
        session.require_same(head, other)
    other = head.model_copy(deep=True)
    other.cases[0].command = ["program", "more"]
    with pytest.raises(LabError, match="list of benchmarks"):
        session.require_same(head, other)


def test_files_of_different_benchmarks_are_put_together(results: Make) -> None:
    first = results({("a", HAKMEM): flat(1.0), ("a", SYSTEM): flat(2.0)})
    second = results({("b", HAKMEM): flat(1.0), ("b", SYSTEM): flat(8.0)})
    second.bare["b"], second.head.machine.facts["load"] = 4096, "another"
    first.head.missing = [session.Missing(name="b", reason="not here"), session.Missing(name="c", reason="not here")]
    both = session.joined([first, second])
    mean = Figures(both).mean_ratio(HAKMEM, SYSTEM, figures.time_of)
    assert mean is not None and (mean.value, mean.rounds) == pytest.approx((0.25, 2))
    assert both.bare == {"b": 4096} and [each.name for each in both.head.missing] == ["c"]
    assert [each.name for each in first.head.cases] == ["a"], "a file is left as it is"
    assert session.joined([first]) == first


def test_only_files_that_belong_together_are_put_together(results: Make) -> None:
    first = results({("a", HAKMEM): flat(1.0), ("a", SYSTEM): flat(2.0)})
    with pytest.raises(LabError, match="several of the files have a"):
        session.joined([first, first])
    for change in (
        lambda head: head.allocators.pop(),
        lambda head: setattr(head.allocators[0], "digest", "another"),
        lambda head: head.machine.facts.update(processor="another"),
    ):
        other = results({("b", HAKMEM): flat(1.0), ("b", SYSTEM): flat(8.0)})
        change(other.head)
        with pytest.raises(LabError, match="one machine, one build"):
            session.joined([first, other])


def test_a_carrier_runs_on_the_systems_malloc(tmp_path: Path) -> None:
    case = Case("a", listing.REAL, "", "p", (), (), env={"X": "1"}, carrier=True)
    found = session.environment_of(case, Allocator("x", "peer", tmp_path / "x.so"), Places(tmp_path, tmp_path))
    assert (found["SUITE_PRELOAD"], "LD_PRELOAD" in found, found["X"]) == (str(tmp_path / "x.so"), False, "1")


def test_programs_do_not_see_the_suites_own_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HAKMEM_PEERS", "HAKMEM_SUITE"):
        monkeypatch.setenv(name, "/somewhere")
        assert name not in Allocator("a", "peer").environment()


def test_result_lines() -> None:
    assert session.printed_numbers('x ops_per_s=5 seconds=0.5 args="1"\n')["ops_per_s"] == 5
    assert session.printed_numbers("nothing") == {}
    case = Case("a", listing.REAL, "", "p", (), ())
    assert session.check_of(case, "x check=00ff\nmore") == "00ff"
    assert session.check_of(case, "nothing") == ""
    printing = Case("a", listing.REAL, "", "p", (), (), output=True)
    assert session.check_of(printing, "1") != session.check_of(printing, "2")


# --- the conclusions -----------------------------------------------------------------------------------------


def test_the_best_peer_is_chosen_on_other_rounds_than_it_is_compared_on(results: Make) -> None:
    """Two peers that are lucky in turn: whoever chose and compared on the same rounds would see a peer at 1."""
    kept = results({("a", HAKMEM): flat(2.0), ("a", "left"): [1.0, 3.0] * 4, ("a", "right"): [3.0, 1.0] * 4})
    ratio = Figures(kept).to_best("a", HAKMEM)
    assert ratio is not None
    assert ratio.value == pytest.approx(2 / 3)
    assert (set(ratio.other.split("/")), ratio.rounds) == ({"left", "right"}, 8)


def test_ratios_are_taken_within_rounds(results: Make) -> None:
    """A machine that becomes slower and slower does not widen the interval."""
    pace = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
    kept = results({("a", HAKMEM): [0.9 * p for p in pace], ("a", SYSTEM): pace})
    ratio = Figures(kept).to_best("a", HAKMEM)
    assert ratio is not None
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((0.9, 0.9, 0.9))


def test_intervals_hold_the_median_and_grow_with_noise(results: Make) -> None:
    narrow, wide = [1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0, 1.01], [1.0, 1.3, 0.7, 1.0, 1.4, 0.6, 1.0, 1.2]
    spans = []
    for values in (narrow, wide):
        ratio = Figures(results({("a", HAKMEM): values, ("a", SYSTEM): flat(1.0)})).to_best("a", HAKMEM)
        assert ratio is not None and ratio.low <= ratio.value <= ratio.high
        spans.append(ratio.high - ratio.low)
    assert spans[0] < spans[1]


def test_means_are_over_what_both_ran(results: Make) -> None:
    kept = results(
        {
            ("a", HAKMEM): flat(1.0),
            ("a", SYSTEM): flat(2.0),
            ("b", HAKMEM): flat(1.0),
            ("b", SYSTEM): flat(8.0),
            ("a", "fast"): flat(1.0),
        }
    )
    found = Figures(kept)
    slow, fast = found.mean_ratio(HAKMEM, SYSTEM, figures.time_of), found.mean_ratio(HAKMEM, "fast", figures.time_of)
    assert slow is not None and fast is not None
    assert (slow.value, slow.rounds, fast.value, fast.rounds) == pytest.approx((0.25, 2, 1.0, 1))
    assert [each.other for each in found.means(HAKMEM, found.peers, figures.time_of)] == ["fast", SYSTEM]


def test_own_cost_is_above_the_floor(results: Make) -> None:
    kept = results(
        {("a", HAKMEM): flat(5e-9), ("a", SYSTEM): flat(9e-9), ("a", FLOOR): flat(1e-9)}, group=listing.MICRO
    )
    found = Figures(kept)
    assert found.own_cost("a", HAKMEM) == pytest.approx(4e-9)
    assert found.own_cost_mean(SYSTEM) == pytest.approx(8e-9)
    assert any(claim.text.startswith("own cost") and claim.holds for claim in figures.claims(found))


def test_claims_fail_when_they_should(results: Make) -> None:
    good = figures.claims(
        Figures(
            results(
                {("a", HAKMEM): flat(0.5), ("a", SYSTEM): flat(1.0), ("a", "fast"): flat(0.9)},
                rss={HAKMEM: 70, SYSTEM: 80, "fast": 100},
            )
        )
    )
    bad = figures.claims(
        Figures(
            results(
                {("a", HAKMEM): [1.1, 1.5] * 4, ("a", SYSTEM): flat(1.0), ("a", "fast"): flat(0.9)},
                rss={HAKMEM: 200, SYSTEM: 80, "fast": 100},
            )
        )
    )
    assert [claim.holds for claim in good if claim.holds is not None] == [True] * 8
    assert [claim.holds for claim in bad if claim.holds is not None] == [False] * 8


def test_a_pair_that_failed_is_not_in_the_figures(results: Make) -> None:
    kept = results({("a", HAKMEM): flat(1.0), ("a", SYSTEM): flat(2.0)})
    kept.add(session.Failure(round=8, case="a", allocator=SYSTEM, reason="it fell over"))
    found = Figures(kept)
    assert found.median("a", SYSTEM, figures.time_of) is None
    assert found.to_best("a", HAKMEM) is None
    table = tables.failures(found)
    assert table is not None and table.rows == [["a", SYSTEM, "it fell over"]]


# --- what is written -----------------------------------------------------------------------------------------


def tree(folder: Path) -> Path:
    (folder / "docs").mkdir()
    (folder / "docs" / "benchmarks.md").write_text(
        "Before.\n<!-- suite:begin -->\noutdated\n<!-- suite:end -->\nReasons.\n"
    )
    return folder


def test_publish_replaces_only_what_is_between_the_markers(tmp_path: Path, results: Make) -> None:
    kept = results({("a", HAKMEM): flat(0.5), ("a", SYSTEM): flat(1.0), ("a", "fast"): flat(0.9)})
    publish.publish([kept], tree(tmp_path))
    text = (tmp_path / "docs" / "benchmarks.md").read_text()
    assert text.startswith("Before.\n") and text.endswith("<!-- suite:end -->\nReasons.\n") and "outdated" not in text
    assert "| a | 0.556 |" in text and "| about a |" in text and "| hakmem | 0.500 |" in text
    assert "Linux 6.1 y" in text and "6.1.2" not in text
    for name in ("time-memory.svg", "ratios.svg"):
        assert f"(benchmarks/{name})" in text
        drawn = ElementTree.parse(tmp_path / "docs" / "benchmarks" / name).getroot()
        assert drawn.tag.endswith("svg") and len(drawn) > 8
    medians = (tmp_path / "docs" / "benchmarks" / "time.csv").read_text()
    assert medians == "benchmark,hakmem,system,fast\na,500 ms,1 s,900 ms\n"
    again = text
    publish.publish([kept], tmp_path)
    assert (tmp_path / "docs" / "benchmarks.md").read_text() == again


def test_real_programs_have_a_table_from_which_the_readme_is_made(tmp_path: Path, results: Make) -> None:
    loops = results({("a", HAKMEM): flat(0.1), ("a", SYSTEM): flat(1.0), ("a", "fast"): flat(1.0)})
    real = results(
        {("p", HAKMEM): [0.5, 0.6, 0.7], ("p", SYSTEM): [1.0] * 3, ("p", "fast"): [0.9, 0.8, 0.7]},
        group="real", rss={HAKMEM: 1 << 20, SYSTEM: 1 << 20, "fast": 3 << 20},
    )
    publish.publish([loops, real], tree(tmp_path))
    text = (tmp_path / "docs" / "benchmarks.md").read_text()
    assert "| run | 2026-01-01, 8 rounds, seed 1 |" in text and "| run of p | 2026-01-01, 3 rounds, seed 1 |" in text
    rows = gen_readme.real_programs(text)
    assert [(row["name"], row["time"], row["memory"], row["programs"]) for row in rows] == [
        (HAKMEM, 0.6, 1.0, 1), ("fast", 0.8, 3.0, 1), (SYSTEM, 1.0, 1.0, 1)]
    assert " to " in rows[0]["interval"]
    said = {claim.text.split(",")[1]: (claim.found.split(" ")[0], claim.holds) for claim in figures.claims(Figures(real)) if "real programs" in claim.text}
    assert said == {" time": ("0.750", False), " peak memory": ("0.333", True)}, "three rounds from 0.56 to 1 do not say that it is first"
    assert gen_readme.facts(text)["run"].startswith("2026-01-01, 8 rounds")


def test_the_family_has_a_place_of_its_own(tmp_path: Path, results: Make) -> None:
    times = {
        ("plain", HAKMEM): flat(1.0),
        ("plain", "fast"): flat(1.0),
        ("usable", HAKMEM): flat(1.6),
        ("usable", "fast"): flat(1.5),
        ("sized", HAKMEM): flat(1.2),
        ("sized", "fast"): flat(1.0),
        ("huge_hot", HAKMEM): flat(29.0),
        ("huge_hot", "fast"): flat(10.0),
    }
    kept = results(times, group=listing.FAMILY)
    found = Figures(kept)
    assert not found.cases and [case.name for case in found.family] == ["plain", "usable", "sized", "huge_hot"]
    said = {claim.text: claim.found for claim in figures.family_claims(found)}
    assert said == {
        "each member <= 1.15 x the best peer's time, 2 MB <= 3 x": "sized 1.20",
        "none above 1.5 x malloc and free": "usable 1.60",
    }
    where = tree(tmp_path) / "docs" / "benchmarks.md"
    where.write_text(where.read_text() + "<!-- family:begin -->\n<!-- family:end -->\n")
    publish.publish([kept], tmp_path)
    text = where.read_text()
    assert "outdated" in text and "| sized | 1.200 |" in text.partition("family:begin")[2]
    whole = results({**times, ("a", HAKMEM): flat(0.5), ("a", SYSTEM): flat(1.0)})
    whole.head.cases[:4] = [case.model_copy(update={"group": listing.FAMILY}) for case in whole.head.cases[:4]]
    assert [case.name for case in Figures(whole).cases] == ["a"]


def test_a_run_on_musl_has_a_place_of_its_own(tmp_path: Path, results: Make) -> None:
    times = {(case, name): flat(1.0) for case in ("a", "b") for name in (HAKMEM, SYSTEM)}
    kept = results(times, group=listing.REAL, rss={HAKMEM: 13 << 20, SYSTEM: 10 << 20})
    kept.head.machine.facts["C library"] = "musl 1.2.3"
    where = tree(tmp_path) / "docs" / "benchmarks.md"
    where.write_text(where.read_text() + "<!-- musl:begin -->\n<!-- musl:end -->\n")
    publish.publish([kept], tmp_path)
    of_suite, _, of_musl = where.read_text().partition("musl:begin")
    assert "outdated" in of_suite and not (tmp_path / "docs" / "benchmarks").exists()
    assert "| musl 1.2.3 |" in of_musl and "| a | 1.300 | 1.30..1.30 | 10.0 |" in of_musl and "a 1.30, b 1.30 | no |" in of_musl
    leaner = results(times, group=listing.REAL, rss={HAKMEM: 12 << 20, SYSTEM: 10 << 20})
    assert [claim.holds for claim in figures.system_claims(Figures(leaner))] == [True]


def test_publish_needs_its_place_and_results(tmp_path: Path, results: Make) -> None:
    kept = results({("a", HAKMEM): flat(0.5), ("a", SYSTEM): flat(1.0)})
    with pytest.raises(LabError, match="no measured round"):
        publish.publish([Results(head=kept.head)], tree(tmp_path))
    (tmp_path / "docs" / "benchmarks.md").write_text("nothing\n")
    with pytest.raises(LabError, match="has no place"):
        publish.publish([kept], tmp_path)


def test_the_documents_have_their_places() -> None:
    text = (ROOT / publish.DOCUMENT).read_text()
    for name in ("suite", "family", "musl"):
        assert publish.replace(text, name, "body", str(publish.DOCUMENT)).count("body") >= 1


def test_one_round_still_says_something(results: Make) -> None:
    found = Figures(results({("a", HAKMEM): [1.0], ("a", SYSTEM): [2.0]}))
    assert [table.title for table in tables.all_tables(found)][:3] == ["Geometric means", "By benchmark", "Time"]


def test_samples_of_the_warm_up_do_not_count(results: Make) -> None:
    kept = results({("a", HAKMEM): flat(1.0), ("a", SYSTEM): flat(2.0)})
    kept.add(make_sample(0, "a", HAKMEM, 100.0))
    assert Figures(kept).median("a", HAKMEM, figures.time_of) == 1.0


def test_intervals_cover_the_truth_as_often_as_they_say(results: Make) -> None:
    """With the five rounds of the suite; a percentile bootstrap of the median covers it in 93 of 100 cases."""
    random = np.random.default_rng(7)
    covered = 0
    for _ in range(400):
        low, high = figures.interval_of(list(np.exp(random.normal(0.0, 0.05, 5))))
        covered += low <= 1.0 <= high
    assert covered >= 400 * (0.95 - 3 * (0.95 * 0.05 / 400) ** 0.5)


def test_the_interval_of_a_mean_is_that_of_its_rounds(results: Make) -> None:
    values = {("a", HAKMEM): [1.0, 1.1, 0.9, 1.0], ("b", HAKMEM): [2.0, 2.2, 1.8, 2.0]}
    kept = results({**values, ("a", SYSTEM): [1.0] * 4, ("b", SYSTEM): [2.0] * 4})
    mean = Figures(kept).mean_ratio(HAKMEM, SYSTEM, figures.time_of)
    alone = Figures(kept).ratio("a", HAKMEM, SYSTEM)
    assert mean is not None and alone is not None
    assert (mean.low, mean.high) == pytest.approx((alone.low, alone.high))
