"""hakmem waste: what of a process's memory could be saved."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hakmem_lab.commands import options as opt
from hakmem_lab.terminal import tables
from hakmem_lab.terminal.amounts import in_bytes
from hakmem_lab.terminal.console import out

if TYPE_CHECKING:
    from hakmem_lab.inspect.waste import Waste
    from hakmem_lab.profile.by_stack import Stacks

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
    top: opt.Top = 15,
    as_json: opt.Json = False,
    page: opt.WritePage = None,
    file: opt.OfCore = None,
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
    said = search.says(found, allocator.name)

    def draw(path: Path) -> None:
        from hakmem_lab.pages import waste as pages

        pages.write(found, stacks, allocator.name, said, path)

    if opt.told(said, lambda: as_document(found, stacks, allocator.name), as_json, page, draw):
        show(found, stacks, top)


def show(found: Waste, stacks: Stacks, top: int) -> None:
    """The tables. The estimates of a profile leave out the blocks from before it."""
    from hakmem_lab.inspect.waste import MEANINGS
    from hakmem_lab.profile import by_stack

    kinds = [(kind, MEANINGS[kind], in_bytes(size)) for kind, size in found.saved.items() if size]
    tables.show(out, tables.made("by kind", ("kind", "what it is", "bytes"), kinds, ("kind", "what it is")))
    groups = []
    for each in [each for each in found.groups if each.total][:top]:
        why = ", ".join(f"{kind} {in_bytes(size)}" for kind, size in each.saved.items())
        why += f" ({each.example})" if each.example else ""
        size = f"{each.size:,} B" if each.size else "huge"
        groups.append((size, each.type, f"{each.blocks:,}", in_bytes(each.bytes), in_bytes(each.total), why))
    heads = ("blocks of", "they hold", "blocks", "bytes", "could be saved", "as")
    words = ("blocks of", "they hold", "as", "allocated by")
    tables.show(out, tables.made("by what the blocks hold", heads, groups, words))
    if stacks:
        rows = []
        for stack, values in by_stack.largest(stacks, top):
            why = ", ".join(f"{kind} {in_bytes(value.bytes)}" for kind, value in values.items())
            rows.append((by_stack.total(values).says, why, by_stack.short(stack)))
        tables.show(out, tables.made(by_stack.TITLE, ("could be saved", "as", "allocated by"), rows, words))


def as_document(found: Waste, stacks: Stacks, name: str) -> dict[str, Any]:
    from hakmem_lab.profile import by_stack

    groups = [vars(each) | {"total": each.total} for each in found.groups]
    facts = ("live_bytes", "live_blocks", "resident", "rounding_most", "unread", "in_hand", "total")
    document = {"target": name, "saved": found.saved, **{fact: getattr(found, fact) for fact in facts}}
    return document | {"groups": groups, "stacks": by_stack.as_json(stacks)}


def register(app: typer.Typer) -> None:
    app.command("waste", help=HELP)(waste)
