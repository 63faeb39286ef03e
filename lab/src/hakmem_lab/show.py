"""Tables and verdicts in the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

from hakmem_lab import console, statistics
from hakmem_lab.results import Experiment
from hakmem_lab.verdict import Comparison, Summary, more_runs, summarize, values_of

COLOURS = {"GO": "green", "NO-GO": "red", "INCONCLUSIVE": "yellow"}


def number(value: float) -> str:
    """Four significant digits, large numbers with thousands separated."""
    if not math.isfinite(value):
        return "∞" if value > 0 else "-∞"
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


def gain(value: float) -> str:
    return f"{value:+.2f} %" if math.isfinite(value) else number(value)


def between(low: float, high: float) -> str:
    return f"{gain(low)} .. {gain(high)}"


def prediction_sentence(found: Comparison) -> str:
    """Prediction against outcome; empty when nothing was predicted."""
    if found.prediction is None or found.prediction_outcome is None:
        return ""
    low, high = found.prediction
    meaning = {
        "met": "the gain lies in the range",
        "missed": "the whole interval lies outside",
        "open": "the gain lies outside, but the interval reaches in",
    }[found.prediction_outcome]
    return f"Predicted {low:+g} .. {high:+g} %: {found.prediction_outcome} ({meaning})."


def noise_sentence(found: Comparison) -> str:
    """The noise check in words; empty when there was none."""
    if found.noise is None:
        return ""
    result = "passed" if found.noise.passed else "FAILED"
    return (
        f"Noise check {result}: {found.base} against itself {gain(found.noise.gain)}, "
        f"{between(found.noise.low, found.noise.high)} ({found.noise.confidence:.0%})."
    )


def outlier_sentence(found: Comparison) -> str:
    """Which rounds are outliers, and what they do to the gain; empty when there are none."""
    if not found.outliers:
        return ""
    listed = ", ".join(f"round {each.round} ({gain(each.gain)})" for each in found.outliers)
    rest = found.gain_without_outliers
    without = f" Without them the gain would be {gain(rest)}." if rest is not None else ""
    return f"Outliers, all kept: {listed}; {statistics.OUTLIER_RULE}.{without}"


def sentences(found: Comparison) -> list[str]:
    """All that is to be said beside the figures."""
    said = (more_runs(found), prediction_sentence(found), noise_sentence(found), outlier_sentence(found))
    return [each for each in said if each]


def summary_table(experiment: Experiment, labels: Sequence[str]) -> Table:
    """The metric of each configuration."""
    metric = experiment.head.metric
    better = "higher" if metric.higher_is_better else "lower"
    table = Table(title=f"{escape(metric.title)} ({better} is better)", title_justify="left", title_style="")
    table.add_column("configuration")
    for name in ("mean", "median", "least", "most", "CV %"):
        table.add_column(name, justify="right")
    for label in labels:
        row: Summary = summarize(label, values_of(experiment, label))
        figures = (row.mean, row.median, row.least, row.most)
        text = experiment.head.find(label).text
        name = f"{label}: {text}" if text and text != label else label
        table.add_row(escape(name), *(number(each) for each in figures), f"{row.cv:.2f}")
    return table


def verdict_panel(found: Comparison) -> Panel:
    """The verdict, the gain and its interval, and what else has to be said."""
    colour = COLOURS[found.verdict]
    lines = [
        f"[bold {colour}]{found.verdict}[/]  {escape(found.reason)}",
        f"gain of {escape(found.other)} over {escape(found.base)}: [bold]{gain(found.gain)}[/]  "
        f"({between(found.low, found.high)}, {found.rounds} rounds)",
        *(escape(each) for each in sentences(found)),
    ]
    return Panel("\n".join(lines), border_style=colour, expand=False)


def comparison(experiment: Experiment, found: Comparison) -> None:
    """Prints what `hakmem ab` has found."""
    console.out.print(summary_table(experiment, experiment.labels))
    console.out.print(verdict_panel(found))
