"""From paired runs to an interval of the gain.  All computing is scipy's; this file says what is computed and why.

The unit is the round: each configuration runs once in it, in random order, so the machine's drift meets both
sides of a round's ratio.  The logarithms of these ratios are taken as a sample, and its mean has Student's
interval (one sample, n - 1 degrees of freedom).  It was chosen over a percentile bootstrap because that is too narrow
at 10 rounds (its intervals lack the factor sqrt(n / (n - 1)) and the tails of t), and over Welch's because pairing
removes drift.  Differences of exchangeable runs are symmetric, for which Student's interval errs to the safe side
when there are outliers.

Until decided: the rounds' results are looked at several times, and looking often is what breaks a plain interval. The
looks are planned before the first run, and each uses the interval of the same, higher confidence: Pocock's bounds
(Biometrika 64, 1977) as repeated confidence intervals (Jennison and Turnbull, J. R. Statist. Soc. B 51, 1989), which
hold at all looks together with the stated probability, whatever rule stops the experiment.  The published constants
are for large samples and equal steps, so the level is found here by simulating Student's statistic at just these looks.
tests/test_error_rates.py checks all of this by simulation.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

CONFIDENCE = 0.95
NOISE_CONFIDENCE = 0.99  # of the noise check: one honest experiment in a hundred is refused
POWER = 0.8
RUNS_CEILING = 10_000  # more rounds than anybody would wait for
OUTLIER_SCORE = 3.5
OUTLIER_RULE = "modified z-score above 3.5 (Iglewicz and Hoaglin: distance from the median over 1.4826 MAD)"
LARGEST_LOG = 700.0  # the exponential of more is no number
PATHS = 200_000  # of the simulation for look_confidence
LOOK_GROWTH = 1.4  # from one look to the next: few looks, yet no more than 40 % of the runs too many

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A gain in %, with the interval in which it lies with this confidence."""

    gain: float
    low: float
    high: float
    confidence: float


def percent(log_gain: float) -> float:
    """A logarithm of a ratio as a gain in %."""
    return 100.0 * math.expm1(log_gain)


def log_gains(base: Sequence[float] | Array, other: Sequence[float] | Array, higher_is_better: bool) -> Array:
    """The logarithms of the rounds' ratios, above 0 where `other` is better.  All values must be above 0."""
    ratio: Array = np.log(np.asarray(other, dtype=float)) - np.log(np.asarray(base, dtype=float))
    return ratio if higher_is_better else -ratio


def intervals(gains: Array, confidence: float = CONFIDENCE) -> list[Interval]:
    """Student's interval of the mean of logarithms, in %, for each row of at least two rounds."""
    means = np.mean(gains, axis=-1)
    found = stats.ttest_1samp(gains, 0.0, axis=-1).confidence_interval(confidence)
    rows = np.expm1(np.minimum(np.stack([means, found.low, found.high], axis=-1), LARGEST_LOG)) * 100.0
    return [Interval(row[0], row[1], row[2], confidence) for row in np.atleast_2d(rows).tolist()]


def interval(gains: Array, confidence: float = CONFIDENCE) -> Interval:
    """The interval of one sample.

    One value tells nothing of its spread: the interval is infinite.  Values without any spread (a peak of memory
    that is the same in every round) are their own interval."""
    mean = percent(float(np.mean(gains)))
    if len(gains) < 2:
        return Interval(mean, -100.0, math.inf, confidence)
    if np.ptp(gains) <= 1e-12:
        return Interval(mean, mean, mean, confidence)
    return intervals(gains, confidence)[0]


def difference(now: Array, then: Array, confidence: float = CONFIDENCE) -> Interval:
    """The difference of two samples' means of logarithms, in %, with Welch's interval; each has at least two values.

    Samples without any spread (a peak of memory that never changes) have their difference as interval."""
    mean = float(np.mean(now) - np.mean(then))
    if np.ptp(now) <= 1e-12 and np.ptp(then) <= 1e-12:
        return Interval(percent(mean), percent(mean), percent(mean), confidence)
    bounds = stats.ttest_ind(now, then, equal_var=False).confidence_interval(confidence)
    low, high = (percent(min(float(each), LARGEST_LOG)) for each in (bounds.low, bounds.high))
    return Interval(percent(mean), low, high, confidence)


def outliers(values: Sequence[float] | Array) -> list[int]:
    """The places of the values that OUTLIER_RULE names.  They are reported, and stay in every figure."""
    sample = np.asarray(values, dtype=float)
    if len(sample) < 4:
        return []
    spread = float(stats.median_abs_deviation(sample, scale="normal"))
    if spread == 0.0:
        return []
    return [int(place) for place in np.flatnonzero(np.abs(sample - np.median(sample)) / spread > OUTLIER_SCORE)]


def looks(first: int, bound: int) -> tuple[int, ...]:
    """After how many rounds the results are looked at: from `first` in growing steps to `bound`, both included."""
    planned = [min(first, bound)]
    while planned[-1] < bound:
        planned.append(min(bound, math.ceil(planned[-1] * LOOK_GROWTH)))
    return tuple(planned)


def _least_p_values(planned: tuple[int, ...]) -> Array:
    """For each of PATHS samples without any gain: the least p-value of Student's two-sided test at the looks.

    Between two looks the sums of m normal values and of their squares are all that matters; they are drawn as such."""
    random = np.random.default_rng(19770101)
    count, total, squares = 0, np.zeros(PATHS), np.zeros(PATHS)
    least = np.ones(PATHS)
    for look in planned:
        step = look - count
        part = random.normal(0.0, math.sqrt(step), PATHS)
        total += part
        squares += part**2 / step + (random.chisquare(step - 1, PATHS) if step > 1 else 0.0)
        count = look
        variance = (squares - total**2 / count) / (count - 1)
        least = np.minimum(least, 2.0 * stats.t.sf(np.abs(total) / np.sqrt(count * variance), count - 1))
    return least


@functools.cache
def look_confidence(planned: tuple[int, ...], confidence: float = CONFIDENCE) -> float:
    """The confidence of each look's interval such that all of them hold together with `confidence`.

    The simulation's own error (three standard errors) is taken off, so that it errs to the safe side."""
    if len(planned) == 1:
        return confidence
    allowed = 1.0 - confidence
    allowed -= 3.0 * math.sqrt(allowed * confidence / PATHS)
    return 1.0 - float(np.quantile(_least_p_values(planned), allowed))


def power(rounds: int, effect: float, confidence: float) -> float:
    """The probability that the interval of so many rounds excludes a value `effect` standard deviations away."""
    quantile = float(stats.t.ppf(0.5 + confidence / 2, rounds - 1))
    found = float(stats.nct.sf(quantile, rounds - 1, effect * math.sqrt(rounds)))
    return found if math.isfinite(found) else float(effect * math.sqrt(rounds) > quantile)


def runs_needed(gains: Array, threshold: float, confidence: float = CONFIDENCE) -> int | None:
    """How many rounds in all would decide with a probability of 80 %, if the gain and the spread are what they seem.

    A gain at or above the threshold (in %) has to be told from 0, one below it from the threshold.  None when that
    takes more than RUNS_CEILING: the gain is too near to the threshold, or the noise too large."""
    if len(gains) < 2:
        return None
    mean, spread, worth = float(np.mean(gains)), float(np.std(gains, ddof=1)), math.log1p(threshold / 100.0)
    distance = mean if mean >= worth else worth - mean
    if spread == 0.0 or distance <= 0.0:
        return None
    effect = distance / spread
    if power(RUNS_CEILING, effect, confidence) < POWER:
        return None
    low, high = 2, RUNS_CEILING
    while low < high:
        middle = (low + high) // 2
        if power(middle, effect, confidence) >= POWER:
            high = middle
        else:
            low = middle + 1
    return low
