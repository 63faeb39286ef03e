"""What a comparison of allocators says: each one's medians, and its gains over the base in time and in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hakmem_lab import statistics
from hakmem_lab.errors import LabError
from hakmem_lab.results import Experiment, Model, Run


class Gain(Model):
    """In %, above 0 when it is faster or takes less memory; from paired rounds, with an interval."""

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
    metric: str
    printed: bool
    confidence: float  # of each interval: all of them hold together with 95 %
    rows: list[Row]
    sentence: str


def _of(rounds: Sequence[dict[str, Run]], label: str, get: Callable[[Run], float]) -> list[float]:
    return [get(each[label]) for each in rounds]


def _gain(base: Sequence[float], other: Sequence[float], higher_is_better: bool, confidence: float) -> Gain:
    found = statistics.interval(statistics.log_gains(base, other, higher_is_better), confidence)
    return Gain(gain=found.gain, low=found.low, high=found.high)


WINS = {
    "time": "is the fastest",
    "cpu": "takes the least processor time",
    "rss": "takes the least memory",
    "mix": "has the best mix of time and memory",
}


def _level_with(best: str, labels: Sequence[str], get: Callable[[str], list[float]], higher: bool) -> list[str]:
    """The others from which the best one's interval does not set it apart, corrected for their number."""
    others = [label for label in labels if label != best]
    confidence = 1.0 - (1.0 - statistics.CONFIDENCE) / max(len(others), 1)
    return [each for each in others if _gain(get(each), get(best), higher, confidence).low <= 0.0]


def _verdict(wins: str, labels: Sequence[str], get: Callable[[str], list[float]], higher: bool) -> str:
    """Who wins, if the figures say that somebody does."""
    if len(labels) < 2:
        return f"{labels[0]} is the only one that ran."
    best = (max if higher else min)(labels, key=lambda label: float(np.median(get(label))))
    level = _level_with(best, labels, get, higher)
    if not level:
        return f"{best} {wins}."
    return f"Nobody {wins} beyond doubt: {best} is level with {', '.join(level)}."


def analyse(experiment: Experiment) -> Comparisons:
    """All allocators that ran against the first of them; a LabError without a complete round."""
    rounds, metric = experiment.rounds(), experiment.head.metric.metric()
    labels = [label for label in experiment.labels if label not in experiment.failed()]
    if not rounds or not labels:
        raise LabError("no round is complete: there is nothing to compare", "Let it run longer, or repair what failed.")
    base = labels[0]
    confidence = 1.0 - (1.0 - statistics.CONFIDENCE) / max(len(labels) - 1, 1)

    def row(label: str) -> Row:
        def median(get: Callable[[Run], float]) -> float:
            return float(np.median(_of(rounds, label, get)))

        def gain(get: Callable[[Run], float], higher: bool = False) -> Gain | None:
            if label == base:
                return None
            return _gain(_of(rounds, base, get), _of(rounds, label, get), higher, confidence)

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
    wins = WINS.get(
        metric.name, f"has the {'highest' if metric.higher_is_better else 'lowest'} {experiment.head.metric.title}"
    )
    said = [_verdict(wins, labels, lambda label: _of(rounds, label, lambda run: run.value), metric.higher_is_better)]
    if metric.name != "rss":
        said.append(
            _verdict(WINS["rss"], labels, lambda label: _of(rounds, label, lambda run: run.peak_rss_bytes), False)
        )
    return Comparisons(
        base=base,
        metric=metric.name,
        printed=metric.printed,
        confidence=confidence,
        rows=rows,
        sentence=" ".join(dict.fromkeys(said)),
    )
