"""The page of a set of results: all verdicts first, then every result with its charts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import plotly.graph_objects as go

from hakmem_lab.decide import allocator_comparison, sweep, verdict
from hakmem_lab.inspect.snapshots import Snapshot
from hakmem_lab.measure.results import Experiment, shown
from hakmem_lab.pages import ab, bench, compare, inside, tune
from hakmem_lab.pages import sweep as sweep_page
from hakmem_lab.pages.inputs import Recording, Source
from hakmem_lab.pages.page import COLOURS, Page, Verdict, link_to
from hakmem_lab.terminal.amounts import counted

HEIGHT_OF_ROW = 30


@dataclass(frozen=True)
class Ratio:
    """One gain with its interval, for the chart over all results."""

    name: str
    gain: float
    low: float
    high: float


@dataclass(frozen=True)
class Item:
    """One result, ready to be shown."""

    source: Source
    verdict: Verdict
    ratios: Sequence[Ratio]
    body: Callable[[Page], None]

    @property
    def document(self) -> dict[str, object]:
        """The result as JSON."""
        found = self.verdict
        return {
            "file": str(self.source.path),
            "of": found.of,
            "verdict": found.word,
            "figure": found.figure,
            "sentences": list(found.sentences),
            "ratios": [
                {"name": each.name, "gain": each.gain, "low": each.low, "high": finite(each.high)}
                for each in self.ratios
            ],
        }


def finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def item(source: Source) -> Item:
    """The verdict and the charts of one file."""
    content = source.content
    if isinstance(content, Experiment):
        return experiment_item(source, content)
    of = shown(source.path.resolve())
    if isinstance(content, Snapshot):
        first = inside.snapshot_verdict(of, content)
        return Item(source, first, [], lambda page: inside.snapshot_body(page, content))
    if isinstance(content, Recording):
        first = inside.recording_verdict(of, content)
        return Item(source, first, [], lambda page: inside.recording_body(page, content))
    ratios = [
        Ratio(f"{case}: hakmem over {best}", i.gain, i.low, i.high) for case, best, i in bench.against_best(content)
    ]
    return Item(source, bench.verdict(of, content), ratios, lambda page: bench.body(page, content))


def experiment_item(source: Source, experiment: Experiment) -> Item:
    """An experiment of any kind, judged again from its runs."""
    kind = experiment.head.kind
    if kind == "sweep":
        swept = sweep.analyse(experiment, experiment.labels[0])
        pairs = [(each.label, each.gain) for each in swept.points if each.gain is not None]
        ratios = [Ratio(f"{label} over {swept.base}", c.gain, c.low, c.high) for label, c in pairs]
        first = sweep_page.verdict(experiment, swept)
        return Item(source, first, ratios, lambda page: sweep_page.body(page, experiment, swept))
    if kind == "compare":
        found = allocator_comparison.analyse(experiment)
        gains = [(row.label, row.gain) for row in found.rows if row.gain is not None]
        ratios = [Ratio(f"{label} over {found.base}", g.gain, g.low, g.high) for label, g in gains]
        first = compare.verdict(experiment, found)
        return Item(source, first, ratios, lambda page: compare.body(page, experiment, found))
    judged = verdict.compare(experiment, "A", "B")
    module = tune if kind == "tune" else ab
    first = module.verdict(experiment, judged)
    ratios = [Ratio(first.of.partition(":")[0], judged.gain, judged.low, judged.high)]
    return Item(source, first, ratios, lambda page: module.body(page, experiment, judged))


def ratios_chart(ratios: Sequence[Ratio]) -> go.Figure:
    """All gains with their intervals, one below the other."""
    drawn = [each for each in ratios if math.isfinite(each.high)]
    names = [f"{place}. {each.name}" for place, each in enumerate(drawn, start=1)]
    figure = go.Figure()
    figure.add_scatter(
        x=[each.gain for each in drawn],
        y=names,
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
        title="All gains", xaxis_title="gain, %; right of 0 is better", height=140 + HEIGHT_OF_ROW * max(3, len(drawn))
    )
    return figure


def compose(items: Sequence[Item], title: str, path: Path | None = None) -> Page:
    """The whole page.  path: its file, to which links are relative."""
    several = len(items) > 1
    page = Page(title, f"{counted(len(items), 'result')}" if several else "")
    if several:
        page.open("verdicts")
    for place, each in enumerate(items, start=1):
        raw = link_to(each.source.path, path) if path is not None else None
        page.verdict(each.verdict, f"result-{place}" if several else "", raw)
    if several:
        page.close()
    ratios = [ratio for each in items for ratio in each.ratios]
    if several and sum(math.isfinite(each.high) for each in ratios) > 1:
        page.chart(ratios_chart(ratios), "The intervals of each result; its section says what the gain is of.")
    for place, each in enumerate(items, start=1):
        if several:
            page.heading(each.verdict.of, f"result-{place}")
        page.text(f"From {each.source.path.name}.", "soft")
        each.body(page)
    return page


def write(items: Sequence[Item], title: str, path: Path, single: bool = False) -> None:
    """Writes the page."""
    compose(items, title, path).write(path, single)
