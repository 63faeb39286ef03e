"""Latencies that a client prints: each run's distribution as quantiles, and by how much each quantile shifts.

A distribution is compared quantile by quantile (Doksum's shift function): an allocator may leave the median alone and
move the tail.  The unit is the round, as everywhere: within a run, latencies depend on one another.  So each run gives
one value per quantile, the rounds' ratios are a sample, and all quantiles' intervals together hold with the stated
confidence (Bonferroni)."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from hakmem_lab import statistics
from hakmem_lab.errors import LabError
from hakmem_lab.measure import last_words
from hakmem_lab.results import Experiment, Model

QUANTILES = {"p10": 0.1, "p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
ENOUGH = 10  # values beyond a quantile, so that it is no single value


class Shift(Model):
    """One quantile of B against A's, from paired rounds."""

    quantile: str
    base: float  # the median over rounds, as the client prints it
    other: float
    gain: float  # in %, above 0 when B's is shorter
    low: float
    high: float
    confidence: float


def check(pattern: str) -> None:
    """A LabError unless it is a regular expression with exactly one group."""
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise LabError(
            f"--latency {pattern}: not a regular expression: {error}", r"Example: 'took ([0-9.]+) ms'"
        ) from error
    if groups != 1:
        raise LabError(f"--latency {pattern}: needs exactly one group around the number, has {groups}")


def quantiles(pattern: str, output: str) -> dict[str, float]:
    """The quantiles of what a client has printed, those for which there are values enough, and their number."""
    try:
        values = [float(found.group(1)) for found in re.finditer(pattern, output, re.MULTILINE)]
    except (ValueError, TypeError) as error:
        raise LabError(f"--latency {pattern} matches what is no number: {error}") from error
    if len(values) < 2 * ENOUGH or min(values) <= 0:
        problem = f"has {len(values)} matches above 0 of at least {2 * ENOUGH}" if values else "has no match"
        raise LabError(f"the client's output {problem} for --latency {pattern}", last_words(output))
    usable = {name: at for name, at in QUANTILES.items() if len(values) * min(at, 1 - at) >= ENOUGH * 0.999}
    found = np.quantile(values, list(usable.values()))
    return {**dict(zip(usable, found.tolist(), strict=True)), "count": float(len(values))}


def shifts(experiment: Experiment, base: str = "A", other: str = "B") -> list[Shift]:
    """Every quantile that all runs have; none when the client's latencies were not asked for."""
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
