"""From paired runs to an interval of the gain.  scipy does the computing; this file says what is computed and why.

The unit is the round: each configuration runs once in it, in random order, so the machine's drift meets both
sides of a round's ratio.  The logarithms of these ratios are taken as a sample, and its mean has Student's
interval (one sample, n - 1 degrees of freedom).  It was chosen over a percentile bootstrap because that is too narrow
at 10 rounds (its intervals lack the factor sqrt(n / (n - 1)) and the tails of t), and over Welch's because pairing
removes drift.  Differences of exchangeable runs are symmetric, and for symmetric samples with outliers Student's
interval errs on the safe side.

Until decided: the results are examined several times, for which plain intervals are too narrow.  The
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
RUNS_CEILING = 10_000  # more rounds than a user would wait for
OUTLIER_SCORE = 3.5
OUTLIER_RULE = "modified z-score above 3.5 (Iglewicz and Hoaglin: distance from the median over 1.4826 MAD)"
LARGEST_LOG = 700.0  # the exponential of more overflows
LARGEST_AWAY = 30.0  # standard errors; beyond it the power is 1, and scipy's noncentral t gives up
LIKELY = 20  # cases of the gain, and as many of the spread
PATHS = 200_000  # of the simulation for look_confidence
LOOK_GROWTH = 1.4  # from one look to the next: few looks, and at most 40 % more runs than needed

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

    One value says nothing about the spread: the interval is infinite.  Values without any spread (a peak of memory
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
    """The positions of outliers by OUTLIER_RULE.  They are reported, and stay in every figure."""
    sample = np.asarray(values, dtype=float)
    if len(sample) < 4:
        return []
    spread = float(stats.median_abs_deviation(sample, scale="normal"))
    if spread == 0.0:
        return []
    return [int(place) for place in np.flatnonzero(np.abs(sample - np.median(sample)) / spread > OUTLIER_SCORE)]


def looks(first: int, bound: int) -> tuple[int, ...]:
    """The numbers of rounds after which the results are examined: from `first` in growing steps to `bound`,
    inclusive."""
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

    Three standard errors of the simulation are subtracted, so that it errs on the safe side."""
    if len(planned) == 1:
        return confidence
    allowed = 1.0 - confidence
    allowed -= 3.0 * math.sqrt(allowed * confidence / PATHS)
    return 1.0 - float(np.quantile(_least_p_values(planned), allowed))


def power(rounds: int, effect: float, confidence: float) -> float:
    """The probability that the interval of this many rounds excludes a value `effect` standard deviations away."""
    return float(_powers(rounds, np.asarray([effect]), confidence)[0])


def _powers(rounds: int, effects: Array, confidence: float) -> Array:
    quantile = float(stats.t.ppf(0.5 + confidence / 2, rounds - 1))
    away = effects * math.sqrt(rounds)
    found = np.asarray(stats.nct.sf(quantile, rounds - 1, np.minimum(away, LARGEST_AWAY)), dtype=float)
    return np.where(np.isfinite(found), found, away > quantile)


def _likely_effects(gains: Array, worth: float) -> Array:
    """The possible distances, in standard deviations, of the gain from the value from which it must be distinguished:
    equally likely cases of gain and spread, which a few rounds leave uncertain."""
    middles = (np.arange(LIKELY) + 0.5) / LIKELY
    count = len(gains)
    spreads = float(np.std(gains, ddof=1)) * np.sqrt((count - 1) / stats.chi2.ppf(middles, count - 1))
    means = float(np.mean(gains)) + np.outer(spreads, stats.norm.ppf(middles)) / math.sqrt(count)
    distances = np.where(means >= worth, means, worth - means)
    return np.asarray(distances / spreads[:, None], dtype=float).ravel()


def runs_needed(gains: Array, threshold: float, confidence: float = CONFIDENCE) -> int | None:
    """The number of rounds with which a new experiment would decide with a probability of 80 %, estimated from these.

    A gain at or above the threshold (in %) must be distinguished from 0, one below it from the threshold.  The
    probability is the mean of Student's power over the possible values of gain and spread (assurance: O'Hagan, Stevens
    and Campbell, Pharmaceut. Statist. 4, 2005); the power at their estimates would promise too much after ten noisy
    rounds.  None if it takes more than RUNS_CEILING: the gain is too close to the threshold, or the noise too large."""
    if len(gains) < 2 or float(np.ptp(gains)) == 0.0:
        return None
    effects = _likely_effects(gains, math.log1p(threshold / 100.0))

    def decides(rounds: int) -> bool:
        return float(np.mean(_powers(rounds, effects, confidence))) >= POWER

    if not decides(RUNS_CEILING):
        return None
    low, high = 2, RUNS_CEILING
    while low < high:
        middle = (low + high) // 2
        if decides(middle):
            high = middle
        else:
            low = middle + 1
    return low
