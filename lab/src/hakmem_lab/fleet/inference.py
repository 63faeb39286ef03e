"""From two groups of hosts to intervals that hold at every look. Hosts are the units; numpy does the computing.

The assignment was drawn by lot within blocks of hosts that resemble one another, so what would have been seen without
any effect is known: draw again, and compute again. Everything here follows from that, and nothing assumes a
distribution, or that hours, days or metrics are independent.

Estimate: the coefficient of the treatment in a linear model with a constant per block and the metric's own value
before the start (CUPED: Deng et al., WSDM 2013; as a regression: Lin, Ann. Appl. Stat. 7, 2013). Values are
logarithms, so an effect is a ratio; counts of rare events are differences.

Interval: the estimate is subtracted, and the spread of the same estimate over fresh draws of the assignment is taken
(Rosenbaum, Stat. Sci. 17, 2002). The interval at each of the planned looks, and of each target, uses a bound such that
all of them hold together with the stated probability: the draws give the joint distribution over looks and targets;
what the error rate allows is spent over the looks as (look / looks)**2 (Lan and DeMets, Biometrika 70, 1983; Kim and
DeMets, ibid. 74, 1987), and within a look over the targets by the largest of them (Westfall and Young, 1993).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
DRAWS = 10_000
CHUNK_BYTES = 16 << 20
FEW_LOTS = 256  # of a block, up to which one is taken from a table of all
SPENDING_POWER = 2.0

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Design:
    """Hosts in blocks: the block's number and the arm of each. A block has hosts of both arms."""

    block: Numbers
    treated: NDArray[np.bool_]

    @classmethod
    def of(cls, block: Sequence[int] | Numbers, treated: Sequence[bool] | NDArray[np.bool_]) -> Design:
        numbers = np.unique(np.asarray(block), return_inverse=True)[1].astype(np.int64)
        return cls(numbers, np.asarray(treated, dtype=bool))

    def usable(self) -> NDArray[np.bool_]:
        """Whether a host's block has both arms."""
        size = np.bincount(self.block)
        own = np.bincount(self.block, self.treated)
        return np.asarray(((own > 0) & (own < size))[self.block], dtype=bool)

    def kept(self, keep: NDArray[np.bool_]) -> Design:
        return Design.of(self.block[keep], self.treated[keep])

    def centred(self, values: Array) -> Array:
        """Values (hosts, or hosts by columns) minus their block's mean."""
        size = np.bincount(self.block).astype(float)
        columns = values.reshape(len(values), -1)
        means = np.stack([np.bincount(self.block, column) for column in columns.T], axis=1) / size[:, None]
        return np.asarray((columns - means[self.block]).reshape(values.shape))

    @property
    def weight(self) -> float:
        """The sum of squares of the centred treatment, which no draw changes."""
        size, own = np.bincount(self.block).astype(float), np.bincount(self.block, self.treated)
        return float(np.sum(own * (size - own) / size))

    def draws(self, count: int, seed: int) -> Iterator[NDArray[np.float32]]:
        """Fresh assignments (draws by hosts, in pieces), each with as many treated hosts per block as the real one."""
        random = np.random.default_rng(seed)
        hosts, size = len(self.block), np.bincount(self.block)
        own = np.bincount(self.block, self.treated).astype(int)
        order = np.argsort(self.block, kind="stable")
        starts = np.concatenate([[0], np.cumsum(size)[:-1]])
        shapes = sorted(set(zip(size.tolist(), own.tolist(), strict=True)))
        at_once = max(1, min(count, CHUNK_BYTES // (8 * max(hosts, 1))))
        for begun in range(0, count, at_once):
            rows = min(at_once, count - begun)
            drawn = np.zeros((hosts, rows), dtype=np.float32)
            for each, chosen in shapes:
                blocks = np.flatnonzero((size == each) & (own == chosen))
                for place, lots in enumerate(_lots(random, (len(blocks), rows), each, chosen)):
                    drawn[order[starts[blocks] + place]] = lots
            yield drawn.T


def _lots(random: np.random.Generator, shape: tuple[int, int], size: int, chosen: int) -> Iterator[NDArray[np.float32]]:
    """For each host of a block, whether it is one of the `chosen` of `size`, in a shape of blocks and draws."""
    if math.comb(size, chosen) > FEW_LOTS:
        lots = random.random((size, *shape), dtype=np.float32)
        yield from (lots.argsort(axis=0).argsort(axis=0) < chosen).astype(np.float32)
        return
    table = np.zeros((size, math.comb(size, chosen)), dtype=np.float32)
    for lot, hosts in enumerate(itertools.combinations(range(size), chosen)):
        table[list(hosts), lot] = 1.0
    lot_of = random.integers(table.shape[1], size=shape, dtype=np.uint8)
    yield from (row[lot_of] for row in table)


@dataclass(frozen=True)
class Series:
    """One metric at every look: values after the start (hosts by looks), and before it, compared by differences."""

    after: Array
    before: Array


@dataclass(frozen=True)
class Estimates:
    """Estimates of several metrics at several looks, with what fresh draws make of them."""

    effect: Array  # metrics by looks
    error: Array  # standard errors, the same
    spread: NDArray[np.float32]  # draws by metrics by looks, in standard errors
    p: Array  # of no effect at all, at that look alone

    def bounds(self, members: Sequence[int], planned: int, confidence: float = CONFIDENCE) -> Array:
        """For each look, the number of standard errors at which these metrics' intervals hold together at all looks."""
        if not members:
            return np.zeros(self.effect.shape[1])
        largest = np.abs(self.spread[:, members, :]).max(axis=1)
        return spend(largest, planned, 1.0 - confidence)


def spend(largest: NDArray[np.float32], planned: int, allowed: float) -> Array:
    """The bounds of the looks so far, out of `planned` ones, given draws of the largest statistic at each."""
    draws, looks = largest.shape
    crossed = np.zeros(draws, dtype=bool)
    found = np.full(looks, math.inf)
    for look in range(looks):
        share = allowed * min(1.0, (look + 1) / planned) ** SPENDING_POWER
        left = int(share * draws) - int(crossed.sum())
        inside = np.sort(largest[~crossed, look])
        if left > 0 and left < len(inside):
            found[look] = inside[-left - 1]
            crossed |= largest[:, look] > found[look]
    return found


def estimate(design: Design, metrics: Sequence[Series], seed: int, draws: int = DRAWS) -> Estimates:
    """All metrics at all looks. Every metric has the same hosts, without gaps."""
    treated = design.centred(design.treated.astype(float))
    looks = metrics[0].after.shape[1]
    before = np.stack([each.before for each in metrics], axis=1)
    x = design.centred(before)
    x /= np.maximum(np.linalg.norm(x, axis=0), 1e-300)  # of length 1, or 0 if the hosts do not differ
    y = np.stack([design.centred(each.after) for each in metrics], axis=1)  # hosts by metrics by looks
    y -= x[:, :, None] * np.einsum("hm,hml->ml", x, y)[None]
    shared = x.T @ treated
    weight = np.maximum(design.weight - shared**2, 1e-12)
    effect = np.einsum("h,hml->ml", treated, y) / weight[:, None]
    own = treated[:, None] - x * shared[None]
    left = y - own[:, :, None] * effect[None]
    hosts, blocks = len(treated), int(design.block.max()) + 1
    freedom = hosts - blocks
    scale = math.sqrt(freedom / max(freedom - 2, 1))
    size = np.maximum(np.linalg.norm(left, axis=0), 1e-300)
    null_size = np.maximum(np.linalg.norm(y, axis=0), 1e-300)
    columns = np.concatenate([(left / size).reshape(hosts, -1), (y / null_size).reshape(hosts, -1), x], axis=1)
    packed = columns.astype(np.float32)
    spread = np.empty((draws, len(metrics), looks), dtype=np.float32)
    beyond = np.zeros((len(metrics), looks))
    seen = np.abs(effect) / null_size * (1.0 - 1e-6)
    row, each = 0, len(metrics) * looks
    for drawn in design.draws(draws, seed):
        products = drawn @ packed
        rows = len(products)
        by = (design.weight - products[:, 2 * each :] ** 2)[:, :, None]
        by = np.maximum(by, np.float32(1e-6 * design.weight))
        spread[row : row + rows] = products[:, :each].reshape(rows, len(metrics), looks) / by
        beyond += (np.abs(products[:, each : 2 * each].reshape(rows, len(metrics), looks) / by) >= seen).sum(axis=0)
        row += rows
    deviation = np.asarray(spread.std(axis=0), dtype=float)
    error = deviation * size * scale
    spread /= np.maximum(deviation, 1e-30).astype(np.float32)
    return Estimates(effect, np.where(size <= 1e-290, 0.0, error), spread, (beyond + 1) / (draws + 1))


def mean_of_days(values: Array) -> Array:
    """Each host's mean, without missing days (NaN); NaN for a host without any."""
    known = np.isfinite(values)
    sums, counts = np.where(known, values, 0.0).sum(axis=1), known.sum(axis=1)
    return np.asarray(np.divide(sums, counts, out=np.full(len(values), math.nan), where=counts > 0))


def _mean(values: Array) -> float:
    return float(mean_of_days(values.reshape(1, -1))[0])


def cumulative_means(daily: Array) -> Array:
    """Means over days 1 to d, for every d, without missing days (NaN); before a host's first day, that day's value."""
    known = np.isfinite(daily)
    sums = np.cumsum(np.where(known, daily, 0.0), axis=1)
    counts = np.cumsum(known, axis=1)
    means: Array = np.divide(sums, counts, out=np.full(daily.shape, math.nan), where=counts > 0)
    return filled_back(means)


def filled_back(daily: Array) -> Array:
    """Days without a value (NaN) take that of the next day that has one."""
    found = daily.copy()
    for day in range(daily.shape[1] - 2, -1, -1):
        found[:, day] = np.where(np.isfinite(found[:, day]), found[:, day], found[:, day + 1])
    return found


def course(levels: Array, before: int, after: int) -> Array:
    """How hosts' means over days 1 to d vary together, for every d up to `after`, given their mean over the `before`
    days ahead of day 1: a covariance, by how much farther levels (hosts by days) lie apart the more days are between
    them. Beyond the lags that the history shows well, this variogram goes straight on."""
    centred = levels - mean_of_days(levels.T)
    days, largest = levels.shape[1], before + after
    apart = np.array([_mean((centred[:, lag:] - centred[:, :-lag]) ** 2) for lag in range(1, days)])
    seen = np.flatnonzero(np.isfinite(apart)) + 1  # lags
    far = seen[seen >= days // 4]
    line = np.full(largest, _mean(apart))
    if len(far) > 2:
        slope, base = np.polyfit(far, apart[far - 1], 1, w=np.sqrt(days - far))
        line = base + max(slope, 0.0) * np.arange(largest)
    near = seen[(seen <= days // 2) & (seen < largest)]
    line[near] = apart[near - 1]
    line[0] = 0.0
    variance = _mean(centred**2)
    covariance = variance - np.clip(line, 0.0, 2 * variance) / 2
    day = np.arange(largest)
    means = np.zeros((after + 1, largest))
    means[0, :before] = 1 / before
    for count in range(1, after + 1):
        means[count, before : before + count] = 1 / count
    of_means = means @ covariance[np.abs(day[:, None] - day)] @ means.T
    with_before = of_means[1:, 0]
    return np.asarray(of_means[1:, 1:] - np.outer(with_before, with_before) / max(of_means[0, 0], 1e-300))


def prolonged(found: Estimates, rehearsed: Array, planned: Array, seed: int) -> Estimates:
    """The estimate of one metric, made of its history, with the errors at all planned looks: the two covariances (of
    `course`) say how they differ from the rehearsed ones, and how those of the looks hang together."""
    deviation = np.sqrt(np.maximum(np.diag(planned), 1e-200))
    ratio = deviation / math.sqrt(rehearsed[-1, -1]) if rehearsed[-1, -1] > 0 else np.ones(len(planned))
    values, vectors = np.linalg.eigh(planned / np.outer(deviation, deviation))
    random = np.random.default_rng(seed)
    normal = random.standard_normal((len(found.spread), len(planned))) * np.sqrt(np.maximum(values, 0.0))
    spread = (normal @ vectors.T).astype(np.float32)[:, None, :]
    error = found.error[:1, -1:] * ratio[None]
    return Estimates(np.zeros(error.shape), error, spread, np.ones(error.shape))


def power(estimates: Estimates, metric: int, bounds: Array, effect: float, shrink: float = 1.0) -> float:
    """The probability that the interval of a look that has a bound excludes 0 on the right side, if the effect is this
    large; `shrink` scales the standard errors, for another number of hosts."""
    looks = len(bounds)
    away = abs(effect) / np.maximum(estimates.error[metric, :looks] * shrink, 1e-300)
    crossing = estimates.spread[:, metric, :looks] + away[None] > bounds[None]
    return float(crossing.any(axis=1).mean())
