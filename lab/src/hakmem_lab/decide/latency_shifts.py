"""The shift of each quantile of a client's latencies.

A distribution is compared quantile by quantile (Doksum's shift function), since an allocator may leave the median alone
and move the tail.  The unit is the round, as everywhere: latencies within a run depend on one another.  So each run
gives one value per quantile, the rounds' ratios are a sample, and all quantiles' intervals together hold with the
stated confidence (Bonferroni)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hakmem_lab.decide import statistics
from hakmem_lab.measure.latencies import QUANTILES
from hakmem_lab.measure.results import Experiment, Model


class Shift(Model):
    """One quantile of B against A's, from paired rounds."""

    quantile: str
    base: float  # the median over rounds, as the client prints it
    other: float
    gain: float  # in %, above 0 if B's is shorter
    low: float
    high: float
    confidence: float


def shifts(experiment: Experiment, base: str = "A", other: str = "B") -> list[Shift]:
    """The shifts of all quantiles that every run has; empty if latencies were not measured."""
    rounds = experiment.rounds()
    kept = [(each[base].quantiles, each[other].quantiles) for each in rounds if base in each and other in each]
    known = [(one, two) for one, two in kept if one is not None and two is not None]
    if len(known) < 2 or len(known) < len(rounds):
        return []
    names = [name for name in QUANTILES if all(name in one and name in two for one, two in known)]
    confidence = 1.0 - (1.0 - statistics.CONFIDENCE) / max(len(names), 1)
    return [
        _shift(name, [one[name] for one, _ in known], [two[name] for _, two in known], confidence) for name in names
    ]


def _shift(name: str, base: Sequence[float], other: Sequence[float], confidence: float) -> Shift:
    found = statistics.interval(statistics.log_gains(base, other, higher_is_better=False), confidence)
    return Shift(
        quantile=name,
        base=float(np.median(base)),
        other=float(np.median(other)),
        gain=found.gain,
        low=found.low,
        high=found.high,
        confidence=confidence,
    )
