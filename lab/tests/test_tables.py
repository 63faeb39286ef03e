"""No table of the lab cuts a number, whatever the width, on a terminal and in a pipe."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console
from rich.table import Table

from hakmem_lab.commands import tune
from hakmem_lab.decide import allocator_comparison, result_tables
from hakmem_lab.inspect import snapshot_tables
from hakmem_lab.inspect.snapshots import Snapshot
from hakmem_lab.measure.results import Trial
from hakmem_lab.terminal import amounts, console, tables
from tests.conftest import make_experiment

WIDTHS = pytest.mark.parametrize(("width", "terminal"), [(40, True), (80, True), (200, True), (80, False)])
VALUES = {
    "system": [1234.5678, 1300.1, 1250.9, 1244.4],
    "hakmem": [1000.25, 1010.75, 990.5, 1003.1],
    "a-peer-with-a-long-name": [1100.125, 1200.5, 1150.75, 1177.7],
}


def said(monkeypatch: pytest.MonkeyPatch, width: int, terminal: bool) -> io.StringIO:
    """The commands' output from now on."""
    out = io.StringIO()
    monkeypatch.setattr(
        console, "out", Console(file=out, width=width, force_terminal=terminal, color_system=None, highlight=False)
    )
    return out


def numbers(text: str) -> set[str]:
    return set(re.findall(r"[-+]?\d[\d,.]*", text))


@WIDTHS
def test_every_table_keeps_its_numbers(monkeypatch: pytest.MonkeyPatch, width: int, terminal: bool) -> None:
    made = make_experiment(VALUES)
    found = allocator_comparison.analyse(made)
    out = said(monkeypatch, width, terminal)
    result_tables.compare(made, found)
    tables.show(console.out, result_tables.summary_table(made, made.labels))
    assert "…" not in out.getvalue()
    for row in found.rows:
        assert row.label in out.getvalue()
        assert amounts.number(row.time_s) in numbers(out.getvalue())
        assert amounts.number(row.peak_mib) in numbers(out.getvalue())


@WIDTHS
def test_trials(monkeypatch: pytest.MonkeyPatch, width: int, terminal: bool) -> None:
    setting = "refill_count=64 l2_ring_cap=128 thread_budget=4M purge_delay=1600ms"
    trial = Trial(number=1, text=setting, values={}, state="complete", gains=[1.25, 2.5, 3.75], gain=2.5)
    out = said(monkeypatch, width, terminal)
    tune.show_trials([trial])
    assert "+2.5 ±3.1" in out.getvalue()  # Student's interval of three rounds, not their standard deviation
    assert "".join(out.getvalue().split()).count("purge_delay=1600ms") == 1


@WIDTHS
def test_snapshots(monkeypatch: pytest.MonkeyPatch, width: int, terminal: bool) -> None:
    figures = {"live": 123456789, "cached": 98765432, "misses": 55555555}
    classes = [{"size": 16 << place, **figures} for place in range(3)]
    snapshot = Snapshot(version=1, classes=classes)
    out = said(monkeypatch, width, terminal)
    snapshot_tables.show(console.out, snapshot_tables.classes(snapshot))
    assert "…" not in out.getvalue()
    for row in classes:
        assert amounts.number(row["live"]) in out.getvalue()


def test_lines_only_where_there_is_no_room() -> None:
    table = Table(title="figures")
    table.add_column("name")
    table.add_column("value", justify="right")
    table.add_row("one", "1,234,567.89")
    table.add_row("two", "2")
    for width, lines in ((40, False), (12, True)):
        out = io.StringIO()
        tables.show(Console(file=out, width=width, force_terminal=True, color_system=None), table)
        assert ("value 1,234,567.89" in out.getvalue()) == lines
        assert "1,234,567.89" in out.getvalue()
