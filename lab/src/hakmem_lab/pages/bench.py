"""The page of `bench/run.py --json`: every allocator on every benchmark."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from hakmem_lab.decide import statistics
from hakmem_lab.decide.statistics import Interval
from hakmem_lab.pages.inputs import Bench, BenchRow
from hakmem_lab.pages.page import COLOURS, Cell, Page, Verdict

OURS, FLOOR = "hakmem", "floor"


def of(found: Bench, case: str, allocator: str) -> list[BenchRow]:
    """The runs of a pair in the order of their rounds."""
    rows = [row for row in found.rows if row.case == case and row.allocator == allocator]
    return sorted(rows, key=lambda row: row.round)


def names(found: Bench) -> tuple[list[str], list[str]]:
    """Benchmarks and allocators in the order in which they were first run, ours first."""
    allocators = sorted(dict.fromkeys(row.allocator for row in found.rows), key=lambda name: (name != OURS, name))
    return list(dict.fromkeys(row.case for row in found.rows)), allocators


def gain(found: Bench, case: str, base: str, other: str) -> Interval | None:
    """The speed of `other` over `base` in their common rounds; None if there is none."""
    bases = {row.round: row.ops_per_s for row in of(found, case, base)}
    others = {row.round: row.ops_per_s for row in of(found, case, other)}
    common = sorted(bases.keys() & others.keys())
    if not common:
        return None
    gains = statistics.log_gains([bases[each] for each in common], [others[each] for each in common], True)
    return statistics.interval(gains)


def median(rows: Sequence[BenchRow], field: str) -> float:
    return float(np.median([getattr(row, field) for row in rows]))


def ratios_chart(found: Bench) -> go.Figure:
    """Ours over each peer, benchmark by benchmark, with intervals."""
    cases, allocators = names(found)
    figure = go.Figure()
    for place, peer in enumerate(each for each in allocators if each not in (OURS, FLOOR)):
        pairs = [(case, gain(found, case, peer, OURS)) for case in cases]
        shown = [(case, each) for case, each in pairs if each is not None]
        ratios = [1 + each.gain / 100 for _, each in shown]
        figure.add_scatter(
            y=[case for case, _ in shown],
            x=ratios,
            error_x={
                "type": "data",
                "array": [
                    min(each.high, 1e6) / 100 + 1 - ratio for (_, each), ratio in zip(shown, ratios, strict=True)
                ],
                "arrayminus": [ratio - 1 - each.low / 100 for (_, each), ratio in zip(shown, ratios, strict=True)],
            },
            mode="markers",
            name=f"over {peer}",
            marker={"size": 9, "color": COLOURS[place]},
        )
    figure.add_vline(x=1, line={"color": "#5b6575"})
    figure.update_xaxes(type="log", title="speed of hakmem over the other; right of 1 is faster")
    figure.update_yaxes(autorange="reversed")
    figure.update_layout(title="Ratios of paired rounds, with 95 % intervals", height=160 + 34 * len(cases))
    return figure


def distribution_chart(found: Bench) -> go.Figure:
    """All runs, each benchmark scaled to the best allocator's median."""
    cases, allocators = names(found)
    figure = go.Figure()
    best = {
        case: max(
            median(of(found, case, name), "ops_per_s") for name in allocators if name != FLOOR and of(found, case, name)
        )
        for case in cases
        if any(of(found, case, name) for name in allocators if name != FLOOR)
    }
    for place, name in enumerate(each for each in allocators if each != FLOOR):
        rows = [row for case in best for row in of(found, case, name)]
        figure.add_box(
            x=[row.case for row in rows],
            y=[row.ops_per_s / best[row.case] for row in rows],
            name=name,
            boxpoints="all",
            marker={"color": COLOURS[place % len(COLOURS)], "size": 3},
        )
    figure.update_layout(boxmode="group", title="Every run", yaxis_title="speed; the best median is 1", height=460)
    return figure


def memory_chart(found: Bench) -> go.Figure:
    """Time against memory, one mark per allocator and benchmark, both relative to the leanest and the fastest."""
    cases, allocators = names(found)
    peers = [each for each in allocators if each != FLOOR]
    figure = go.Figure()
    points: dict[str, list[tuple[str, float, float]]] = {name: [] for name in peers}
    for case in cases:
        there = {name: rows for name in peers if (rows := of(found, case, name))}
        if not there:
            continue
        fastest = max(median(rows, "ops_per_s") for rows in there.values())
        leanest = min(median(rows, "peak_rss_kb") for rows in there.values())
        for name, rows in there.items():
            time = fastest / median(rows, "ops_per_s")
            points[name].append((case, time, median(rows, "peak_rss_kb") / leanest))
    for place, (name, marks) in enumerate(points.items()):
        figure.add_scatter(
            x=[time for _, time, _ in marks],
            y=[memory for _, _, memory in marks],
            text=[case for case, _, _ in marks],
            mode="markers",
            name=name,
            marker={"size": 10, "color": COLOURS[place % len(COLOURS)]},
        )
    figure.update_xaxes(type="log", title="time; the fastest is 1")
    figure.update_yaxes(type="log", title="peak memory; the leanest is 1")
    figure.update_layout(title="Time against memory", height=460)
    return figure


def against_best(found: Bench) -> list[tuple[str, str, Interval]]:
    """Per benchmark: the fastest peer, and ours over it."""
    cases, allocators = names(found)
    rows = []
    for case in cases:
        peers = [name for name in allocators if name not in (OURS, FLOOR) and of(found, case, name)]
        best = max(peers, key=lambda name: median(of(found, case, name), "ops_per_s"), default=None)
        ratio = gain(found, case, best, OURS) if best is not None else None
        if best is not None and ratio is not None:
            rows.append((case, best, ratio))
    return rows


def verdict(of_what: str, found: Bench) -> Verdict:
    cases, allocators = names(found)
    rows = against_best(found)
    if not rows:
        said = [
            f"{len(cases)} benchmarks under {', '.join(allocators)}; {OURS} was not compared with another allocator."
        ]
        return Verdict(of_what, "BENCHMARKS", "", said)
    ratios = [1 + each.gain / 100 for _, _, each in rows]
    mean = float(np.exp(np.mean(np.log(ratios))))
    worst = min(rows, key=lambda row: row[2].gain)
    said = [
        f"{sum(ratio >= 1 for ratio in ratios)} of {len(rows)} benchmarks are at least as fast as the fastest other "
        f"allocator; the worst is {worst[0]} with {1 + worst[2].gain / 100:.3f} of {worst[1]}."
    ]
    said += [f"{each.get('case')} failed under {each.get('allocator')}." for each in found.failures]
    return Verdict(of_what, "BENCHMARKS", f"speed over the best other one: {mean:.3f} (geometric mean)", said)


def body(page: Page, found: Bench) -> None:
    """Charts, and every pair in a table."""
    cases, allocators = names(found)
    if against_best(found):
        page.chart(ratios_chart(found))
    page.chart(distribution_chart(found))
    page.chart(memory_chart(found), "Lower left is better.")
    rows: list[list[Cell]] = []
    for case in cases:
        for name in allocators:
            runs = of(found, case, name)
            if runs:
                speeds = [row.ops_per_s for row in runs]
                figures = [median(runs, field) for field in ("ops_per_s", "seconds", "peak_rss_kb", "minor_faults")]
                rows.append([case, name, len(runs), figures[0], min(speeds), max(speeds), *figures[1:]])
    page.heading("Medians")
    page.table(
        ["benchmark", "allocator", "runs", "ops/s", "least", "most", "seconds", "peak KiB", "minor faults"], rows
    )
    page.heading("How this was measured")
    page.table(["machine", ""], [[name, value] for name, value in found.environment.items()])
