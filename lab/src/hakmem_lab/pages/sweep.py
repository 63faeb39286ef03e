"""The page of a sweep: a curve over one option, a heat map over two."""

from __future__ import annotations

import math
import shlex
from pathlib import Path

import plotly.graph_objects as go

from hakmem_lab.decide import result_tables
from hakmem_lab.decide.sweep import Point, Sweep, number
from hakmem_lab.measure.results import Experiment
from hakmem_lab.pages.ab import course_chart, distribution_chart, runs_table
from hakmem_lab.pages.page import Cell, Page, Verdict, link_to, provenance


def gain_of(point: Point) -> float:
    return point.gain.gain if point.gain is not None else 0.0


def curve_chart(found: Sweep, threshold: float) -> go.Figure:
    """The gain over the base at each value, with its interval, and the knee."""
    (name,) = found.points[0].point
    numeric = all(number(each.point[name]) is not None for each in found.points)
    points = sorted(found.points, key=lambda each: number(each.point[name]) or 0.0) if numeric else found.points
    bounds = [each.gain for each in points]
    bars = {
        "type": "data",
        "array": [each.high - each.gain if each and math.isfinite(each.high) else 0.0 for each in bounds],
        "arrayminus": [each.gain - each.low if each and math.isfinite(each.high) else 0.0 for each in bounds],
    }
    figure = go.Figure()
    figure.add_scatter(
        x=[each.point[name] for each in points],
        y=[gain_of(each) for each in points],
        error_y=bars,
        mode="lines+markers",
        marker={"size": 10},
    )
    figure.add_hline(y=0, line={"color": "#5b6575"})
    figure.add_hline(y=threshold, line={"color": "#5b6575", "dash": "dot"}, annotation_text=f"{threshold:+g} %")
    if found.knee is not None:
        knee = next(each for each in points if each.label == found.knee)
        figure.add_annotation(x=knee.point[name], y=gain_of(knee), text="knee", showarrow=True, arrowhead=2, ay=-50)
    figure.update_xaxes(type="category", title=name)
    figure.update_layout(title=f"Gain over {found.base}", yaxis_title="gain, %", height=420, showlegend=False)
    return figure


def heat_map(found: Sweep) -> go.Figure:
    """The gain over the base at each pair of values."""
    first, second = found.points[0].point
    order: list[list[str]] = []
    for name in (first, second):
        seen = dict.fromkeys(each.point[name] for each in found.points)
        order.append(sorted(seen, key=lambda text: (number(text) is None, number(text) or 0.0)))
    gains = {(each.point[first], each.point[second]): gain_of(each) for each in found.points}
    rows = [[gains.get((x, y)) for x in order[0]] for y in order[1]]
    figure = go.Figure()
    figure.add_heatmap(
        x=order[0],
        y=order[1],
        z=rows,
        colorscale="RdYlGn",
        zmid=0,
        texttemplate="%{z:+.2f} %",
        colorbar={"title": "gain, %"},
    )
    figure.update_xaxes(type="category", title=first)
    figure.update_yaxes(type="category", title=second)
    figure.update_layout(title=f"Gain over {found.base}", height=480)
    return figure


def point_rows(found: Sweep) -> list[list[Cell]]:
    """The table of a sweep."""
    rows: list[list[Cell]] = []
    for each in found.points:
        against = each.gain
        mark = ", ".join(
            name
            for name, label in (("base", found.base), ("best", found.best), ("knee", found.knee))
            if label == each.label
        )
        bounds = [against.gain, against.low, against.high] if against else [None, None, None]
        finite: list[Cell] = [value if value is not None and math.isfinite(value) else None for value in bounds]
        word = each.comparison.verdict if each.comparison else ""
        rows.append([each.label, each.summary.median, each.summary.cv, *finite, word, each.loss, mark])
    return rows


def verdict(experiment: Experiment, found: Sweep) -> Verdict:
    """The verdict at the top."""
    best = next(each for each in found.points if each.label == found.best)
    of = f"{', '.join(found.points[0].point)}: {shlex.join(experiment.head.plan.command)}"
    said = [each for each in (found.sentence, found.conditions.sentence, experiment.retried()) if each]
    return Verdict(of, "SWEEP", f"best: {found.best} ({result_tables.gain(gain_of(best))})", said)


def body(page: Page, experiment: Experiment, found: Sweep) -> None:
    """Everything below the verdict."""
    head = experiment.head
    two = len(found.points[0].point) == 2
    page.chart(
        heat_map(found) if two else curve_chart(found, head.plan.threshold),
        "Gains over the base, from paired rounds; all intervals together hold with 95 % confidence.",
    )
    page.table(
        ["setting", "median", "CV %", "gain %", "from", "to", "verdict", "behind the best %", "mark"], point_rows(found)
    )
    labels = [each.label for each in found.points]
    page.chart(distribution_chart(experiment, labels))
    page.chart(course_chart(experiment, labels))
    runs_table(page, experiment)
    provenance(page, head)


def compose(experiment: Experiment, found: Sweep, raw: str | None = None) -> Page:
    """The whole page."""
    head = experiment.head
    page = Page(f"Sweep: {shlex.join(head.plan.command)}", f"metric: {found.title}; base: {found.base}")
    page.verdict(verdict(experiment, found), raw=raw)
    body(page, experiment, found)
    return page


def write(experiment: Experiment, found: Sweep, path: Path, results: Path | None = None) -> None:
    """Writes the page.  results: the file of the runs, to which it links."""
    compose(experiment, found, link_to(results, path)).write(path)
