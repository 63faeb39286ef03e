"""The verdict on a comparison (GO, NO-GO or INCONCLUSIVE), and the prediction against the outcome.

GO: the gain reaches the threshold and its interval lies above 0.  NO-GO: the interval's upper end lies below the
threshold.  INCONCLUSIVE otherwise, and if the plan was not carried out or the noise check fails.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from hakmem_lab.decide import noise, statistics
from hakmem_lab.decide.noise import Conditions
from hakmem_lab.decide.statistics import Array, Interval
from hakmem_lab.measure.results import NOISE, Experiment, Model
from hakmem_lab.terminal import errors
from hakmem_lab.terminal.amounts import counted
from hakmem_lab.terminal.errors import LabError, UsageError

Word = Literal["GO", "NO-GO", "INCONCLUSIVE"]
STATUS: dict[str, int] = {"GO": errors.GO, "NO-GO": errors.NO_GO, "INCONCLUSIVE": errors.INCONCLUSIVE}
BY_PROCESSOR_TIME = "by processor time, since the machine was busy and wall time cannot decide"


class Summary(Model):
    """One configuration's runs."""

    label: str
    count: int
    mean: float
    median: float
    least: float
    most: float
    cv: float = Field(description="standard deviation over mean, in %")


class Outlier(Model):
    """A round whose ratio is far from the others'; it stays in all figures."""

    round: int
    gain: float = Field(description="of this round alone, in %")


class Noise(Model):
    """The first configuration against itself."""

    gain: float
    low: float
    high: float
    confidence: float
    passed: bool


class ByProcessorTime(Model):
    """The same runs by processor time, if a busy machine spoiled wall time."""

    gain: float
    low: float
    high: float
    confidence: float
    verdict: Word
    reason: str
    noise: Noise | None
    agrees: bool = Field(description="wall time does not contradict it")


class Comparison(Model):
    """One configuration against the base, with the verdict."""

    base: str
    other: str
    rounds: int
    gain: float = Field(description="in %, above 0 if `other` is better")
    low: float
    high: float = Field(description="may be infinite with fewer than two rounds")
    confidence: float = Field(description="of the interval")
    overall_confidence: float = Field(description="of the experiment, over all looks or all values")
    gains: list[float] = Field(description="of each round, in %")
    outliers: list[Outlier]
    gain_without_outliers: float | None
    runs_needed: int | None = Field(
        description="rounds in all for a verdict with 80 % probability; None: no number suffices"
    )
    noise: Noise | None
    verdict: Word
    reason: str
    prediction: tuple[float, float] | None
    prediction_outcome: Literal["met", "missed", "open"] | None
    conditions: Conditions | None = None
    by_processor_time: ByProcessorTime | None = Field(default=None, description="only on a busy machine")
    decided_by: Literal["cpu"] | None = Field(
        default=None,
        description="processor time, if it decided instead of wall time; the figures above are then by it",
    )
    by_wall_time: Interval | None = Field(default=None, description="only if processor time decided")


def parse_prediction(text: str) -> tuple[float, float]:
    """'+0.5..1.5' as a range of gains in %; '+1' alone is a range of one value."""
    number = r"\s*([+-]?\d+(?:\.\d+)?)\s*%?\s*"
    found = re.fullmatch(number + r"(?:\.\." + number + ")?", text)
    if found is None:
        raise UsageError(f"--predict {text}: not a range of gains in %", "Example: --predict '+0.5..1.5'")
    low = float(found.group(1))
    high = float(found.group(2)) if found.group(2) is not None else low
    if low > high:
        raise UsageError(f"--predict {text}: the range ends before it begins", f"Write '{high:+g}..{low:g}'.")
    return low, high


def judge(found: Interval, threshold: float) -> tuple[Word, str]:
    """The rule itself, on an interval and a threshold in %."""
    if found.gain >= threshold and found.low > 0:
        return "GO", f"the gain reaches {threshold:+g} % and its interval lies above 0"
    if found.high < threshold:
        return "NO-GO", f"the interval's upper end lies below {threshold:+g} %"
    if found.gain >= threshold:
        return "INCONCLUSIVE", f"the gain reaches {threshold:+g} %, but its interval contains 0"
    return "INCONCLUSIVE", f"the gain is below {threshold:+g} %, but its interval reaches above"


def held_against(prediction: tuple[float, float], found: Interval) -> Literal["met", "missed", "open"]:
    """met: the gain lies in the range; missed: the whole interval lies outside; open: neither."""
    low, high = prediction
    if low <= found.gain <= high:
        return "met"
    return "missed" if found.high < low or found.low > high else "open"


def summarize(label: str, values: Sequence[float]) -> Summary:
    sample = np.asarray(values, dtype=float)
    mean = float(np.mean(sample))
    spread = float(np.std(sample, ddof=1)) if len(sample) > 1 else 0.0
    return Summary(
        label=label,
        count=len(sample),
        mean=mean,
        median=float(np.median(sample)),
        least=float(np.min(sample)),
        most=float(np.max(sample)),
        cv=100.0 * spread / mean if mean else 0.0,
    )


def values_of(experiment: Experiment, label: str) -> list[float]:
    """The metric's values of a configuration in the complete rounds."""
    return [each[label].value for each in experiment.rounds()]


def planned_looks(experiment: Experiment) -> tuple[int, ...]:
    plan = experiment.head.plan
    return statistics.looks(plan.runs, plan.max_runs) if plan.max_runs else (plan.runs,)


def check_noise(experiment: Experiment, base: Array) -> Noise | None:
    """The base against its second series, if there is one."""
    rounds = experiment.rounds()
    if not rounds or NOISE not in rounds[0] or len(rounds) < 2:
        return None
    again = [each[NOISE].value for each in rounds]
    gains = statistics.log_gains(base, again, experiment.head.metric.higher_is_better)
    found = statistics.interval(gains, statistics.NOISE_CONFIDENCE)
    return Noise(
        gain=found.gain,
        low=found.low,
        high=found.high,
        confidence=found.confidence,
        passed=found.low <= 0.0 <= found.high,
    )


def _unfinished(experiment: Experiment, rounds: int) -> str:
    """Why there is no verdict yet; empty if the plan was carried out up to one of its looks."""
    planned = planned_looks(experiment)
    if rounds in planned:
        return ""
    wanted = next((each for each in planned if each > rounds), None)
    return f"the plan was not carried out: {rounds} of {counted(wanted, 'round')}" if wanted else ""


def compare(experiment: Experiment, base: str, other: str, comparisons: int = 1) -> Comparison:
    """`other` against `base` over the complete rounds, and the verdict.

    comparisons: the number of comparisons in the experiment, which share the error rate (Bonferroni).  On a busy
    machine wall time shares it with processor time, which decides if wall time cannot and agrees.
    A LabError if no round is complete."""
    conditions = noise.look(experiment)
    second = noise.processor_time(experiment) if conditions.busy else None
    found = _by_metric(experiment, base, other, comparisons if second is None else 2 * comparisons)
    found.conditions = conditions
    return found if second is None else _combined(found, _by_metric(second, base, other, 2 * comparisons))


def judged(experiment: Experiment, found: Comparison) -> Experiment:
    """The experiment by the deciding metric."""
    return (noise.processor_time(experiment) if found.decided_by == "cpu" else None) or experiment


def interval_of(found: Comparison | ByProcessorTime) -> Interval:
    return Interval(found.gain, found.low, found.high, found.confidence)


def _combined(wall: Comparison, cpu: Comparison) -> Comparison:
    """The deciding comparison, with the other one noted in it: processor time only if wall time cannot decide and
    agrees."""
    agrees = noise.agree(cpu.verdict, interval_of(wall), interval_of(cpu))
    second = ByProcessorTime(
        gain=cpu.gain,
        low=cpu.low,
        high=cpu.high,
        confidence=cpu.confidence,
        verdict=cpu.verdict,
        reason=cpu.reason,
        noise=cpu.noise,
        agrees=agrees,
    )
    if wall.verdict != "INCONCLUSIVE" or cpu.verdict == "INCONCLUSIVE" or not agrees:
        return wall.model_copy(update={"by_processor_time": second})
    decided = {"decided_by": "cpu", "by_wall_time": interval_of(wall), "reason": f"{BY_PROCESSOR_TIME}: {cpu.reason}"}
    return cpu.model_copy(update={"conditions": wall.conditions, "by_processor_time": second, **decided})


def _by_metric(experiment: Experiment, base: str, other: str, comparisons: int) -> Comparison:
    """`compare` by the experiment's metric alone."""
    head, rounds = experiment.head, experiment.rounds()
    if not rounds or base not in rounds[0] or other not in rounds[0]:
        raise LabError(
            "no round is complete: there is nothing to compare", "Let it run longer, or fix the failing program."
        )
    overall = 1.0 - (1.0 - statistics.CONFIDENCE) / comparisons
    confidence = statistics.look_confidence(planned_looks(experiment), overall)
    base_values = values_of(experiment, base)
    gains = statistics.log_gains(base_values, values_of(experiment, other), head.metric.higher_is_better)
    found = statistics.interval(gains, confidence)
    word, reason = judge(found, head.plan.threshold)
    checked = check_noise(experiment, np.asarray(base_values))
    if unfinished := _unfinished(experiment, len(rounds)):
        word, reason = "INCONCLUSIVE", unfinished
    elif checked is not None and not checked.passed and word != "INCONCLUSIVE":
        word, reason = "INCONCLUSIVE", "the noise check failed: the base differs from itself"
    places = statistics.outliers(gains)
    numbers = [next(iter(each.values())).round for each in rounds]
    rest = np.delete(gains, places)
    prediction = head.plan.prediction
    return Comparison(
        base=base,
        other=other,
        rounds=len(rounds),
        gain=found.gain,
        low=found.low,
        high=found.high,
        confidence=confidence,
        overall_confidence=statistics.CONFIDENCE,
        gains=[statistics.percent(float(each)) for each in gains],
        outliers=[Outlier(round=numbers[place], gain=statistics.percent(float(gains[place]))) for place in places],
        gain_without_outliers=statistics.percent(float(np.mean(rest))) if places and len(rest) else None,
        runs_needed=statistics.runs_needed(gains, head.plan.threshold, confidence) if word == "INCONCLUSIVE" else None,
        noise=checked,
        verdict=word,
        reason=reason,
        prediction=prediction,
        prediction_outcome=held_against(prediction, found) if prediction and math.isfinite(found.high) else None,
    )


def more_runs(comparison: Comparison) -> str:
    """What an INCONCLUSIVE verdict needs, as a sentence; empty for the others."""
    if comparison.verdict != "INCONCLUSIVE":
        return ""
    if comparison.noise is not None and not comparison.noise.passed:
        return "Repeat it on a quieter machine."
    if comparison.runs_needed is None:
        return (
            f"No number of rounds up to {statistics.RUNS_CEILING} is likely to decide: the gain is too close to the "
            "threshold for this noise. A longer or quieter benchmark, or another threshold, would help."
        )
    more = max(1, comparison.runs_needed - comparison.rounds)
    return (
        f"About {counted(more, 'more round')} ({comparison.rounds + more} in all) "
        "would decide with a probability of 80 %, "
        "judging by these."
    )
