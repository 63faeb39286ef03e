"""The search of `hakmem tune` on a simulated program whose times follow from its environment, so that everything that
the search does and says is known in advance."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from hakmem_lab.experiment import search, search_space
from hakmem_lab.experiment.search import Search, SearchPlan
from hakmem_lab.measure import one_run, results
from hakmem_lab.measure.one_run import Outcome, RunFailed
from hakmem_lab.measure.results import MetricModel
from hakmem_lab.terminal.errors import INTERRUPTED, LabError
from tests.conftest import files_of_at_most

RING = "HAKMEM_L2_RING_CAP"
REFILL = "HAKMEM_REFILL_COUNT"
Environment = dict[str, str]


class Program:
    """Simulates all runs of a program; `time` gives the seconds for an environment."""

    def __init__(self) -> None:
        self.time: Callable[[Environment], float] = lambda _: 1.0
        self.runs: list[tuple[list[str], Environment, float | None]] = []

    def run(self, command: list[str], environment: Environment, timeout_s: float | None) -> Outcome:
        self.runs.append((command, environment, timeout_s))
        return Outcome(0, self.time(environment), 0.0, 0.0, 1 << 20, 0, 0, 0, "")


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Program:
    made = Program()
    monkeypatch.setattr(one_run, "run", made.run)
    return made


Begin = Callable[..., Search]


@pytest.fixture
def begin(hakmem_library: Path, tmp_path: Path) -> Begin:
    def create(name: str = "made.study", **more: Any) -> Search:
        plan = {
            "command": ["true"],
            "typed": "hakmem tune -- true",
            "base": "",
            "library": str(hakmem_library),
            "digest": results.digest(hakmem_library),
            "metric": MetricModel(name="time", higher_is_better=False, unit="s"),
            "options": ["l2_ring_cap", "refill_count"],
            "budget_s": 600.0,
            "trials": 12,
            "rounds": 2,
            "runs": 3,
            "threshold": 1.0,
            "seed": 5,
            "timeout_s": 7.5,
        }
        return Search.create(SearchPlan.model_validate(plan | more), tmp_path / name)

    return create


def test_a_full_disk_leaves_no_search_without_a_plan(tmp_path: Path, begin: Begin) -> None:
    with files_of_at_most(100), pytest.raises((LabError, OSError)):
        begin()
    assert not list(tmp_path.glob("*.study"))


def refusal(call: Callable[[], object]) -> tuple[str, str | None]:
    with pytest.raises(LabError) as caught:
        call()
    return caught.value.message, caught.value.advice


def ring(environment: Environment) -> int:
    return int(environment.get(RING, "48"))


def test_what_is_better_is_found_and_said(begin: Begin, program: Program) -> None:
    program.time = lambda environment: 0.5 if ring(environment) >= 192 else 1.0
    made = begin()
    assert made.best() is None and made.trials() == [] and made.tried() == 0
    made.run(0.001)
    trials = made.trials()
    assert [each.number for each in trials] == list(range(1, 13))
    assert made.tried() == 12 == len({each.text for each in trials})
    for each in trials:
        assert each.values.keys() == {"l2_ring_cap", "refill_count"}
        good = int(each.values["l2_ring_cap"]) >= 192
        if each.state == "complete":
            assert each.gains == pytest.approx([100.0, 100.0] if good else [0.0, 0.0])
            assert each.gain == pytest.approx(100.0 if good else 0.0)
        assert "l2_ring_cap=48" not in each.text and "refill_count=32" not in each.text
    best = made.best()
    assert best is not None and best.gain == pytest.approx(100.0) and int(best.values["l2_ring_cap"]) >= 192
    default, other = made.configurations(best)
    assert (default.label, other.label, other.text) == ("A", "B", best.text)
    assert other.allocator == default.allocator
    names = {"l2_ring_cap": RING, "refill_count": REFILL}
    assert other.settings == {names[part.split("=")[0]]: part.split("=")[1] for part in best.text.split()}


def test_each_round_runs_the_default_and_the_setting_once(begin: Begin, program: Program) -> None:
    made = begin(trials=3, rounds=4)
    made.run(0.001)
    assert len(program.runs) == 3 * 4 * 2
    orders = set()
    for place in range(0, len(program.runs), 2):
        both = [run[1].get(RING, "") + "/" + run[1].get(REFILL, "") for run in program.runs[place : place + 2]]
        assert both.count("/") == 1 and both[0] != both[1]
        orders.add(both.index("/"))
    assert orders == {0, 1}  # in random order
    command = one_run.resolve(["true"])
    assert all(run[0] == command and run[2] == 7.5 for run in program.runs)
    assert all("LD_PRELOAD" in run[1] for run in program.runs)


def test_larger_numbers_are_better_where_the_metric_says_so(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_command: list[str], environment: Environment, _timeout_s: float | None) -> Outcome:
        return Outcome(0, 1.0, 0.0, 0.0, 1 << 20, 0, 0, 0, f"ops={2000 if ring(environment) > 48 else 1000}")

    monkeypatch.setattr(one_run, "run", run)
    made = begin(metric=MetricModel(name="ops=([0-9]+)", higher_is_better=True, unit=""), options=["l2_ring_cap"])
    made.run(0.001)
    gains = {int(each.values["l2_ring_cap"]) > 48: each.gain for each in made.trials() if each.gains}
    assert gains[True] == pytest.approx(100.0) and gains[False] == pytest.approx(0.0)


def test_nothing_is_chosen_where_nothing_is_better(begin: Begin, program: Program) -> None:
    program.time = lambda environment: 1.0 + (RING in environment) + (REFILL in environment)
    made = begin(trials=6)
    made.run(0.001)
    assert made.tried() == 6 and made.best() is None


def test_every_setting_is_tried_once_when_there_are_few(begin: Begin, program: Program) -> None:
    made = begin(options=["refill_count"], trials=None, rounds=1)
    (axis,) = made.axes
    made.run(0.001)
    found = sorted(int(each.values["refill_count"]) for each in made.trials())
    assert found == sorted(int(each) for each in axis.values if each != axis.standard)
    assert not made._one_more()  # none is left


def test_a_bad_setting_is_given_up_early(begin: Begin, program: Program) -> None:
    program.time = lambda environment: 20.0 if ring(environment) < 20 else 1.0 / ring(environment)
    made = begin(rounds=6, trials=25)
    made.run(0.001)
    trials = made.trials()
    pruned = [each for each in trials if each.state == "pruned"]
    assert pruned and all(len(each.gains) < 6 for each in pruned)
    assert all(len(each.gains) == 6 for each in trials if each.state == "complete")
    assert all(each.state == "complete" for each in trials[:5])  # until there is something to compare with
    assert all(int(each.values["l2_ring_cap"]) < 20 for each in pruned)


def test_none_is_given_up_in_its_last_round(begin: Begin, program: Program) -> None:
    """Even if all but the best few look hopeless after the only round."""
    program.time = lambda environment: 1.0 + ring(environment) / 100
    made = begin(rounds=1, trials=30)
    made.run(1.0)
    assert len(made.trials()) == 30
    assert {each.state for each in made.trials()} == {"complete"}


def test_giving_up_begins_after_five_trials(begin: Begin, program: Program) -> None:
    """The first five are fully measured; each later one is far worse than those before it, and is abandoned."""
    asked: list[str] = []

    def time_of(environment: Environment) -> float:
        mark = f"{environment.get(RING)} {environment.get(REFILL)}"
        if RING not in environment and REFILL not in environment:
            return 1.0
        if mark not in asked:
            asked.append(mark)
        return 2.0 ** len(asked)

    program.time = time_of
    made = begin(rounds=4, trials=10)
    made.run(1.0)
    assert [each.state for each in made.trials()] == ["complete"] * 5 + ["pruned"] * 5


def test_a_setting_with_which_the_program_fails_is_kept_as_such(begin: Begin, program: Program) -> None:
    def seconds(environment: Environment) -> float:
        if ring(environment) > 48:
            raise RunFailed("it broke", "mend it")
        return 1.0

    program.time = seconds
    made = begin(trials=10)
    made.run(0.001)
    failed = [each for each in made.trials() if each.state == "failed"]
    assert failed and all(int(each.values["l2_ring_cap"]) > 48 and each.gain is None for each in failed)
    problems = [each.user_attrs.get("problem") for each in made.study.trials if each.state == TrialState.FAIL]
    assert "it broke" in problems
    assert made.tried() == 10


def test_a_default_that_fails_ends_the_search(begin: Begin, program: Program) -> None:
    def seconds(environment: Environment) -> float:
        if RING not in environment and REFILL not in environment:
            raise RunFailed("it broke", "mend it")
        return 1.0

    program.time = seconds
    made = begin()
    said = ("with the default settings: it broke", "mend it")
    assert refusal(made.warm_up) == said
    assert refusal(lambda: made.run(0.001)) == said


def test_the_budget_leaves_room_for_the_decision(begin: Begin, program: Program) -> None:
    made = begin(budget_s=28.0)
    assert made.budget(1.0) == 28.0 - 3 * 4 * 1.0
    made = begin("second.study", budget_s=27.9)
    assert refusal(lambda: made.budget(1.0)) == (
        "--budget 28s is too short: a run takes 1.00 s, so the decision alone takes 12 s",
        "Give --budget 1m or more, or a shorter program.",
    )
    assert "--budget 2m or more" in str(refusal(lambda: made.budget(2.2))[1])
    assert 0 <= made.warm_up() < 60 and len(program.runs) == 1


def test_the_search_ends_with_its_budget(begin: Begin, program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])

    def seconds(_environment: Environment) -> float:
        clock[0] += 10.0
        return 1.0

    program.time = seconds
    made = begin(trials=None, budget_s=100.0, rounds=1)
    made.run(1.0)  # the decision needs 12 s of them
    assert made.spent_s == 100.0 and made.tried() == 5
    assert made.study.user_attrs["spent_s"] == 100.0


def test_an_interrupted_search_goes_on(begin: Begin, program: Program, tmp_path: Path) -> None:
    def seconds(_environment: Environment) -> float:
        if len(program.runs) > 10:
            raise KeyboardInterrupt
        return 1.0

    program.time = seconds
    made = begin()
    path = tmp_path / "made.study"
    with pytest.raises(LabError) as caught:
        made.run(0.001)
    assert caught.value.message == f"interrupted; 2 trials kept in {path}"
    assert caught.value.advice == f"Go on with: hakmem tune --resume {path}"
    assert caught.value.status == INTERRUPTED
    program.time = lambda _: 1.0
    again = Search.load(path)
    assert again.plan == made.plan and again.trials() == made.trials()
    assert not again.study.get_trials(states=[TrialState.RUNNING])
    assert again.spent_s >= made.study.user_attrs["spent_s"] > 0
    again.run(0.001)
    assert again.tried() == 12
    assert refusal(begin) == (f"{path} exists already", f"Go on with it: hakmem tune --resume {path}")


def test_files_that_are_no_search(begin: Begin, tmp_path: Path) -> None:
    missing = tmp_path / "none.study"
    assert refusal(lambda: Search.load(missing)) == (
        f"cannot read {missing}: no such file",
        "Give the .study file of an earlier search.",
    )
    bad = tmp_path / "bad.study"
    bad.write_text("no journal\n")
    assert refusal(lambda: Search.load(bad)) == (
        f"{bad} is not a search of hakmem tune",
        "Give the .study file beside results.",
    )
    (tmp_path / "file").write_text("")
    message, advice = refusal(lambda: begin("file/x.study"))
    assert message.startswith(f"cannot write {tmp_path}/file/x.study: ") and "None" not in message
    assert advice == "Choose another place with --out."
    begin("deep/er/x.study")
    assert (tmp_path / "deep" / "er" / "x.study").is_file()


def test_what_cannot_be_searched(begin: Begin, hakmem_library: Path) -> None:
    message, advice = refusal(lambda: begin(digest="0"))
    assert re.fullmatch(r"\S*libhakmem\.so\S* is not the build with which the search began", message)
    assert advice == "Build the measured version again, or start a new search."
    assert refusal(lambda: begin("system.study", base="alloc:system")) == (
        "--with alloc:system: only HAKMEM's options can be tuned",
        "Leave out alloc:, or give lib:PATH.",
    )
    taken = " ".join(f"{each.name}={each.standard}" for each in search_space.axes(hakmem_library, {}, []))
    assert refusal(lambda: begin("all.study", base=taken, options=[])) == (
        "there is nothing to search: --with sets all options",
        "Leave some of them free.",
    )


def test_the_base_holds_in_all_runs(begin: Begin, program: Program) -> None:
    made = begin(base="purge_delay=100ms refill_count=64", trials=4)
    made.run(0.001)
    assert all(run[1]["HAKMEM_PURGE_DELAY"] == "100ms" for run in program.runs)
    assert {run[1][REFILL] for run in program.runs} > {"64"}
    assert made.default.settings == {"HAKMEM_PURGE_DELAY": "100ms", REFILL: "64"}


def test_presets_are_proposed_and_bands_only_with_the_usual_one(begin: Begin, program: Program) -> None:
    made = begin(options=["preset", "tiny_unified_c3", "l2_ring_cap"], trials=30, rounds=1)
    made.run(0.001)
    trials = made.trials()
    standard = next(axis.standard for axis in made.axes if axis.name == "preset")
    assert {each.values["preset"] for each in trials} > {standard}
    assert all(("tiny_unified_c3" in each.values) == (each.values["preset"] == standard) for each in trials)


def test_a_random_setting_is_proposed_when_all_others_are_known(begin: Begin, program: Program) -> None:
    made = begin(options=["refill_count"])
    (axis,) = made.axes
    texts = {f"refill_count={value}" for value in axis.values if value != axis.standard}
    left = sorted(texts)[0]
    assert made._enqueue_new(texts - {left})
    trial = made.study.ask()
    assert search_space.text(made.axes, made._propose(trial)) == left
    assert not made._enqueue_new(texts)


def test_seeds_decide_the_proposals(begin: Begin, program: Program) -> None:
    def texts(name: str, seed: int) -> list[str]:
        made = begin(name, seed=seed)
        made.run(0.001)
        return [each.text for each in made.trials()]

    assert texts("a", 1) == texts("b", 1) != texts("c", 2)


@pytest.mark.parametrize(
    ("base", "text", "both"),
    [
        ("", "a=1", "a=1"),
        ("b=2", "a=1", "b=2 a=1"),
        ("HAKMEM_A=7 b=2", "a=1", "b=2 a=1"),
        ("A=7", "a=1", "a=1"),
        ("b=2", "", "b=2"),
        ("'lib:/a b' X=c=d", "a=1 e=2", "'lib:/a b' X=c=d a=1 e=2"),
    ],
)
def test_settings_take_the_place_of_the_bases_own(base: str, text: str, both: str) -> None:
    assert search.combined(base, text) == both


def test_one_lucky_round_does_not_win() -> None:
    assert search._cautious([10.0]) == pytest.approx(math.log(1.1))
    logs = [math.log(1.1), math.log(1.3), math.log(1.2)]
    mean = sum(logs) / 3
    deviation = math.sqrt(sum((each - mean) ** 2 for each in logs) / 2)
    assert search._cautious([10.0, 30.0, 20.0]) == pytest.approx(mean - deviation / math.sqrt(3))
    assert search._mean_log([10.0, 30.0, 20.0]) == pytest.approx(mean)
    assert search._cautious([10.0, 10.0]) > search._cautious([0.0, 25.0])


def test_studies_are_quiet(begin: Begin, program: Program, capfd: pytest.CaptureFixture[str]) -> None:
    made = begin(trials=2)
    made.run(0.001)
    assert optuna.logging.get_verbosity() == optuna.logging.ERROR
    assert made.study.study_name == "tune" and made.study.direction == optuna.study.StudyDirection.MAXIMIZE
    assert not re.search(r"Trial \d", "".join(capfd.readouterr()))
    assert search.build_digest(made.default) == made.plan.digest
