"""hakmem waste: what of a process's memory could be saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from hakmem_lab.terminal import tables
from hakmem_lab.terminal.amounts import in_bytes
from hakmem_lab.terminal.console import out, remark

if TYPE_CHECKING:
    from hakmem_lab.inspect.waste import Waste
    from hakmem_lab.profile.by_stack import Stacks

TABLE: Any = {"title_justify": "left", "title_style": "bold", "box": box.SIMPLE_HEAD}
HELP = """Say what of a process's memory could be saved: copies, zeros, unused ends, rounding, sparse spans.

Every live block is read, by process_vm_readv or from a core dump; nothing is written. Pages that were never touched
are neither read nor counted. A running process may change meanwhile: --snapshot stops it (SIGSTOP) for the time of the
walk. While a heap profile is on (hakmem profile --leave-on), the waste is shown by call stack too.

Examples:

  hakmem waste $(pgrep -n redis-server)

  hakmem waste core.1234 --page waste.html
"""


def waste(
    target: Annotated[str, typer.Argument(metavar="PID|CORE", help="A process id, or a core dump.")],
    snapshot: Annotated[bool, typer.Option("--snapshot", help="Stop the process during the walk.")] = False,
    top: Annotated[int, typer.Option(help="Rows of the table.", min=1, max=1000)] = 15,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    page: Annotated[
        Path | None, typer.Option("--page", metavar="FILE.html", help="Write a page.", show_default=False)
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="PATH", help="For a core: the library that ran, or the program linked with it."),
    ] = None,
) -> None:
    from hakmem_lab.commands.block import open_target
    from hakmem_lab.inspect import waste as search
    from hakmem_lab.inspect.live_blocks import Heap, stopped
    from hakmem_lab.profile import by_stack

    allocator = open_target(target, file)
    with stopped(allocator, snapshot):
        heap = Heap(allocator)
        found = search.find(heap)
    stacks = by_stack.estimates(allocator, heap.samples, found.samples) if heap.samples is not None else {}
    if page is not None:
        from hakmem_lab.pages import waste as pages

        pages.write(found, stacks, allocator.name, page)
        remark(f"hakmem: wrote {page}")
    if as_json:
        out.file.write(json.dumps(as_document(found, allocator.name) | {"stacks": by_stack.as_json(stacks)}) + "\n")
        return
    show(found, allocator.name, top)
    if stacks:
        show_stacks(stacks, top)


def show(found: Waste, name: str, top: int) -> None:
    from hakmem_lab.inspect.waste import KINDS, MEANINGS, says

    for line in says(found, name):
        out.print(line, soft_wrap=True, markup=False)
    kinds = Table(title="by kind", **TABLE)
    for head in ("kind", "what it is"):
        kinds.add_column(head)
    kinds.add_column("bytes", justify="right")
    for kind in KINDS:
        if found.saved[kind]:
            kinds.add_row(kind, MEANINGS[kind], in_bytes(found.saved[kind]))
    tables.show(out, kinds)
    table = Table(title="by what the blocks hold", **TABLE)
    for head in ("blocks of", "they hold"):
        table.add_column(head)
    for head in ("blocks", "bytes", "could be saved"):
        table.add_column(head, justify="right")
    table.add_column("as")
    for each in [each for each in found.groups if each.total][:top]:
        why = ", ".join(f"{kind} {in_bytes(size)}" for kind, size in each.saved.items())
        table.add_row(
            f"{each.size:,} B" if each.size else "huge",
            escape(each.type),
            f"{each.blocks:,}",
            in_bytes(each.bytes),
            in_bytes(each.total),
            escape(why + (f" ({each.example})" if each.example else "")),
        )
    tables.show(out, table)


def show_stacks(stacks: Stacks, top: int) -> None:
    """The estimates of a profile; a stack's blocks from before it are not in it."""
    from hakmem_lab.profile import by_stack

    table = Table(title="by stack, of the blocks allocated while a profile was on", **TABLE)
    table.add_column("could be saved", justify="right")
    for head in ("as", "allocated by"):
        table.add_column(head)
    for stack, values in by_stack.largest(stacks, top):
        each = by_stack.total(values)
        why = ", ".join(f"{kind} {in_bytes(value.bytes)}" for kind, value in values.items())
        table.add_row(f"{in_bytes(each.bytes)} ± {in_bytes(each.error)}", why, escape(by_stack.short(stack)))
    tables.show(out, table)


def as_document(found: Waste, name: str) -> dict[str, Any]:
    groups = [vars(each) | {"total": each.total} for each in found.groups]
    facts = ("live_bytes", "live_blocks", "resident", "rounding_most", "unread", "in_hand", "total")
    return {"target": name, "saved": found.saved, **{fact: getattr(found, fact) for fact in facts}, "groups": groups}


def register(app: typer.Typer) -> None:
    app.command("waste", help=HELP)(waste)


