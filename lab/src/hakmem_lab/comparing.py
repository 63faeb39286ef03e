"""What a comparison of allocators says: each one's medians, and its gains over the base in time and in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hakmem_lab import statistics
from hakmem_lab.errors import LabError
from hakmem_lab.results import Experiment, Model, Run


class Gain(Model):
    """In %, above 0 when it is faster or takes less memory; from paired rounds, with a 95 % interval."""

    gain: float
    low: float
    high: float


class Row(Model):
    """One allocator: medians over the rounds."""

    label: str
    description: str
    value: float
    time_s: float
    cpu_s: float
    peak_mib: float
    minor_faults: float
    major_faults: float
    gain: Gain | None
    memory_gain: Gain | None


class Comparisons(Model):
    """The outcome of `hakmem compare`."""

    base: str
    printed: bool
    rows: list[Row]
    sentence: str


def _of(rounds: Sequence[dict[str, Run]], label: str, get: Callable[[Run], float]) -> list[float]:
    return [get(each[label]) for each in rounds]


def _gain(base: Sequence[float], other: Sequence[float], higher_is_better: bool) -> Gain:
    found = statistics.interval(statistics.log_gains(base, other, higher_is_better))
    return Gain(gain=found.gain, low=found.low, high=found.high)


def _sentence(rows: Sequence[Row], printed: bool, higher_is_better: bool) -> str:
    sign = -1.0 if printed and higher_is_better else 1.0
    fastest = min(rows, key=lambda row: sign * (row.value if printed else row.time_s))
    leanest = min(rows, key=lambda row: row.peak_mib)
    if fastest is leanest:
        return f"{fastest.label} is the fastest and takes the least memory."
    return f"{fastest.label} is the fastest; {leanest.label} takes the least memory."


def analyse(experiment: Experiment) -> Comparisons:
    """All allocators that ran against the first of them; a LabError without a complete round."""
    rounds, metric = experiment.rounds(), experiment.head.metric.metric()
    labels = [label for label in experiment.labels if label not in experiment.failed()]
    if not rounds or not labels:
        raise LabError("no round is complete: there is nothing to compare", "Let it run longer, or repair what failed.")
    base = labels[0]

    def row(label: str) -> Row:
        def median(get: Callable[[Run], float]) -> float:
            return float(np.median(_of(rounds, label, get)))

        def gain(get: Callable[[Run], float], higher: bool = False) -> Gain | None:
            return None if label == base else _gain(_of(rounds, base, get), _of(rounds, label, get), higher)

        return Row(
            label=label,
            description=experiment.head.find(label).description,
            value=median(lambda run: run.value),
            time_s=median(lambda run: run.wall_s),
            cpu_s=median(lambda run: run.cpu_user_s + run.cpu_system_s),
            peak_mib=median(lambda run: run.peak_rss_bytes / 2**20),
            minor_faults=median(lambda run: run.minor_faults),
            major_faults=median(lambda run: run.major_faults),
            gain=gain(lambda run: run.value, metric.higher_is_better),
            memory_gain=gain(lambda run: run.peak_rss_bytes),
        )

    rows = [row(label) for label in labels]
    return Comparisons(
        base=base,
        printed=metric.printed,
        rows=rows,
        sentence=_sentence(rows, metric.printed, metric.higher_is_better),
    )
