"""Prints a table if it fits, otherwise one line per figure: a number is never cut."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Column, Table
from rich.text import Text

from hakmem_lab.terminal.console import make_console

TEXT_LEAST = 16  # a column of words is wrapped down to this width before the table is given up
PADDING = 3
EDGES = 2


def made(
    title: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    words: Collection[str] = (),
    form: box.Box = box.SIMPLE_HEAD,
) -> Table:
    """A table of texts as they are; `words`: the heads of columns without numbers."""
    table = Table(title=title or None, title_justify="left", title_style="bold", box=form)
    for head in heads:
        table.add_column(head, justify="left" if head in words else "right")
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def plain(cell: RenderableType) -> str:
    """A cell's text without colours."""
    if isinstance(cell, Text):
        return cell.plain
    return Text.from_markup(cell, emoji=False).plain if isinstance(cell, str) else str(cell)


def is_of_numbers(column: Column) -> bool:
    return column.justify == "right"


def _needed(column: Column) -> int:
    """The least width that shows the whole column."""
    said = [plain(column.header), *map(plain, column.cells)]
    if is_of_numbers(column) or column.no_wrap:
        return max(cell_len(each) for each in said)
    longest = max((cell_len(word) for each in said for word in each.split()), default=0)
    return min(max(cell_len(each) for each in said), max(TEXT_LEAST, longest))


def width(table: Table) -> int:
    """The least width that shows the whole table."""
    return sum(_needed(column) + PADDING for column in table.columns) + EDGES


def show(console: Console, table: Table) -> None:
    """Prints the table, or its rows as lines `name value` if the terminal is too narrow for it.

    An output that is not a terminal is as wide as the table."""
    for column in table.columns:
        column.no_wrap = column.no_wrap or is_of_numbers(column)
    if width(table) <= console.width:
        console.print(table)
    elif not console.is_terminal:
        make_console(console.file, width(table)).print(table)
    else:
        lines(console, table)


def lines(console: Console, table: Table) -> None:
    """Prints a line for each cell that is not empty, with a blank line between rows."""
    if table.title:
        console.print(Text(plain(table.title), "bold"), soft_wrap=True)
    names = [plain(column.header) for column in table.columns]
    columns = [list(column.cells) for column in table.columns]
    for place, row in enumerate(zip(*columns, strict=True)):
        if place:
            console.print()
        for name, cell in zip(names, row, strict=True):
            if plain(cell):
                console.print(f"{name} {plain(cell)}".strip(), markup=False, soft_wrap=True)
    console.print()
