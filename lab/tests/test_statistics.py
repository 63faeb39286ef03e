"""Intervals, outliers and looks on numbers that can be checked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from hakmem_lab import statistics


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
    assert needed is not None
    effect = float(np.mean(gains) / np.std(gains, ddof=1))
    assert statistics.power(needed, effect, 0.95) >= 0.8 > statistics.power(needed - 1, effect, 0.95)
    assert statistics.runs_needed(np.asarray([0.0]), 1.0) is None
