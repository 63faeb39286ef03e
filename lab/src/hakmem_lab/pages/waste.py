"""The page of a search for waste: what could be saved, by kind and by what the blocks hold."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import plotly.graph_objects as go

from hakmem_lab.inspect.snapshots import MEGABYTE
from hakmem_lab.inspect.waste import KINDS, MEANINGS, Waste
from hakmem_lab.pages.page import Cell, Page, Verdict
from hakmem_lab.profile import by_stack
from hakmem_lab.profile.by_stack import Stacks
from hakmem_lab.terminal.amounts import in_bytes

SHOWN, MOST_STACKS = 25, 100


def chart(found: Waste) -> go.Figure:
    """The groups that could save most, as bars of their kinds."""
    groups = [each for each in found.groups if each.total][:SHOWN][::-1]
    names = [f"{each.type[:40]}, {f'{each.size:,} B' if each.size else 'huge'}" for each in groups]
    figure = go.Figure()
    for kind in KINDS:
        if any(kind in each.saved for each in groups):
            sizes = [each.saved.get(kind, 0) / MEGABYTE for each in groups]
            figure.add_bar(y=names, x=sizes, name=kind, orientation="h")
    figure.update_yaxes(automargin=True)
    figure.update_layout(
        barmode="stack", title="What could be saved", xaxis_title="MiB", height=160 + 24 * max(len(groups), 4)
    )
    return figure


def write(found: Waste, stacks: Stacks, name: str, said: Sequence[str], path: Path) -> None:
    page = Page(f"Waste in {name}")
    page.verdict(Verdict(name, "WASTE", f"{in_bytes(found.total)} could be saved", said))
    page.table(["kind", "what it is", "bytes"], [[kind, MEANINGS[kind], found.saved[kind]] for kind in KINDS])
    page.chart(chart(found))
    rows: list[list[Cell]] = [
        [each.size, each.type, each.blocks, each.bytes, *(each.saved.get(kind, 0) for kind in KINDS[:-1]), each.example]
        for each in found.groups
    ]
    page.heading("By what the blocks hold")
    page.table(["bytes of a block", "they hold", "blocks", "bytes", *KINDS[:-1], "the most frequent copy"], rows)
    if stacks:
        page.heading(by_stack.TITLE.capitalize())
        cells: list[list[Cell]] = []
        for stack, values in by_stack.largest(stacks, MOST_STACKS):
            each = by_stack.total(values)
            kinds = [round(values[kind].bytes) if kind in values else None for kind in KINDS[:-1]]
            cells.append([round(each.bytes), round(each.error), *kinds, by_stack.short(stack, 8)])
        page.table(["bytes", "±", *KINDS[:-1], "allocated by"], cells)
    page.write(path)
