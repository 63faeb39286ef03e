"""The page of a bound: the program's time by added delay, and where its memory is."""

from __future__ import annotations

from pathlib import Path

import plotly.graph_objects as go

from hakmem_lab.experiment.worth import DELAYS, Worth, says
from hakmem_lab.pages.page import Cell, Page, Verdict


def chart(found: Worth) -> go.Figure:
    """Each round's times, over the delay of each call."""
    figure = go.Figure()
    for number, each in enumerate(found.rounds, start=1):
        figure.add_scatter(x=list(DELAYS), y=list(each.delayed_s), mode="lines+markers", name=f"round {number}")
    figure.update_layout(title="Time by added delay", xaxis_title="ns added to each call", yaxis_title="s", height=400)
    return figure


def write(found: Worth, name: str, path: Path) -> None:
    page = Page(f"What an allocator could gain for {name}")
    mean, low, high = found.bound()
    word, figure = "AT MOST", f"{mean:.1f} % ({low:.1f} .. {high:.1f})"
    if found.why_unbounded():
        word, figure = "NO BOUND", ""
    page.verdict(Verdict(name, word, figure, says(found)))
    page.chart(chart(found), "The slope is the number of calls for which the program waits.")
    rows: list[list[Cell]] = [
        [number, each.plain_s, each.calls, each.inside_s, each.faults_s, each.slope]
        for number, each in enumerate(found.rounds, start=1)
    ]
    page.table(["round", "s", "calls", "s in calls", "s in page faults", "calls waited for"], rows)
    page.write(path)
