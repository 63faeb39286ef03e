"""The page of results over commits: a chart for each series, its changes, and every experiment."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

import plotly.graph_objects as go

from hakmem_lab.decide import result_tables
from hakmem_lab.decide.history import ChangePoint, Series
from hakmem_lab.pages.page import COLOURS, Cell, Link, Page, Verdict


def chart(series: Series) -> go.Figure:
    """Every experiment with its interval, the levels between changes, and the changes."""
    points = series.points
    ends = [each.high if math.isfinite(each.high) else each.gain for each in points]
    bars = {
        "type": "data",
        "array": [end - each.gain for end, each in zip(ends, points, strict=True)],
        "arrayminus": [each.gain - max(each.low, -100.0) for each in points],
        "thickness": 1,
    }
    figure = go.Figure()
    figure.add_scatter(
        x=list(range(1, len(points) + 1)),
        y=[each.gain for each in points],
        error_y=bars,
        text=[f"{each.commit}, {each.begun}" for each in points],
        mode="markers",
        name="experiments",
        marker={"size": 9, "color": COLOURS[0]},
    )
    for number, (start, end, level) in enumerate(series.levels):
        figure.add_scatter(
            x=[start + 0.6, end + 0.4],
            y=[level, level],
            mode="lines",
            name="level",
            showlegend=number == 0,
            line={"color": COLOURS[1], "width": 3},
        )
    for each in series.changes:
        figure.add_vline(x=each.place + 0.5, line={"color": "#b91c1c", "dash": "dot"}, annotation_text=each.after)
    step = max(1, len(points) // 12)
    places = list(range(0, len(points), step))
    ticks = {"tickvals": [place + 1 for place in places], "ticktext": [points[place].commit for place in places]}
    figure.update_xaxes(**ticks, tickangle=-40, automargin=True)
    figure.update_layout(title="Gain over commits", yaxis_title=f"gain of B over A, %; {series.metric}", height=440)
    return figure


def sentence(each: ChangePoint) -> str:
    """A change in words."""
    way = "better" if each.gain > 0 else "worse"
    return (
        f"{each.after} after {each.before}: {result_tables.gain(each.gain)} "
        f"({result_tables.between(each.low, each.high)}), {way}; p = {each.p:.3g}."
    )


def verdict(series: Series) -> Verdict:
    """The changes of one series; their number is the figure."""
    count = len(series.changes)
    word = "CHANGED" if count else "LEVEL"
    figure = f"{count} change{'' if count == 1 else 's'} in {len(series.points)} experiments"
    said = [sentence(each) for each in series.changes] or ["No commit has changed the level."]
    return Verdict(series.title, word, figure, said)


def _rows(series: Series, folder: Path) -> list[list[Cell]]:
    return [
        [
            Link(each.commit, os.path.relpath(each.file, folder)),
            each.begun,
            each.gain,
            each.low,
            each.high if math.isfinite(each.high) else None,
            each.verdict,
        ]
        for each in series.points
    ]


def write(found: Sequence[Series], path: Path, single: bool) -> None:
    """Writes the page."""
    page = Page("History", f"{len(found)} series; each commit links to the file of its experiment")
    page.open("verdicts")
    for number, series in enumerate(found, start=1):
        page.verdict(verdict(series), f"series-{number}")
    page.close()
    for number, series in enumerate(found, start=1):
        page.heading(series.title, f"series-{number}")
        page.text(f"Measured on {series.machine}.", "soft")
        page.chart(
            chart(series),
            "Each point is one experiment; a dotted line precedes the commit that changed the level.",
        )
        page.table(["commit", "begun (UTC)", "gain, %", "from", "to", "verdict"], _rows(series, path.resolve().parent))
    page.write(path, single)
