"""The outcome of a sweep: each value against the base, the best one, and the knee.

The knee is the value above which larger ones gain nothing worth having: the least numeric value that is not shown to be
worse than the best one. Shown to be worse means: in paired rounds the loss reaches the threshold, and its 95 % interval
lies above 0.

On a busy machine each verdict is that of verdict.compare. All figures are then by processor time, unless wall time
alone has decided something; a loss by processor time counts only if wall time does not contradict it.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from hakmem_lab.decide import noise, statistics, verdict
from hakmem_lab.decide.noise import Conditions
from hakmem_lab.decide.statistics import Interval
from hakmem_lab.decide.verdict import Comparison, Summary
from hakmem_lab.measure.results import Experiment, Model
from hakmem_lab.target.libhakmem import Option

UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "ms": 1, "s": 1000}


class Point(Model):
    """One setting of the swept options."""

    label: str
    point: dict[str, str]
    summary: Summary
    comparison: Comparison | None = Field(description="against the base; None for the base itself")
    gain: Interval | None = Field(description="the same by the sweep's metric, in %")
    loss: float = Field(description="against the best value, in %, over paired rounds")
    worse: bool = Field(description="whether it is shown to be worse than the best value")


class Sweep(Model):
    """The outcome of a sweep."""

    base: str
    metric: str = Field(description="the metric of the figures: the plan's, or cpu on a busy machine")
    title: str
    conditions: Conditions
    points: list[Point]
    best: str
    knee: str | None
    sentence: str = Field(description="the knee in words, or why there is none")


def number(text: str) -> float | None:
    """A value of an option as a number, with the suffixes that options take; None for a word."""
    lowered = text.strip().lower()
    for suffix in sorted(UNITS, key=len, reverse=True):
        if lowered.endswith(suffix) and lowered[: -len(suffix)].replace(".", "", 1).isdigit():
            return float(lowered[: -len(suffix)]) * UNITS[suffix]
    try:
        return float(lowered)
    except ValueError:
        return None


def same_value(option: Option, text: str) -> bool:
    """Whether a value is the option's default."""
    return number(text) == option.standard or (option.word is not None and option.word == text)


def _losses(experiment: Experiment, labels: Sequence[str], best: str) -> dict[str, Interval]:
    """How much worse than the best value each one is: the best one's gain over it."""
    higher = experiment.head.metric.higher_is_better
    top = verdict.values_of(experiment, best)
    return {
        label: statistics.interval(statistics.log_gains(verdict.values_of(experiment, label), top, higher))
        for label in labels
    }


def _decided(experiment: Experiment, conditions: Conditions, found: Sequence[Comparison]) -> Experiment:
    """The experiment by the first metric: processor time on a busy machine, unless wall time alone decided."""
    second = noise.processor_time(experiment) if conditions.busy else None
    by_wall = any(each.verdict != "INCONCLUSIVE" and each.decided_by is None for each in found)
    if second is None or (by_wall and not any(each.decided_by for each in found)):
        return experiment
    return second


def _knee(points: Sequence[Point], threshold: float) -> tuple[str | None, str]:
    """The knee over the numeric values of one option, and a sentence."""
    options = {name for each in points for name in each.point}
    if len(options) != 1:
        return None, "The knee is named for one option, not for two."
    name = options.pop()
    sizes = {each.label: number(each.point[name]) for each in points}
    if any(size is None for size in sizes.values()):
        return None, f"{name} has words as values: there is no knee."
    ordered = sorted(points, key=lambda each: sizes[each.label] or 0.0)
    if not any(each.worse for each in ordered):
        return None, f"Flat: no value of {name} is shown to be {threshold:g} % worse than the best; there is no knee."
    knee = next(each for each in ordered if not each.worse)
    value = knee.point[name]
    if knee is ordered[-1]:
        return knee.label, f"The greatest value, {name}={value}, is the best: sweep larger values to find the knee."
    if knee is ordered[0]:
        return knee.label, f"The knee is {name}={value}, the least value: greater ones are no better."
    return knee.label, f"The knee is {name}={value}: less is shown to be worse, more is not shown to be better."


def analyse(experiment: Experiment, base: str) -> Sweep:
    """All values against the base, which share the error rate; a LabError without a complete round."""
    labels = [label for label in experiment.labels if label not in experiment.failed()]
    others = [label for label in labels if label != base]
    comparisons = {label: verdict.compare(experiment, base, label, max(1, len(others))) for label in others}
    conditions, threshold = noise.look(experiment), experiment.head.plan.threshold
    decided = _decided(experiment, conditions, list(comparisons.values()))
    by_cpu = decided is not experiment
    gains = {
        label: verdict.interval_of((by_cpu and each.by_processor_time) or each) for label, each in comparisons.items()
    }
    best = max(labels, key=lambda label: gains[label].gain if label in gains else 0.0)
    losses, by_wall = (_losses(each, labels, best) for each in (decided, experiment))
    points = [
        Point(
            label=label,
            point=experiment.head.find(label).point,
            summary=verdict.summarize(label, verdict.values_of(decided, label)),
            comparison=comparisons.get(label),
            gain=gains.get(label),
            loss=losses[label].gain,
            worse=losses[label].low > 0
            and losses[label].gain >= threshold
            and (not by_cpu or noise.agree("GO", by_wall[label], losses[label])),
        )
        for label in labels
    ]
    knee, sentence = _knee(points, threshold)
    metric = decided.head.metric
    return Sweep(
        base=base,
        metric=metric.name,
        title=metric.title,
        conditions=conditions,
        points=points,
        best=best,
        knee=knee,
        sentence=f"By processor time: {sentence}" if by_cpu else sentence,
    )
