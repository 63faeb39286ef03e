"""The page of several cases: the verdict on all, their gains in one chart and one table, and each case's page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import plotly.graph_objects as go

from hakmem_lab.decide.exports import Report
from hakmem_lab.decide.verdict import Comparison
from hakmem_lab.measure.results import Experiment
from hakmem_lab.pages import ab
from hakmem_lab.pages.page import COLOURS, Cell, Link, Page, Verdict, provenance
from hakmem_lab.terminal.amounts import counted

HEIGHT_OF_ROW = 30


def gains_chart(report: Report) -> go.Figure:
    """The gains with their intervals, one below the other."""
    drawn = [each for each in report.rows if math.isfinite(each.high)]
    figure = go.Figure()
    figure.add_scatter(
        x=[each.gain for each in drawn],
        y=[each.case for each in drawn],
        error_x={
            "type": "data",
            "array": [each.high - each.gain for each in drawn],
            "arrayminus": [each.gain - each.low for each in drawn],
        },
        mode="markers",
        marker={"size": 10, "color": COLOURS[0]},
    )
    figure.add_vline(x=0, line={"color": "#5b6575"})
    figure.update_yaxes(autorange="reversed", automargin=True)
    figure.update_layout(
        title="Gains", xaxis_title="gain, %; right of 0 is better", height=140 + HEIGHT_OF_ROW * len(drawn)
    )
    return figure


def write(report: Report, made: Sequence[tuple[Experiment, Comparison, Path]], path: Path) -> None:
    """Writes the page at `path`, and a page for each case beside its results."""
    for experiment, found, results in made:
        ab.write(experiment, found, results.with_suffix(".html"), results)
    page = Page(report.title, f"{counted(len(report.rows), 'case')}; they share the error rate")
    page.verdict(
        Verdict(report.title, report.verdict, "", [f"{report.reason}.", *(f"{each}." for each in report.remarks)])
    )
    rows: list[list[Cell]] = [
        [
            Link(each.case, results.with_suffix(".html").name),
            each.metric,
            each.gain,
            each.low,
            each.high,
            each.rounds,
            each.verdict,
            Link("every run", results.name),
        ]
        for each, (_, _, results) in zip(report.rows, made, strict=True)
    ]
    page.table(["case", "metric", "gain, %", "from", "to", "rounds", "verdict", "results"], rows)
    if any(math.isfinite(each.high) for each in report.rows):
        page.chart(gains_chart(report), "All intervals hold together with 95 % confidence.")
    provenance(page, made[0][0].head)
    page.write(path)
