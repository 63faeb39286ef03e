"""Tables and verdicts in the terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from rich import box
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

from hakmem_lab.decide import statistics
from hakmem_lab.decide.allocator_comparison import Comparisons, Gain, Row
from hakmem_lab.decide.sweep import Sweep
from hakmem_lab.decide.verdict import Comparison, Summary, judged, more_runs, summarize, values_of
from hakmem_lab.measure.results import Experiment
from hakmem_lab.terminal import console, tables
from hakmem_lab.terminal.amounts import counted, number

SHORT_S = 0.1
WIDEST = 9999  # %: a wider interval says no more
TABLE: dict[str, Any] = {"title_justify": "left", "title_style": "bold", "box": box.SIMPLE_HEAD}
COLOURS = {"GO": "green", "NO-GO": "red", "INCONCLUSIVE": "yellow"}


def gain(value: float) -> str:
    return f"{value:+.2f} %" if math.isfinite(value) else number(value)


def between(low: float, high: float) -> str:
    return f"{gain(low)} .. {gain(high)}"


def prediction_sentence(found: Comparison) -> str:
    """The prediction against the outcome; empty without a prediction."""
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
    """The noise check in words; empty if there was none."""
    if found.noise is None:
        return ""
    result = "passed" if found.noise.passed else "FAILED"
    return (
        f"Noise check {result}: {found.base} against itself {gain(found.noise.gain)}, "
        f"{between(found.noise.low, found.noise.high)} ({found.noise.confidence:.0%})."
    )


def outlier_sentence(found: Comparison) -> str:
    """The outlier rounds and their effect on the gain; empty if there are none."""
    if not found.outliers:
        return ""
    listed = ", ".join(f"round {each.round} ({gain(each.gain)})" for each in found.outliers)
    rest = found.gain_without_outliers
    without = f" Without them the gain would be {gain(rest)}." if rest is not None else ""
    return f"Outliers, all kept: {listed}; {statistics.OUTLIER_RULE}.{without}"


def conditions_sentence(found: Comparison) -> str:
    """That the machine was busy, and the result by the metric that did not decide; empty for a quiet machine."""
    if found.conditions is None or not found.conditions.busy:
        return ""
    busy, second, wall = found.conditions.sentence, found.by_processor_time, found.by_wall_time
    if second is None:
        return busy
    if wall is not None:
        return (
            f"{busy} By wall time the gain is {gain(wall.gain)} ({between(wall.low, wall.high)}): it does not decide."
        )
    interval = between(second.low, second.high)
    said = f"{busy} By processor time the gain is {gain(second.gain)} ({interval}): {second.verdict}"
    if second.verdict in ("INCONCLUSIVE", found.verdict):
        return said + "."
    if not second.agrees:
        return said + ", which wall time does not confirm; the program may wait for more than processors."
    return said + ". If processor time is what counts, measure it: --metric cpu."


def sentences(found: Comparison) -> list[str]:
    """All remarks beside the figures."""
    said = (
        more_runs(found),
        prediction_sentence(found),
        conditions_sentence(found),
        noise_sentence(found),
        outlier_sentence(found),
    )
    return [each for each in said if each]


def summary_table(experiment: Experiment, labels: Sequence[str]) -> Table:
    """The metric of each configuration."""
    metric = experiment.head.metric
    better = "higher" if metric.higher_is_better else "lower"
    table = Table(title=f"{escape(metric.title)} ({better} is better)", **TABLE)
    table.add_column("configuration")
    for name in ("mean", "median", "least", "most", "CV %"):
        table.add_column(name, justify="right")
    for label in labels:
        row: Summary = summarize(label, values_of(experiment, label))
        figures = (row.mean, row.median, row.least, row.most)
        text = experiment.head.find(label).text
        name = label if text == label else f"{label}: {text or 'as it is'}"
        table.add_row(escape(name), *(number(each) for each in figures), f"{row.cv:.2f}")
    return table


def gain_sentence(found: Comparison) -> str:
    """The gain by the metric that decided, as Rich's markup."""
    metric = " by processor time" if found.decided_by == "cpu" else ""
    return (
        f"gain of {escape(found.other)} over {escape(found.base)}{metric}: [bold]{gain(found.gain)}[/]  "
        f"({between(found.low, found.high)}, {counted(found.rounds, 'round')})"
    )


def verdict_panel(found: Comparison) -> Panel:
    """The verdict, the gain with its interval, and all remarks."""
    colour = COLOURS[found.verdict]
    lines = [
        f"[bold {colour}]{found.verdict}[/]  {escape(found.reason)}",
        gain_sentence(found),
        *(escape(each) for each in sentences(found)),
    ]
    return Panel("\n".join(lines), border_style=colour, expand=False)


def comparison(experiment: Experiment, found: Comparison) -> None:
    """Prints the outcome of `hakmem ab`, the deciding metric first."""
    decided = judged(experiment, found)
    for each in (decided, experiment)[: 1 if decided is experiment else 2]:
        tables.show(console.out, summary_table(each, each.labels))
    console.out.print(verdict_panel(found))
    say(escape(experiment.retried()), short_runs(experiment))


def sweep(experiment: Experiment, found: Sweep) -> None:
    """Prints the outcome of `hakmem sweep`, by the deciding metric."""
    table = Table(title=f"{escape(found.title)}; gain over {escape(found.base)}", **TABLE)
    names = list(found.points[0].point)
    for name in names:
        table.add_column(name)
    second = ("wall time: gain %",) if found.metric == "cpu" else ()
    for name in ("median", "CV %", "gain %", "interval, %", *second):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for each in found.points:
        marks = (("base", found.base), ("best", found.best), ("knee", found.knee))
        cells = [each.point[name] for name in names]
        cells[-1] = " ".join([cells[-1], *(name for name, label in marks if label == each.label)])
        row = [*map(escape, cells), number(each.summary.median), f"{each.summary.cv:.2f}"]
        if each.comparison is not None and each.gain is not None:
            against, word = each.gain, each.comparison.verdict
            bounds = f"{against.low:+.2f} .. {against.high:+.2f}" if math.isfinite(against.high) else ""
            wall = [f"{(each.comparison.by_wall_time or each.comparison).gain:+.2f}"] if second else []
            row += [f"{against.gain:+.2f}", bounds, *wall, f"[{COLOURS[word]}]{word}[/]"]
        table.add_row(*row)
    tables.show(console.out, table)
    said = (found.sentence, found.conditions.sentence, experiment.retried(), short_runs(experiment))
    say(*map(escape, said))


def compare_columns(found: Comparisons, title: str) -> list[tuple[str, Callable[[Row], str]]]:
    """The columns of a comparison: the metric's own figure first, with its gain, then the others."""
    gain_head, own = f"gain ± {100 * found.confidence:.4g} % interval, %", title if found.printed else ""
    figures: dict[str, tuple[str, Callable[[Row], str]]] = {
        "time": ("time s", lambda row: number(row.time_s)),
        "cpu": ("CPU s", lambda row: number(row.cpu_s)),
        "rss": ("peak MiB", lambda row: number(row.peak_mib)),
    }
    if not own and found.metric not in figures:
        own = found.metric
    first = (own, lambda row: number(row.value)) if own else figures.pop(found.metric)
    columns: list[tuple[str, Callable[[Row], str]]] = [first, (gain_head, lambda row: gain_cell(row.gain))]
    for name, column in figures.items():
        columns.append(column)
        if name == "time" and any(row.wall_gain for row in found.rows):
            columns.append(("time " + gain_head, lambda row: gain_cell(row.wall_gain)))
        if name == "rss":
            columns.append(("memory " + gain_head, lambda row: gain_cell(row.memory_gain)))
    return [*columns, ("faults", lambda row: number(round(row.minor_faults)))]


def compare(experiment: Experiment, found: Comparisons) -> None:
    """Prints the outcome of `hakmem compare`, the deciding metric first."""
    table = Table(title=f"medians; gains over {escape(found.base)} of paired rounds", **TABLE)
    table.add_column("allocator")
    columns = compare_columns(found, found.title)
    for name, _ in columns:
        table.add_column(escape(name), justify="right")
    for each in found.rows:
        table.add_row(escape(each.label), *(cell(each) for _, cell in columns))
    tables.show(console.out, table)
    for failure in experiment.broken():
        console.out.print(f"[red]{escape(failure.label)}[/] failed: {escape(failure.problem)}")
    said = (found.sentence, found.conditions.sentence, experiment.retried(), short_runs(experiment))
    say(*map(escape, said))


def gain_cell(found: Gain | None) -> str:
    """A gain and half of its interval for a table: +1.2 ±0.3; nothing for the base."""
    if found is None:
        return ""
    half = (found.high - found.low) / 2
    if math.isfinite(half):
        return f"{found.gain:+.1f} ±{half:.1f}" if half < WIDEST else f"{found.gain:+.1f} ±>{WIDEST}"
    return f"{found.gain:+.1f} ±∞"


def short_runs(experiment: Experiment) -> str:
    """A warning if the program is so short that its start distorts the times; otherwise empty."""
    rounds = experiment.rounds()
    if not rounds or experiment.head.metric.name not in ("time", "cpu"):
        return ""
    shortest = min(median(each[label].wall_s for each in rounds) for label in rounds[0])
    if shortest >= SHORT_S:
        return ""
    return f"A run lasts {shortest * 1000:.0f} ms, much of it the start of the process. Give the program more to do."


def say(*said: str) -> None:
    """Prints sentences, each on its own line, without empty ones."""
    for each in said:
        if each:
            console.out.print(each)
