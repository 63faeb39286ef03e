"""The outcome of a comparison of allocators: each one's medians, and its gains over the base in time and in memory.

On a busy machine processor time decides which one is best, if wall time cannot decide and does not contradict it, as in
verdict.compare; all gains are then by processor time, with those by wall time beside them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

import numpy as np

from hakmem_lab.decide import exports, noise, statistics
from hakmem_lab.decide.noise import Conditions
from hakmem_lab.measure.results import Experiment, MetricModel, Model, Run
from hakmem_lab.terminal.errors import LabError


class Gain(Model):
    """A gain in %, above 0 if it is faster or takes less memory; from paired rounds, with an interval."""

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
    wall_gain: Gain | None = None  # on a busy machine, if `gain` is by processor time
    memory_gain: Gain | None


class Comparisons(Model):
    """The outcome of `hakmem compare`."""

    base: str
    metric: str  # of the first figures: the plan's metric, or cpu on a busy machine
    title: str
    printed: bool
    conditions: Conditions
    confidence: float  # of each interval; together they hold with 95 %
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


Values = Callable[[str], list[float]]


def _values(experiment: Experiment) -> Values:
    rounds = experiment.rounds()
    return lambda label: _of(rounds, label, lambda run: run.value)


def _level_with(best: str, labels: Sequence[str], sides: Sequence[Values], higher: bool, metrics: int) -> list[str]:
    """The others that the best one's interval, corrected for their number, does not separate from it.

    sides: the values; if they are processor time on a busy machine, also those by wall time, which must not contradict
    them. metrics: how many may decide and share the error rate."""
    others = [label for label in labels if label != best]
    confidence = _confidence(len(others) * metrics)

    def is_behind(label: str) -> bool:
        first, *wall = (statistics.interval(_logs(get, label, best, higher), confidence) for get in sides)
        return first.low > 0.0 and all(noise.agree("GO", each, first) for each in wall)

    return [each for each in others if not is_behind(each)]


def _logs(get: Values, base: str, other: str, higher: bool) -> statistics.Array:
    return statistics.log_gains(get(base), get(other), higher)


def _confidence(intervals: int) -> float:
    return 1.0 - (1.0 - statistics.CONFIDENCE) / max(intervals, 1)


def _best(labels: Sequence[str], get: Values, higher: bool) -> str:
    return (max if higher else min)(labels, key=lambda label: float(np.median(get(label))))


def _verdict(wins: str, labels: Sequence[str], sides: Sequence[Values], higher: bool, metrics: int = 1) -> str:
    """The winner in a sentence, if the figures show one."""
    if len(labels) < 2:
        return f"{labels[0]} is the only one that ran."
    best = _best(labels, sides[0], higher)
    level = _level_with(best, labels, sides, higher, metrics)
    if not level:
        return f"{best} {wins}."
    clearly = wins.replace("is ", "is clearly ", 1) if wins.startswith("is ") else f"clearly {wins}"
    return f"No allocator {clearly}: {best} is level with {', '.join(level)}."


def _sides(experiment: Experiment, labels: Sequence[str], second: Experiment | None) -> tuple[Experiment, ...]:
    """The experiment by the first metric, and by wall time if that is another one.

    second: by processor time, on a busy machine."""
    if second is None:
        return (experiment,)
    wall, higher = _values(experiment), experiment.head.metric.higher_is_better
    alone = len(labels) > 1 and not _level_with(_best(labels, wall, higher), labels, (wall,), higher, 2)
    return (experiment,) if alone else (second, experiment)


def analyse(experiment: Experiment) -> Comparisons:
    """Compares all allocators that ran with the first of them; a LabError without a complete round."""
    labels = [label for label in experiment.labels if label not in experiment.failed()]
    if not experiment.rounds() or not labels:
        raise LabError(
            "no round is complete: there is nothing to compare", "Let it run longer, or fix the failing program."
        )
    conditions = noise.look(experiment)
    second = noise.processor_time(experiment) if conditions.busy else None
    decided, *wall = sides = _sides(experiment, labels, second)
    metrics = 1 if second is None else 2
    rounds, metric, base = decided.rounds(), decided.head.metric.metric(), labels[0]
    confidence = _confidence((len(labels) - 1) * metrics)

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
            wall_gain=gain(lambda run: run.wall_s) if wall else None,
            memory_gain=gain(lambda run: run.peak_rss_bytes),
        )

    title = decided.head.metric.title
    wins = WINS.get(metric.name, f"has the {'highest' if metric.higher_is_better else 'lowest'} {title}")
    said = [_verdict(wins, labels, [_values(each) for each in sides], metric.higher_is_better, metrics)]
    if metric.name != "rss":
        memory: Values = lambda label: _of(rounds, label, lambda run: run.peak_rss_bytes)  # noqa: E731
        said.append(_verdict(WINS["rss"], labels, [memory], False))
    return Comparisons(
        base=base,
        metric=metric.name,
        title=title,
        printed=metric.printed,
        conditions=conditions,
        confidence=confidence,
        rows=[row(label) for label in labels],
        sentence=" ".join(dict.fromkeys(said)),
    )


def _row(case: str, metric: str, gain: Gain | None, confidence: float, rounds: int) -> exports.Row:
    """One gain for the exports; the base has none."""
    if gain is None:
        return exports.Row.without(case, "BASE", "the base of the gains", metric)
    word, how = "INCONCLUSIVE", "contains 0"
    if gain.low > 0.0 or gain.high < 0.0:
        word, how = ("AHEAD", "lies above 0") if gain.low > 0.0 else ("BEHIND", "lies below 0")
    reason = f"the interval of {metric.partition(',')[0]} {how}"
    return exports.Row(case, metric, gain.gain, gain.low, gain.high, confidence, rounds, word, reason)


def report(experiment: Experiment, found: Comparisons) -> exports.Report:
    """The outcome for the exports: a row for each allocator's gain, and one for its gain in memory."""
    count, memory = len(experiment.rounds()), MetricModel(name="rss", higher_is_better=False, unit="").title
    rows = [_row(each.label, found.title, each.gain, found.confidence, count) for each in found.rows]
    if found.metric != "rss":
        rows += [_row(each.label, memory, each.memory_gain, found.confidence, count) for each in found.rows]
    broken = experiment.broken()
    rows += [exports.Row.without(each.label, "ERROR", each.problem, found.title, each.said) for each in broken]
    word = "ERROR" if broken else "COMPARE"
    said = [each.rstrip(".") for each in (found.conditions.sentence, experiment.retried()) if each]
    title = f"{', '.join(experiment.labels)}: {shlex.join(experiment.head.plan.command)}"
    return exports.Report(title, word, found.sentence.rstrip("."), rows, said)
