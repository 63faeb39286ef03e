"""Several verdicts in the terminal: a table if every figure fits, otherwise lines."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.markup import escape
from rich.table import Table

from hakmem_lab.decide.exports import Report, Row
from hakmem_lab.decide.latency_shifts import Shift
from hakmem_lab.decide.statistics import CONFIDENCE
from hakmem_lab.terminal import console
from hakmem_lab.terminal.amounts import counted, number

COLOURS = {
    "GO": "green",
    "BETTER": "green",
    "LEVEL": "green",
    "NO-GO": "red",
    "WORSE": "red",
    "INCONCLUSIVE": "yellow",
    "REFUSED": "red",
    "ERROR": "red",
}


def _gain(value: float) -> str:
    return f"{value:+.2f}"


def _coloured(word: str) -> str:
    return f"[{COLOURS.get(word, 'default')}]{word}[/]"


def table(report: Report) -> Table:
    """A row per case."""
    found = Table(title=escape(report.title), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    found.add_column("case", overflow="fold")
    found.add_column("metric", overflow="fold")
    for name in ("gain %", "interval, %", "rounds"):
        found.add_column(name, justify="right", no_wrap=True)
    found.add_column("verdict", no_wrap=True)
    for each in report.rows:
        bounds = f"{_gain(each.low)} .. {_gain(each.high)}"
        cells = (escape(each.case), escape(each.metric), _gain(each.gain), bounds, str(each.rounds))
        found.add_row(*cells, _coloured(each.verdict))
    return found


def _line(each: Row) -> str:
    return (
        f"{escape(each.case)}: {_coloured(each.verdict)}, gain {_gain(each.gain)} % "
        f"({_gain(each.low)} .. {_gain(each.high)}), {escape(each.metric)}, {counted(each.rounds, 'round')}"
    )


LEAST_NAME = 12


def cases(report: Report) -> None:
    """Prints the table, or a line for each case if it does not fit, and the overall verdict."""
    figures = max(len(f"{_gain(each.low)} .. {_gain(each.high)}") for each in report.rows)
    needed = 2 * LEAST_NAME + figures + len("gain %") + 4 + len("rounds") + len("INCONCLUSIVE") + 6 * 3
    if console.out.width >= needed:
        console.out.print(table(report))
    else:
        console.out.print(f"[bold]{escape(report.title)}[/]", soft_wrap=True)
        for each in report.rows:
            console.out.print(_line(each), soft_wrap=True)
    colour = COLOURS.get(report.verdict, "default")
    console.out.print(f"[bold {colour}]{report.verdict}[/]  {escape(report.reason)}", soft_wrap=True)
    for said in report.remarks:
        console.out.print(f"{escape(said)}.", soft_wrap=True)


def shifts(found: Sequence[Shift]) -> None:
    """Prints the shift of each quantile of the latencies, if there are any."""
    if not found:
        return
    shown = f"latencies, B against A; the intervals hold together with {CONFIDENCE:.0%}"
    made = Table(title=shown, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    made.add_column("quantile")
    for name in ("A", "B", "gain %", "interval, %"):
        made.add_column(name, justify="right", no_wrap=True)
    for each in found:
        bounds = f"{_gain(each.low)} .. {_gain(each.high)}"
        made.add_row(each.quantile, number(each.base), number(each.other), _gain(each.gain), bounds)
    if console.out.width >= console.out.measure(made).minimum:
        console.out.print(made)
        return
    for each in found:
        console.out.print(
            f"{each.quantile}: {number(each.base)}, {number(each.other)}, {_gain(each.gain)} %", soft_wrap=True
        )
