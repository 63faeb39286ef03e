"""Intervals, outliers and looks on numbers that can be checked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from hakmem_lab.decide import statistics


@pytest.mark.parametrize(
    ("base", "other", "higher", "gain"), [(2.0, 1.0, False, 100), (1.0, 2.0, True, 100), (1.0, 2.0, False, -50)]
)
def test_gain_is_above_zero_when_the_other_is_better(base: float, other: float, higher: bool, gain: float) -> None:
    assert statistics.percent(float(statistics.log_gains([base], [other], higher)[0])) == pytest.approx(gain)


def test_interval_is_students() -> None:
    gains = np.log([1.01, 1.03, 1.02, 1.04])
    found = statistics.interval(gains)
    half = stats.t.ppf(0.975, 3) * np.std(gains, ddof=1) / 2
    assert found.low == pytest.approx(100 * math.expm1(float(np.mean(gains)) - half))
    assert found.high == pytest.approx(100 * math.expm1(float(np.mean(gains)) + half))


def test_interval_without_spread_and_of_one_round() -> None:
    same = statistics.interval(np.log([1.02] * 5))
    assert (same.low, same.high) == (same.gain, same.gain) and same.gain == pytest.approx(2.0)
    one = statistics.interval(np.log([1.02]))
    assert (one.low, one.high) == (-100.0, math.inf)


def test_interval_of_wild_values_stays_a_number() -> None:
    found = statistics.interval(np.log([1e-9, 1e9]))
    assert math.isfinite(found.high) and found.low >= -100.0


def test_outliers() -> None:
    sample = [1.0, 1.1, 0.9, 1.05, 0.95, 5.0, 1.0]
    assert statistics.outliers(sample) == [5]
    assert statistics.outliers([1.0, 1.1, 0.9, 1.05]) == []
    assert statistics.outliers([1.0, 1.0, 1.0, 1.0, 9.0]) == []  # without spread the rule does not apply
    assert statistics.outliers([1.0, 9.0]) == []


def test_looks_begin_and_end_as_planned() -> None:
    for first, bound in ((2, 2), (10, 100), (3, 1000), (50, 51)):
        planned = statistics.looks(first, bound)
        assert planned[0] == first and planned[-1] == bound
        assert list(planned) == sorted(set(planned))


def test_look_confidence_lies_between_none_and_bonferroni() -> None:
    planned = statistics.looks(10, 100)
    assert 0.95 < statistics.look_confidence(planned) < 1 - 0.05 / len(planned)
    assert statistics.look_confidence((10,)) == 0.95


def test_look_confidence_is_near_pococks_constant() -> None:
    """Five equal steps of large samples: 2.413 (Pocock 1977)."""
    bound = stats.norm.ppf(0.5 + statistics.look_confidence((2000, 4000, 6000, 8000, 10000)) / 2)
    assert bound == pytest.approx(2.413, abs=0.02)


def test_runs_needed() -> None:
    gains = np.log1p(np.asarray([0.0, 0.04] * 10))
    needed = statistics.runs_needed(gains, 1.0)
    assert needed is not None and needed > 2
    assert statistics.runs_needed(np.asarray([0.0]), 1.0) is None


def test_power_is_that_of_students_test() -> None:
    """Figures of the one-sample t test, two-sided at 5 % (Cohen 1988, and any table of it)."""
    assert statistics.power(10, 1.0, 0.95) == pytest.approx(0.8031, abs=1e-3)
    assert statistics.power(34, 0.5, 0.95) == pytest.approx(0.8077, abs=1e-3)
    assert statistics.power(5, 1.0, 0.95) == pytest.approx(0.4013, abs=1e-3)
    assert statistics.power(10, 0.0, 0.95) == pytest.approx(0.025, abs=1e-6)
    assert statistics.power(10, 1.0, 0.99) < statistics.power(10, 1.0, 0.95)
    assert statistics.power(10000, 1e6, 0.95) == 1.0  # where the distribution's own computing gives up
    assert statistics.power(10000, -1e6, 0.95) == 0.0


def exactly(mean: float, spread: float, count: int) -> statistics.Array:
    """A sample with just this mean and standard deviation."""
    sample = np.asarray([-1.0, 1.0] * (count // 2))
    return np.asarray(mean + sample * spread / np.std(sample, ddof=1), dtype=float)


def test_runs_needed_of_many_rounds_are_those_of_the_power() -> None:
    """Without uncertainty Student's power alone decides."""
    for effect in (0.05, 0.31, 0.5, 1.0):
        for confidence in (0.95, 0.99):
            expected = next(n for n in range(2, 10000) if statistics.power(n, effect, confidence) >= 0.8)
            found = statistics.runs_needed(exactly(effect, 1.0, 1_000_000), 1.0, confidence)
            assert found is not None and abs(found - expected) <= 0.01 * expected
    one = math.log1p(0.01)
    below = statistics.runs_needed(exactly(one - 0.03, 0.03, 1_000_000), 1.0)  # to be told from the threshold
    above = statistics.runs_needed(exactly(one + 0.03, 0.03, 1_000_000), 1.0)  # to be told from 0
    assert below == 10 and above is not None and above < 10


def test_runs_needed_of_few_rounds_are_more() -> None:
    many = [statistics.runs_needed(exactly(0.03, 0.06, count), 1.0) for count in (10, 100, 10_000)]
    found = [each for each in many if each is not None]
    assert len(found) == len(many) and found == sorted(found, reverse=True)
    assert found[-1] == 34  # the power's
    assert statistics.runs_needed(exactly(0.03, 1e-6, 10), 1.0) == 2


def test_runs_needed_gives_that_chance_to_a_new_experiment() -> None:
    """For pilots drawn from the assurance's distribution, 80 % of the following experiments decide."""
    random = np.random.default_rng(11)
    count, mean, spread = 10, 0.05, 0.06
    gains = exactly(mean, spread, count)
    needed = statistics.runs_needed(gains, 1.0)
    assert needed is not None
    decided = []
    for _ in range(4000):
        true_spread = spread * math.sqrt((count - 1) / random.chisquare(count - 1))
        truth = random.normal(mean, true_spread / math.sqrt(count))
        sample = random.normal(truth, true_spread, needed)
        aim = 0.0 if truth >= math.log1p(0.01) else math.log1p(0.01)
        half = stats.t.ppf(0.975, needed - 1) * np.std(sample, ddof=1) / math.sqrt(needed)
        away = float(np.mean(sample)) - aim if aim == 0.0 else aim - float(np.mean(sample))
        decided.append(away > half)
    assert np.mean(decided) == pytest.approx(statistics.POWER, abs=0.03)


def test_runs_that_no_number_would_do() -> None:
    assert statistics.runs_needed(np.asarray([0.5]), 1.0) is None
    assert statistics.runs_needed(np.asarray([0.5, 0.5]), 1.0) is None  # no spread: there is nothing to wait for
    one = math.log1p(0.01)
    assert statistics.runs_needed(exactly(one - 1e-6, 0.5, 100_000), 1.0) is None  # too near to the threshold
    assert statistics.runs_needed(exactly(0.0, 0.01, 1_000_000), 0.0) is None  # no gain, and none is asked for
    assert statistics.runs_needed(exactly(0.0, 1.0, 2), 1.0) is not None


def test_difference_is_welchs() -> None:
    now, then = np.asarray([0.1, 0.2, 0.15, 0.12]), np.asarray([0.5, 0.1, 0.3])
    found = statistics.difference(now, then, 0.9)
    a, b = np.var(now, ddof=1) / 4, np.var(then, ddof=1) / 3
    freedom = (a + b) ** 2 / (a**2 / 3 + b**2 / 2)
    half = stats.t.ppf(0.95, freedom) * math.sqrt(a + b)
    mean = float(np.mean(now) - np.mean(then))
    expected = [100 * math.expm1(float(each)) for each in (mean, mean - half, mean + half)]
    assert [found.gain, found.low, found.high] == pytest.approx(expected)
    assert found.confidence == 0.9
    wide = statistics.difference(np.asarray([0.0, 900.0]), np.asarray([0.0, 0.1]), 0.95)
    assert math.isfinite(wide.high) and wide.high > 1e300 and wide.low == pytest.approx(-100.0)


def test_difference_without_spread() -> None:
    same = statistics.difference(np.asarray([0.3] * 3), np.asarray([0.1] * 2), 0.9)
    assert [same.gain, same.low, same.high] == pytest.approx([100 * math.expm1(0.2)] * 3)
    assert same.confidence == 0.9
    for now, then in (([0.3, 0.3], [0.1, 0.4]), ([0.1, 0.4], [0.3, 0.3])):
        found = statistics.difference(np.asarray(now), np.asarray(then))
        assert found.low < found.gain < found.high


def test_least_p_values_are_those_of_the_test() -> None:
    """For one look they are uniform in [0, 1]; for more they are smaller, as in a plain simulation."""
    one = statistics._least_p_values((7,))
    assert np.quantile(one, [0.05, 0.5, 0.95]) == pytest.approx([0.05, 0.5, 0.95], abs=0.005)
    planned = (3, 4, 9)
    random = np.random.default_rng(3)
    sample = random.normal(0, 1, (50_000, 9))
    each = [stats.ttest_1samp(sample[:, :look], 0.0, axis=1).pvalue for look in planned]
    plain = np.quantile(np.min(np.asarray(each, dtype=float), axis=0), [0.02, 0.05, 0.2, 0.5])
    assert np.quantile(statistics._least_p_values(planned), [0.02, 0.05, 0.2, 0.5]) == pytest.approx(plain, rel=0.06)
    assert np.array_equal(statistics._least_p_values(planned), statistics._least_p_values(planned))


def test_look_confidence_errs_to_the_safe_side() -> None:
    """By three standard errors of its own simulation, no more."""
    planned = (5, 10, 20)
    least = statistics._least_p_values(planned)
    share = float(np.mean(least < 1 - statistics.look_confidence.__wrapped__(planned, 0.9)))
    assert share == pytest.approx(0.1 - 3 * math.sqrt(0.1 * 0.9 / statistics.PATHS), abs=2e-5)


def test_outliers_need_four_values_and_a_distance() -> None:
    assert statistics.outliers([1.0, 1.1, 9.0]) == []
    assert statistics.outliers([1.0, 1.1, 1.2, 9.0]) == [3]
    # The deviation from the median 2 is 1 in the middle: 1.4826 are one standard deviation.
    base = [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]
    assert statistics.outliers([*base, 2.0 + 3.49 * 1.4826]) == []
    assert statistics.outliers([*base, 2.0 + 3.51 * 1.4826]) == [6]
    assert statistics.outliers([2.0 - 3.51 * 1.4826, *base]) == [0]
