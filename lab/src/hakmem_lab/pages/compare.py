"""The page of a comparison of allocators: time against memory first."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import plotly.graph_objects as go

from hakmem_lab.decide import result_tables
from hakmem_lab.decide.allocator_comparison import Comparisons, Gain
from hakmem_lab.measure.results import Experiment
from hakmem_lab.pages.ab import course_chart, distribution_chart, runs_table
from hakmem_lab.pages.page import COLOURS, Cell, Page, Verdict, link_to, provenance


def time_against_memory(found: Comparisons, experiment: Experiment) -> go.Figure:
    """One mark per allocator at its medians, and a small one per round."""
    title = experiment.head.metric.title if found.printed else "wall time, s"
    figure = go.Figure()
    marks = [(row.value if found.printed else row.time_s, row.peak_mib) for row in found.rows]
    named = apart(marks)
    for place, row in enumerate(found.rows):
        colour = COLOURS[place % len(COLOURS)]
        runs = [each[row.label] for each in experiment.rounds()]
        figure.add_scatter(
            x=[run.value if found.printed else run.wall_s for run in runs],
            y=[run.peak_rss_bytes / 2**20 for run in runs],
            mode="markers",
            marker={"color": colour, "size": 6, "opacity": 0.4},
            legendgroup=row.label,
            showlegend=False,
            hoverinfo="skip",
        )
        figure.add_scatter(
            x=[marks[place][0]],
            y=[marks[place][1]],
            mode="markers+text",
            marker={"color": colour, "size": 16},
            text=[row.label if place in named else ""],
            textposition="top center",
            name=row.label,
            legendgroup=row.label,
        )
    figure.update_layout(title="Time against memory", xaxis_title=title, height=460)
    figure.update_yaxes(title="peak memory, MiB")
    return figure


def apart(marks: Sequence[tuple[float, float]]) -> set[int]:
    """The marks that have room for a name above: no mark with a name lies near. The legend names the others."""
    width, height = (max(axis) - min(axis) or 1.0 for axis in zip(*marks, strict=True))
    named: set[int] = set()
    for place, (x, y) in enumerate(marks):
        if all(abs(x - marks[i][0]) > 0.25 * width or abs(y - marks[i][1]) > 0.1 * height for i in named):
            named.add(place)
    return named


def has_own_figure(found: Comparisons) -> bool:
    """Whether the metric is not one of the figures that every row has."""
    return found.metric not in ("time", "cpu", "rss")


def has_wall_gains(found: Comparisons) -> bool:
    return any(row.wall_gain for row in found.rows)


def has_major_faults(found: Comparisons) -> bool:
    return any(row.major_faults for row in found.rows)


def interval_of(gain: Gain | None) -> str:
    return result_tables.between(gain.low, gain.high).replace(" %", "") if gain is not None else ""


def rows_of(found: Comparisons) -> list[list[Cell]]:
    """The table of a comparison."""
    rows: list[list[Cell]] = []
    for row in found.rows:
        value: list[Cell] = [row.value] if has_own_figure(found) else []
        wall: list[Cell] = [row.wall_gain.gain, interval_of(row.wall_gain)] if row.wall_gain else [None, ""]
        rows.append(
            [
                row.label,
                *value,
                row.gain.gain if row.gain else None,
                interval_of(row.gain),
                row.time_s,
                *(wall if has_wall_gains(found) else []),
                row.cpu_s,
                row.peak_mib,
                row.memory_gain.gain if row.memory_gain else None,
                interval_of(row.memory_gain),
                row.minor_faults,
                *([row.major_faults] if has_major_faults(found) else []),
            ]
        )
    return rows


def verdict(experiment: Experiment, found: Comparisons) -> Verdict:
    """The verdict at the top."""
    of = f"{', '.join(row.label for row in found.rows)}: {shlex.join(experiment.head.plan.command)}"
    failed = [f"{each.label} failed in round {each.round}: {each.problem}." for each in experiment.broken()]
    said = (found.sentence, found.conditions.sentence, experiment.retried(), *failed)
    return Verdict(of, "COMPARE", "", [each for each in said if each])


def body(page: Page, experiment: Experiment, found: Comparisons) -> None:
    """Everything below the verdict."""
    head = experiment.head
    for failure in experiment.broken():
        page.text(f"{failure.label}: {failure.problem}. {failure.said}", "problem")
    own = [found.title] if has_own_figure(found) else []
    gains = ["gain %" if own else f"{found.title.partition(',')[0]} gain %", "interval"]
    times = ["time s", *(["time gain %", "interval"] if has_wall_gains(found) else []), "CPU s"]
    faults = ["minor faults", *(["major faults"] if has_major_faults(found) else [])]
    page.table(["allocator", *own, *gains, *times, "peak MiB", "memory gain %", "interval", *faults], rows_of(found))
    page.text(
        f"Medians; gains over {found.base}, of paired rounds, above 0 when better. "
        f"Each interval has a confidence of {found.confidence:.2%}, so that all of them hold together with 95 %.",
        "soft",
    )
    page.chart(time_against_memory(found, experiment), "Lower left is better." if not found.printed else "")
    labels = [row.label for row in found.rows]
    page.chart(distribution_chart(experiment, labels))
    page.chart(course_chart(experiment, labels), result_tables.short_runs(experiment))
    runs_table(page, experiment)
    provenance(page, head)


def compose(experiment: Experiment, found: Comparisons, raw: str | None = None) -> Page:
    """The whole page."""
    command = shlex.join(experiment.head.plan.command)
    page = Page(f"Compare: {command}", f"{len(experiment.rounds())} interleaved rounds")
    page.verdict(verdict(experiment, found), raw=raw)
    body(page, experiment, found)
    return page


def write(experiment: Experiment, found: Comparisons, path: Path, results: Path | None = None) -> None:
    """Writes the page.  results: the file of the runs, to which it links."""
    compose(experiment, found, link_to(results, path)).write(path)
