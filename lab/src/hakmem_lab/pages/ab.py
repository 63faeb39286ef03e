"""The page of an A/B experiment."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from pathlib import Path

import plotly.graph_objects as go

from hakmem_lab.decide import latency_shifts, result_tables
from hakmem_lab.decide.latency_shifts import Shift
from hakmem_lab.decide.verdict import Comparison, judged, summarize, values_of
from hakmem_lab.measure.results import NOISE, Experiment
from hakmem_lab.pages.page import COLOURS, Cell, Page, Verdict, link_to, provenance
from hakmem_lab.terminal.amounts import counted, number


def gains_chart(found: Comparison, threshold: float, rounds: list[int]) -> go.Figure:
    """Each round's gain, the mean with its interval, the threshold, and the prediction."""
    far = {each.round for each in found.outliers}
    figure = go.Figure()
    for name, wanted, symbol in (("rounds", False, "circle"), ("outliers, kept", True, "diamond-open")):
        chosen = [place for place, number in enumerate(rounds) if (number in far) == wanted]
        if chosen:
            figure.add_scatter(
                x=[found.gains[place] for place in chosen],
                y=["rounds"] * len(chosen),
                text=[f"round {rounds[place]}" for place in chosen],
                mode="markers",
                name=name,
                marker={"symbol": symbol, "size": 10, "opacity": 0.7},
            )
    if math.isfinite(found.high):
        bar = {"type": "data", "array": [found.high - found.gain], "arrayminus": [found.gain - found.low], "width": 12}
        figure.add_scatter(
            x=[found.gain], y=["gain"], error_x=bar, mode="markers", name="gain and interval", marker={"size": 14}
        )
    figure.add_vline(x=0, line={"color": "#5b6575"})
    figure.add_vline(
        x=threshold, line={"color": "#5b6575", "dash": "dot"}, annotation_text=f"threshold {threshold:+g} %"
    )
    if found.prediction is not None:
        low, high = found.prediction
        figure.add_vrect(x0=low, x1=high, fillcolor="#2563eb", opacity=0.12, annotation_text="predicted")
    figure.update_layout(title=f"Gain of {found.other} over {found.base}", xaxis_title="gain, %", height=380)
    return figure


def distribution_chart(experiment: Experiment, labels: list[str]) -> go.Figure:
    """All values of each configuration, not only their means."""
    figure = go.Figure()
    for place, label in enumerate(labels):
        figure.add_box(
            y=values_of(experiment, label),
            name=label,
            boxpoints="all",
            jitter=0.4,
            pointpos=0,
            boxmean=True,
            marker_color=COLOURS[place % len(COLOURS)],
        )
    figure.update_layout(title="Distribution", yaxis_title=experiment.head.metric.title, showlegend=False, height=420)
    return figure


def shifts_chart(shifts: Sequence[Shift]) -> go.Figure:
    """The shift of each quantile of the latencies."""
    figure = go.Figure()
    figure.add_scatter(
        x=[each.gain for each in shifts],
        y=[f"{each.quantile}: {number(each.base)}, {number(each.other)}" for each in shifts],
        error_x={
            "type": "data",
            "array": [each.high - each.gain for each in shifts],
            "arrayminus": [each.gain - each.low for each in shifts],
        },
        mode="markers",
        name="quantiles",
        marker={"size": 10},
    )
    figure.add_vline(x=0, line={"color": "#5b6575"})
    figure.update_yaxes(autorange="reversed", automargin=True)
    figure.update_layout(title="Shift of latencies", xaxis_title="gain, %; right of 0 is shorter", height=360)
    return figure


def course_chart(experiment: Experiment, labels: list[str]) -> go.Figure:
    """The values over time, which show drift and disturbances."""
    figure = go.Figure()
    for label in labels:
        runs = [each[label] for each in experiment.rounds()]
        figure.add_scatter(
            x=[each.at for each in runs],
            y=[each.value for each in runs],
            text=[f"round {each.round}" for each in runs],
            mode="lines+markers",
            name=label,
        )
    figure.update_layout(
        title="Over time",
        xaxis_title="seconds since the experiment began",
        yaxis_title=experiment.head.metric.title,
        height=380,
    )
    return figure


def runs_table(page: Page, experiment: Experiment) -> None:
    """All counted runs."""
    rows: list[list[Cell]] = [
        [
            run.round,
            run.position + 1,
            run.label,
            run.value,
            run.wall_s,
            run.cpu_user_s + run.cpu_system_s,
            run.peak_rss_bytes / 2**20,
            run.minor_faults,
            run.major_faults,
        ]
        for each in experiment.rounds()
        for run in each.values()
    ]
    heads = ["round", "place", "configuration", experiment.head.metric.title, "wall s", "CPU s", "peak MiB"]
    page.heading("Every run")
    page.table([*heads, "minor faults", "major faults"], rows)


def summary_rows(experiment: Experiment, labels: list[str]) -> list[list[Cell]]:
    """The metric's summary of each configuration, for a table."""
    summaries = [summarize(label, values_of(experiment, label)) for label in labels]
    return [[each.label, each.mean, each.median, each.least, each.most, each.cv] for each in summaries]


def verdict(experiment: Experiment, found: Comparison) -> Verdict:
    """The verdict at the top."""
    head = experiment.head
    series = {each.label: each.text or "as it is" for each in head.series}
    return Verdict(
        f"{series[found.other]} against {series[found.base]}: {shlex.join(head.plan.command)}",
        found.verdict,
        f"{result_tables.gain(found.gain)}  ({result_tables.between(found.low, found.high)})",
        [
            f"{counted(found.rounds, 'round')}: {found.reason}.",
            *result_tables.sentences(found),
            *filter(None, [experiment.retried()]),
        ],
    )


def body(page: Page, experiment: Experiment, found: Comparison) -> None:
    """Everything below the verdict."""
    experiment = judged(experiment, found)
    head = experiment.head
    labels = [each.label for each in head.series]
    page.table(["configuration", "mean", "median", "least", "most", "CV %"], summary_rows(experiment, labels))
    rounds = [next(iter(each.values())).round for each in experiment.rounds()]
    page.chart(
        gains_chart(found, head.plan.threshold, rounds),
        f"Each point is one round. The interval holds the gain with {found.confidence:.2%} confidence"
        + (f", so that all looks together hold with {found.overall_confidence:.0%}." if head.plan.max_runs else "."),
    )
    page.chart(distribution_chart(experiment, labels))
    shifts = latency_shifts.shifts(experiment)
    if shifts:
        page.chart(
            shifts_chart(shifts),
            "Gains of the latencies' quantiles, right of 0 shorter; the intervals hold together with 95 % confidence.",
        )
    note = (
        f"'{NOISE}' is A, run a second time in each round: its difference from A is noise." if NOISE in labels else ""
    )
    page.chart(course_chart(experiment, labels), note)
    runs_table(page, experiment)
    provenance(page, head)


def compose(experiment: Experiment, found: Comparison, raw: str | None = None) -> Page:
    """The whole page."""
    head = judged(experiment, found).head
    series = {each.label: each.text or "as it is" for each in head.series}
    page = Page(
        f"A/B: {shlex.join(head.plan.command)}",
        f"A: {series[found.base]}   B: {series[found.other]}   metric: {head.metric.title}",
    )
    page.verdict(verdict(experiment, found), raw=raw)
    body(page, experiment, found)
    return page


def write(experiment: Experiment, found: Comparison, path: Path, results: Path | None = None) -> None:
    """Writes the page.  results: the file of the runs, to which it links."""
    compose(experiment, found, link_to(results, path)).write(path)
