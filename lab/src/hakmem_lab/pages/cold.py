"""The page of a search for memory that nobody uses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import plotly.graph_objects as go

from hakmem_lab.inspect.cold import Cold
from hakmem_lab.inspect.snapshots import MEGABYTE
from hakmem_lab.pages.page import Cell, Page, Verdict
from hakmem_lab.profile import by_stack
from hakmem_lab.profile.by_stack import Stacks
from hakmem_lab.terminal.amounts import in_bytes

SHOWN, MOST_STACKS = 25, 100


def chart(found: Cold) -> go.Figure:
    """Live memory by size of block, used and not."""
    rows = sorted([each for each in found.classes if each[1]][:SHOWN], key=lambda each: each[0] or 1 << 62)
    names = [f"{size:,}" if size else "huge" for size, _, _ in rows]
    figure = go.Figure()
    figure.add_bar(x=names, y=[idle / MEGABYTE for _, _, idle in rows], name="cold")
    figure.add_bar(x=names, y=[(live - idle) / MEGABYTE for _, live, idle in rows], name="used")
    figure.update_layout(barmode="stack", title="Live memory by size of block", yaxis_title="MiB", height=400)
    figure.update_xaxes(type="category", title="block size, bytes")
    return figure


def curve(found: Cold) -> go.Figure:
    figure = go.Figure()
    figure.add_scatter(x=[at for at, _ in found.used], y=[size / MEGABYTE for _, size in found.used])
    figure.update_layout(title="Pages that were used", xaxis_title="seconds", yaxis_title="MiB")
    figure.update_yaxes(rangemode="tozero")
    return figure


def write(found: Cold, stacks: Stacks, name: str, said: Sequence[str], path: Path) -> None:
    page = Page(f"Cold memory in {name}")
    figure = f"{in_bytes(found.cold_bytes)} unused for {found.seconds:.0f} s"
    page.verdict(Verdict(name, "COLD", figure, said))
    page.chart(chart(found))
    page.chart(curve(found), "How much of it is needed within a time: where the curve is flat, the rest is cold.")
    if stacks:
        page.heading(by_stack.TITLE.capitalize())
        cells: list[list[Cell]] = []
        for stack, values in by_stack.largest(stacks, MOST_STACKS, "cold"):
            each, age = values["cold"], round(by_stack.mean_age(values))
            cells.append([round(each.bytes), round(each.error), age, by_stack.short(stack, 8)])
        page.table(["cold bytes", "±", "mean age, s", "allocated by"], cells)
    page.heading("By size of block")
    page.table(["bytes of a block", "bytes", "cold bytes"], [list(each) for each in found.classes])
    page.write(path)
