"""The verdicts' error rates, on synthetic experiments whose truth is known.

Each case simulates 2,000 experiments as the lab sees them: values of A and B in interleaved rounds, with noise, a
drift of the machine, steps and outliers.  A rate that is stated to be at most p may exceed it by Monte-Carlo error:
the test allows what a binomial count of probability p exceeds once in a thousand.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from hakmem_lab.decide import statistics
from hakmem_lab.decide.statistics import Array
from hakmem_lab.decide.verdict import judge

EXPERIMENTS = 2000
THRESHOLD = 1.0
FALSE_GO = 0.025
NOISES = (0.5, 1.0, 2.0, 5.0)  # standard deviation of one run, in %
LOOKS = statistics.looks(10, 100)


def allowed(rate: float, experiments: int = EXPERIMENTS) -> float:
    """The greatest observed rate that is compatible with `rate`."""
    return float(stats.binom.ppf(0.999, experiments, rate)) / experiments


def seconds(
    random: np.random.Generator, rounds: int, effect: float, noise: float, disturbance: str
) -> tuple[Array, Array]:
    """The times of A and B, experiments x rounds: B is `effect` % faster."""
    shape = (EXPERIMENTS, rounds)
    a, b = (np.exp(random.normal(0.0, noise / 100, shape)) for _ in range(2))
    machine = np.ones(shape)
    if disturbance == "drift":  # slower by a tenth until the end, and a step in the middle
        machine = machine * np.linspace(1.0, 1.1, rounds)
        machine[:, rounds // 2 :] *= 1.05
    if disturbance == "outliers":  # one run in ten takes 5 to 30 % longer
        a, b = (each * np.where(random.random(shape) < 0.1, random.uniform(1.05, 1.3, shape), 1.0) for each in (a, b))
    if disturbance == "skewed":  # most runs near the best, a long tail
        a, b = (1.0 + random.exponential(noise / 100, shape) for _ in range(2))
    return a * machine, b * machine / (1.0 + effect / 100)


def verdicts(a: Array, b: Array, confidence: float = statistics.CONFIDENCE) -> list[str]:
    """The verdict of each experiment."""
    gains = statistics.log_gains(a, b, higher_is_better=False)
    return [judge(found, THRESHOLD)[0] for found in statistics.intervals(gains, confidence)]


def shares(words: list[str]) -> dict[str, float]:
    return {each: words.count(each) / len(words) for each in ("GO", "NO-GO", "INCONCLUSIVE")}


def fixed_rates(effect: float, noise: float, disturbance: str, rounds: int = 10) -> dict[str, float]:
    """How often each verdict is given after a fixed number of rounds."""
    random = np.random.default_rng([int(effect * 10) + 100, int(noise * 10), len(disturbance), rounds])
    return shares(verdicts(*seconds(random, rounds, effect, noise, disturbance)))


def sequential_rates(effect: float, noise: float, disturbance: str) -> tuple[dict[str, float], float]:
    """The same with --until-decided, and the mean number of rounds."""
    random = np.random.default_rng([int(effect * 10) + 200, int(noise * 10), len(disturbance)])
    a, b = seconds(random, LOOKS[-1], effect, noise, disturbance)
    confidence = statistics.look_confidence(LOOKS)
    words, used = ["INCONCLUSIVE"] * EXPERIMENTS, [LOOKS[-1]] * EXPERIMENTS
    for look in LOOKS:
        for place, found in enumerate(verdicts(a[:, :look], b[:, :look], confidence)):
            if words[place] == "INCONCLUSIVE" and found != "INCONCLUSIVE":
                words[place], used[place] = found, look
    return shares(words), float(np.mean(used))


DISTURBANCES = ("none", "drift", "outliers", "skewed")


@pytest.mark.parametrize("disturbance", DISTURBANCES)
@pytest.mark.parametrize("noise", NOISES)
def test_false_go_without_effect(noise: float, disturbance: str) -> None:
    assert fixed_rates(0.0, noise, disturbance)["GO"] <= allowed(FALSE_GO)


@pytest.mark.parametrize("rounds", [2, 3, 5, 20])
def test_false_go_at_other_numbers_of_rounds(rounds: int) -> None:
    assert fixed_rates(0.0, 5.0, "none", rounds)["GO"] <= allowed(FALSE_GO)


@pytest.mark.parametrize("disturbance", DISTURBANCES)
@pytest.mark.parametrize("effect", [1.0, 3.0])
@pytest.mark.parametrize("noise", NOISES)
def test_false_no_go_when_it_is_worth_having(noise: float, effect: float, disturbance: str) -> None:
    """A gain at the threshold or above is refused no more often than the interval allows."""
    assert fixed_rates(effect, noise, disturbance)["NO-GO"] <= allowed(FALSE_GO)


@pytest.mark.parametrize("effect", [0.0, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("disturbance", ["none", "drift"])
def test_the_interval_holds_the_truth(effect: float, disturbance: str) -> None:
    random = np.random.default_rng(int(effect * 10) + 7)
    a, b = seconds(random, 10, effect, 2.0, disturbance)
    found = statistics.intervals(statistics.log_gains(a, b, higher_is_better=False))
    held = sum(each.low <= effect <= each.high for each in found)
    assert 1 - held / EXPERIMENTS <= allowed(0.05)
    assert held / EXPERIMENTS <= 1 - float(stats.binom.ppf(0.001, EXPERIMENTS, 0.05)) / EXPERIMENTS  # nor too wide


def test_real_effects_are_found() -> None:
    """Rates that a careless widening of the intervals would spoil."""
    assert fixed_rates(3.0, 1.0, "none")["GO"] > 0.99
    assert fixed_rates(3.0, 2.0, "drift")["GO"] > 0.80
    assert fixed_rates(0.0, 0.5, "none")["NO-GO"] > 0.90
    assert fixed_rates(0.5, 0.5, "drift")["GO"] < 0.05


@pytest.mark.parametrize("disturbance", DISTURBANCES)
@pytest.mark.parametrize("noise", NOISES)
def test_false_go_until_decided(noise: float, disturbance: str) -> None:
    rates, _ = sequential_rates(0.0, noise, disturbance)
    assert rates["GO"] <= allowed(FALSE_GO)


@pytest.mark.parametrize("noise", [1.0, 5.0])
def test_false_no_go_until_decided(noise: float) -> None:
    rates, _ = sequential_rates(1.0, noise, "none")
    assert rates["NO-GO"] <= allowed(FALSE_GO)


def test_until_decided_decides_and_saves_runs() -> None:
    rates, rounds = sequential_rates(3.0, 2.0, "outliers")
    assert rates["GO"] > 0.60
    rates, rounds = sequential_rates(3.0, 2.0, "none")
    assert rates["GO"] > 0.99
    assert rounds < 20
    rates, rounds = sequential_rates(0.0, 1.0, "none")
    assert rates["NO-GO"] > 0.95
    assert rounds < 50


def test_a_plain_interval_at_every_look_would_not_do() -> None:
    """The reason for the wider intervals: the simulation detects the error of repeated looks."""
    random = np.random.default_rng(5)
    a, b = seconds(random, LOOKS[-1], 0.0, 5.0, "none")
    at_looks = [verdicts(a[:, :look], b[:, :look]) for look in LOOKS]
    wrong = sum("GO" in words for words in zip(*at_looks, strict=True))
    assert wrong / EXPERIMENTS > allowed(FALSE_GO)


def test_a_percentile_bootstrap_at_ten_rounds_would_not_do() -> None:
    """The reason for Student's interval: the simulation detects that a percentile bootstrap is too narrow."""
    random = np.random.default_rng(6)
    gains = random.normal(0.0, 0.05, (EXPERIMENTS, 10))
    picks = random.integers(0, 10, (500, 10))
    low = np.quantile(gains[:, picks].mean(axis=2), 0.025, axis=1)
    assert np.mean(low > 0) > allowed(FALSE_GO)


def test_runs_needed_gives_the_power_it_states() -> None:
    """An experiment of that many rounds decides in about 80 % of the cases."""
    random = np.random.default_rng(8)
    pilot = random.normal(np.log(1.02), 0.04, 4000)
    pilot = (pilot - pilot.mean()) / pilot.std(ddof=1) * 0.04 + np.log(1.02)
    needed = statistics.runs_needed(pilot, THRESHOLD)
    assert needed is not None
    gains = random.normal(np.log(1.02), 0.04, (EXPERIMENTS, needed))
    assert abs(float(np.mean([each.low > 0 for each in statistics.intervals(gains)])) - statistics.POWER) < 0.04
