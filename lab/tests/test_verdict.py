"""The verdict's rule, its edge cases, and the reasons for no verdict."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hakmem_lab.decide import noise, statistics, verdict
from hakmem_lab.decide.statistics import Interval
from hakmem_lab.measure.results import NOISE, Failure, MachineLoad
from hakmem_lab.terminal.errors import LabError
from tests.conftest import make_experiment


@pytest.mark.parametrize(
    ("gain", "low", "high", "word"),
    [
        (1.0, 0.01, 2.0, "GO"),
        (1.0, 0.0, 2.0, "INCONCLUSIVE"),
        (0.99, 0.5, 1.5, "INCONCLUSIVE"),
        (0.5, 0.1, 0.99, "NO-GO"),
        (0.5, 0.1, 1.0, "INCONCLUSIVE"),
        (-3.0, -5.0, -1.0, "NO-GO"),
        (3.0, -1.0, 7.0, "INCONCLUSIVE"),
        (5.0, -100.0, math.inf, "INCONCLUSIVE"),
    ],
)
def test_rule(gain: float, low: float, high: float, word: str) -> None:
    assert verdict.judge(Interval(gain, low, high, 0.95), 1.0)[0] == word


@pytest.mark.parametrize(
    ("gain", "low", "high", "reason"),
    [
        (1.0, -1.0, 7.0, "the gain reaches +1 %, but its interval contains 0"),
        (3.0, -1.0, 7.0, "the gain reaches +1 %, but its interval contains 0"),
        (0.9, -1.0, 7.0, "the gain is below +1 %, but its interval reaches above"),
    ],
)
def test_why_nothing_is_decided(gain: float, low: float, high: float, reason: str) -> None:
    assert verdict.judge(Interval(gain, low, high, 0.95), 1.0) == ("INCONCLUSIVE", reason)


def steady(mean: float, count: int = 10, spread: float = 0.001) -> list[float]:
    return [mean * (1 + spread * (-1) ** place) for place in range(count)]


def jittered(mean: float, seed: int, count: int = 10, spread: float = 0.002) -> list[float]:
    return [float(each) for each in mean * np.exp(np.random.default_rng(seed).normal(0, spread, count))]


def test_go_for_less_time_and_for_more_throughput() -> None:
    found = verdict.compare(make_experiment({"A": jittered(1.05, 1), "B": jittered(1.0, 2)}), "A", "B")
    assert found.verdict == "GO" and found.gain == pytest.approx(5, abs=0.5)
    found = verdict.compare(make_experiment({"A": jittered(1.0, 1), "B": jittered(1.05, 2)}, higher=True), "A", "B")
    assert found.verdict == "GO" and found.gain == pytest.approx(5, abs=0.5)


def test_no_go() -> None:
    found = verdict.compare(make_experiment({"A": jittered(1.0, 1), "B": jittered(1.0, 2)}), "A", "B")
    assert found.verdict == "NO-GO" and found.runs_needed is None


def test_drift_of_the_machine_does_not_matter() -> None:
    drift = np.linspace(1, 3, 10)
    a, b = jittered(1.05, 1) * drift, jittered(1.0, 2) * drift
    found = verdict.compare(make_experiment({"A": list(a), "B": list(b)}), "A", "B")
    assert found.verdict == "GO" and found.high - found.low < 1


def test_inconclusive_says_how_many_rounds() -> None:
    values = {"A": steady(1.02, spread=0.05), "B": steady(1.0, spread=0.0)}
    found = verdict.compare(make_experiment(values), "A", "B")
    assert found.verdict == "INCONCLUSIVE"
    assert found.runs_needed is not None and found.runs_needed > 10
    assert f"{found.runs_needed} in all" in verdict.more_runs(found)


def test_a_plan_that_was_not_carried_out_gives_no_verdict() -> None:
    values = {"A": jittered(2.0, 1, count=7), "B": jittered(1.0, 2, count=7)}
    found = verdict.compare(make_experiment(values, runs=10), "A", "B")
    assert found.verdict == "INCONCLUSIVE" and "7 of 10" in found.reason


def test_between_two_looks_there_is_no_verdict() -> None:
    looks = statistics.looks(10, 40)
    for count in range(2, 41):
        values = {"A": jittered(2.0, 1, count=count), "B": jittered(1.0, 2, count=count)}
        found = verdict.compare(make_experiment(values, runs=10, max_runs=40), "A", "B")
        assert (found.verdict == "GO") == (count in looks), count
        assert found.confidence > 0.95


def test_a_failing_noise_check_withholds_the_verdict() -> None:
    values = {"A": jittered(1.05, 1), "B": jittered(1.0, 2), NOISE: jittered(1.2, 3)}
    found = verdict.compare(make_experiment(values), "A", "B")
    assert found.noise is not None and not found.noise.passed
    assert found.verdict == "INCONCLUSIVE" and "noise check" in found.reason
    values[NOISE] = jittered(1.05, 4)
    found = verdict.compare(make_experiment(values), "A", "B")
    assert found.noise is not None and found.noise.passed and found.verdict == "GO"


def test_outliers_are_named_and_kept() -> None:
    a, b = jittered(1.0, 1), jittered(1.0, 2)
    b[4] = 2.0
    found = verdict.compare(make_experiment({"A": a, "B": b}), "A", "B")
    assert [each.round for each in found.outliers] == [5]
    assert found.gain < -5 and abs(found.gain_without_outliers or 9) < 1
    assert len(found.gains) == 10


def test_several_comparisons_share_the_error_rate() -> None:
    values = {"A": jittered(1.0, 1), "B": jittered(1.0, 2)}
    alone = verdict.compare(make_experiment(values), "A", "B")
    shared = verdict.compare(make_experiment(values), "A", "B", comparisons=5)
    assert shared.confidence == pytest.approx(0.99)
    assert shared.low < alone.low and shared.high > alone.high


def test_incomplete_rounds_and_failed_configurations_do_not_count() -> None:
    experiment = make_experiment({"A": steady(1.0), "B": steady(1.0), "C": steady(1.0)})
    experiment.runs = [run for run in experiment.runs if (run.round, run.label) != (10, "B")]
    assert len(experiment.rounds()) == 9
    experiment.failures.append(Failure(round=3, label="B", problem="", said=""))
    assert len(experiment.rounds()) == 9 and experiment.failed() == set()  # it was made again
    experiment.failures.append(Failure(round=10, label="B", problem="", said=""))
    assert len(experiment.rounds()) == 10 and "B" not in experiment.rounds()[0]
    with pytest.raises(LabError):
        verdict.compare(experiment, "A", "B")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("+0.5..1.5", (0.5, 1.5)), ("-2 .. -1", (-2, -1)), ("+1", (1, 1)), ("0%..+3%", (0, 3))],
)
def test_prediction(text: str, expected: tuple[float, float]) -> None:
    assert verdict.parse_prediction(text) == expected


@pytest.mark.parametrize("text", ["", "fast", "1..", "1...2"])
def test_bad_prediction(text: str) -> None:
    with pytest.raises(LabError) as caught:
        verdict.parse_prediction(text)
    assert caught.value.message == f"--predict {text}: not a range of gains in %"
    assert caught.value.advice == "Example: --predict '+0.5..1.5'"


def test_a_prediction_the_wrong_way_round_is_put_right() -> None:
    with pytest.raises(LabError) as caught:
        verdict.parse_prediction("2..-1.5")
    assert caught.value.message == "--predict 2..-1.5: the range ends before it begins"
    assert caught.value.advice == "Write '-1.5..2'."


def test_prediction_at_its_edges() -> None:
    found = Interval(1.0, 0.5, 1.5, 0.95)
    assert verdict.held_against((1.0, 3.0), found) == verdict.held_against((-1.0, 1.0), found) == "met"
    assert verdict.held_against((1.5, 3.0), found) == verdict.held_against((-1.0, 0.5), found) == "open"


def test_summary() -> None:
    found = verdict.summarize("x", [1, 2, 4, 9])
    assert (found.label, found.count, found.mean, found.median, found.least, found.most) == ("x", 4, 4.0, 3.0, 1.0, 9.0)
    assert found.cv == pytest.approx(100 * math.sqrt((9 + 4 + 0 + 25) / 3) / 4)
    assert verdict.summarize("x", [1, 3]).cv == pytest.approx(100 * math.sqrt(2) / 2)
    assert verdict.summarize("x", [2.0]).cv == 0.0
    assert verdict.summarize("x", [-1.0, 1.0]).cv == 0.0
    with pytest.raises(ValueError):
        verdict.summarize("x", ["one"])  # type: ignore[list-item]


def made_comparison(**more: object) -> verdict.Comparison:
    values = {"A": steady(1.02, spread=0.05), "B": steady(1.0, spread=0.0)}
    return verdict.compare(make_experiment(values), "A", "B").model_copy(update=more)


def test_what_an_undecided_comparison_needs() -> None:
    assert verdict.more_runs(made_comparison(verdict="GO")) == verdict.more_runs(made_comparison(verdict="NO-GO")) == ""
    noisy = verdict.Noise(gain=5, low=1, high=9, confidence=0.99, passed=False)
    assert verdict.more_runs(made_comparison(noise=noisy)) == "Repeat it on a quieter machine."
    assert verdict.more_runs(made_comparison(noise=noisy.model_copy(update={"passed": True}), runs_needed=12)) == (
        "About 2 more rounds (12 in all) would decide with a probability of 80 %, judging by these."
    )
    assert verdict.more_runs(made_comparison(runs_needed=11)).startswith("About 1 more round (11 in all)")
    assert verdict.more_runs(made_comparison(runs_needed=10)).startswith("About 1 more round (11 in all)")
    assert verdict.more_runs(made_comparison(runs_needed=None)) == (
        "No number of rounds up to 10000 is likely to decide: the gain is too close to the threshold for this noise. "
        "A longer or quieter benchmark, or another threshold, would help."
    )


@pytest.mark.parametrize(
    ("wall", "cpu", "other", "agrees", "word"),
    [
        ("INCONCLUSIVE", "GO", 3.0, True, "GO"),
        ("INCONCLUSIVE", "NO-GO", -3.0, True, "NO-GO"),
        ("INCONCLUSIVE", "GO", -30.0, False, "INCONCLUSIVE"),
        ("INCONCLUSIVE", "INCONCLUSIVE", 3.0, True, "INCONCLUSIVE"),
        ("GO", "NO-GO", 3.0, True, "GO"),
        ("NO-GO", "GO", 3.0, True, "NO-GO"),
    ],
)
def test_processor_time_decides_only_where_wall_time_cannot(
    monkeypatch: pytest.MonkeyPatch, wall: str, cpu: str, other: float, agrees: bool, word: str
) -> None:
    asked = []

    def agree(said: str, first: Interval, second: Interval) -> bool:
        asked.append((said, first, second))
        return agrees

    monkeypatch.setattr(noise, "agree", agree)
    noisy = verdict.Noise(gain=5, low=1, high=9, confidence=0.99, passed=True)
    first = made_comparison(verdict=wall, gain=other, low=other - 9, high=other + 9, runs_needed=55)
    second = made_comparison(verdict=cpu, gain=4.0, low=2.0, high=6.0, reason="it is so", noise=noisy)
    confidence = first.confidence
    found = verdict._combined(first, second)
    assert asked == [
        (cpu, Interval(other, other - 9, other + 9, confidence), Interval(4.0, 2.0, 6.0, second.confidence))
    ]
    assert found.verdict == word
    decided = wall == "INCONCLUSIVE" and word != wall
    assert found.decided_by == ("cpu" if decided else None)
    assert (found.reason == f"{verdict.BY_PROCESSOR_TIME}: it is so") == decided
    kept = Interval(other, other - 9, other + 9, confidence)
    assert verdict.interval_of(found) == (Interval(4.0, 2.0, 6.0, second.confidence) if decided else kept)
    assert found.by_wall_time == (kept if decided else None) and (found.noise == noisy or not decided)
    beside = found.by_processor_time
    assert beside is not None and beside.noise == noisy and beside.reason == "it is so"
    assert (beside.gain, beside.low, beside.high, beside.verdict, beside.agrees) == (4.0, 2.0, 6.0, cpu, agrees)
    assert beside.confidence == second.confidence


def test_prediction_against_outcome() -> None:
    found = Interval(1.0, 0.5, 1.5, 0.95)
    assert verdict.held_against((0.5, 1.5), found) == "met"
    assert verdict.held_against((1.2, 3.0), found) == "open"
    assert verdict.held_against((2.0, 3.0), found) == "missed"
    assert verdict.held_against((-1.0, 0.4), found) == "missed"


def test_the_error_rate_is_that_of_one_comparison_or_is_shared_out() -> None:
    """A busy machine's wall time and processor time share it too."""
    made = make_experiment({"A": jittered(1.02, 1), "B": jittered(1.0, 2)})
    assert verdict.compare(made, "A", "B").confidence == pytest.approx(0.95)
    assert verdict.compare(made, "A", "B", 5).confidence == pytest.approx(0.99)
    beside = MachineLoad(others=1.0, stolen=0.0)
    busy = made.model_copy(
        update={"runs": [run.model_copy(update={"surroundings": beside, "cpu_user_s": run.value}) for run in made.runs]}
    )
    for comparisons in (1, 3):
        found = verdict.compare(busy, "A", "B", comparisons)
        assert found.conditions is not None and found.conditions.busy and found.by_processor_time is not None
        assert found.confidence == pytest.approx(1 - 0.05 / comparisons / 2)
        assert found.by_processor_time.confidence == pytest.approx(1 - 0.05 / comparisons / 2)


def test_the_noise_check_needs_two_rounds() -> None:
    one = make_experiment({"A": [1.0], "B": [1.0], NOISE: [1.0]})
    assert verdict.compare(one, "A", "B").noise is None
    two = verdict.compare(make_experiment({"A": [1.0, 1.1], "B": [1.0, 1.0], NOISE: [1.0, 1.2]}), "A", "B").noise
    assert two is not None and two.passed and two.confidence == pytest.approx(0.99)
    assert verdict.compare(make_experiment({"A": [1.0], "B": [1.0]}), "A", "B").noise is None


def test_a_base_that_differs_from_itself_decides_nothing() -> None:
    away = jittered(1.3, 3)
    for other, word in ((0.9, "GO"), (1.1, "NO-GO")):
        values = {"A": jittered(1.0, 1), "B": jittered(other, 2)}
        assert verdict.compare(make_experiment(values), "A", "B").verdict == word
        found = verdict.compare(make_experiment({**values, NOISE: away}), "A", "B")
        assert found.verdict == "INCONCLUSIVE"
        assert found.reason == "the noise check failed: the base differs from itself"


def test_nothing_to_compare() -> None:
    made = make_experiment({"A": [1.0], "B": [1.0]})
    for base, other, experiment in (
        ("A", "C", made),
        ("C", "A", made),
        ("A", "B", made.model_copy(update={"runs": []})),
        ("A", "B", made.model_copy(update={"runs": made.runs[:1]})),
    ):
        with pytest.raises(LabError) as caught:
            verdict.compare(experiment, base, other)
        assert caught.value.message == "no round is complete: there is nothing to compare"
    assert verdict.compare(made, "A", "B").rounds == 1
