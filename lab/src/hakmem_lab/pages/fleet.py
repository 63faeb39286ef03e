"""The page of a verdict on a fleet."""

from __future__ import annotations

import math
from pathlib import Path

import plotly.graph_objects as go

from hakmem_lab.fleet.verdict import FleetVerdict, Row
from hakmem_lab.pages.page import COLOURS, Cell, Page, Verdict


def chart(row: Row) -> go.Figure:
    """The gain at each look with its interval."""
    looks = [(i + 1, *each) for i, each in enumerate(row.by_look) if all(math.isfinite(value) for value in each)]
    figure = go.Figure()
    days = [each[0] for each in looks]
    figure.add_scatter(
        x=[*days, *reversed(days)],
        y=[*(each[3] for each in looks), *(each[2] for each in reversed(looks))],
        fill="toself",
        mode="lines",
        line={"width": 0},
        fillcolor="rgba(37, 99, 235, 0.2)",
        name="interval",
    )
    figure.add_scatter(
        x=days, y=[each[1] for each in looks], mode="lines+markers", name="gain", line={"color": COLOURS[0]}
    )
    figure.add_hline(y=0, line={"color": "#475569", "dash": "dot"})
    unit = "gain, %" if row.scale == "ratio" else "fewer events per host and day"
    figure.update_layout(title=row.metric, xaxis_title="day", yaxis_title=unit, height=380)
    return figure


def _figure(row: Row, value: float) -> str:
    return f"{value:+.2f} %" if row.scale == "ratio" else f"{value:+.4f}"


def _cells(row: Row) -> list[Cell]:
    interval = (_figure(row, each) for each in (row.gain, row.low, row.high))
    return [row.metric, row.word, *interval, f"{row.p:.2g}", row.role, row.reason]


def write(found: FleetVerdict, path: Path, single: bool) -> None:
    """Writes the page."""
    page = Page("Fleet", f"day {found.day} of {found.days}; {found.hosts} hosts, {found.treated} of them with HAKMEM")
    best = next((row for row in found.rows if row.role == "target"), None)
    figure = f"{_figure(best, best.gain)} ({_figure(best, best.low)} .. {_figure(best, best.high)})" if best else ""
    word = "INCONCLUSIVE" if found.verdict == "REFUSED" else found.verdict
    said = [found.reason, *found.refusals[1:], *found.notes]
    page.verdict(Verdict("fleet", word, figure if found.verdict != "REFUSED" else "refused", said))
    rows = [_cells(row) for row in found.rows]
    if rows:
        page.heading("Every metric")
        page.table(["metric", "verdict", "gain", "from", "to", "p", "as", "why"], rows)
        page.heading("Day by day")
        page.text("Intervals hold together at all days, so the first one that excludes 0 may be believed.", "soft")
    for row in found.rows:
        if row.role == "target" or row.word != "holds":
            page.chart(chart(row))
    page.write(path, single)
