"""hakmem cold: what of a process's memory nobody uses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from hakmem_lab.commands.waste import TABLE
from hakmem_lab.terminal import tables
from hakmem_lab.terminal.amounts import in_bytes
from hakmem_lab.terminal.console import out, remark
from hakmem_lab.terminal.errors import LabError

if TYPE_CHECKING:
    from hakmem_lab.inspect.cold import Cold
    from hakmem_lab.profile.by_stack import Stacks

HELP = """Say what of a process's live memory nobody has read or written for some time.

It needs no privilege and no option in the process, which goes on running: the kernel's notes of used pages
(/proc/PID/clear_refs) are cleared, and when the time is over the pages of live blocks are read, which shows those that
nobody had used. The kernel's ageing of pages loses its notes by that. While a heap profile is on, cold memory is shown
by call stack, with the age of its blocks.

Examples:

  hakmem cold $(pgrep -n redis-server) --for 10m

  hakmem cold 1234 --for 30s --json
"""
UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}


def parse_time(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h)", text)
    if not match or not 0 < float(match[1]) * UNITS[match[2]] <= 7 * 86400:
        raise LabError(f"--for {text}: not a time", "Examples: 30s, 10m, 2h.")
    return float(match[1]) * UNITS[match[2]]


def cold(
    pid: Annotated[int, typer.Argument(metavar="PID", help="A process id.")],
    time: Annotated[str, typer.Option("--for", metavar="TIME", help="How long to watch; Ctrl-C: until now.")] = "1m",
    top: Annotated[int, typer.Option(help="Rows of the tables.", min=1, max=1000)] = 15,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    page: Annotated[
        Path | None, typer.Option("--page", metavar="FILE.html", help="Write a page.", show_default=False)
    ] = None,
) -> None:
    seconds = parse_time(time)

    from hakmem_lab.inspect import cold as search
    from hakmem_lab.inspect.live import Live
    from hakmem_lab.profile import by_stack

    live = Live(pid)
    remark(f"hakmem: process {pid} is watched for {time} (Ctrl-C: until now)")
    found, heap = search.watch(live, seconds)
    stacks: Stacks = {}
    if heap.samples is not None and found.samples:
        bytes_ = found.samples["cold"]
        stacks = by_stack.estimates(live, heap.samples, {"cold": bytes_, "age": bytes_ * found.samples["age"]})
    if page is not None:
        from hakmem_lab.pages import cold as pages

        pages.write(found, stacks, live.name, page)
        remark(f"hakmem: wrote {page}")
    if as_json:
        out.file.write(json.dumps(as_document(found, live.name) | {"stacks": by_stack.as_json(stacks)}) + "\n")
        return
    for line in search.says(found, live.name):
        out.print(line, soft_wrap=True, markup=False)
    show(found, stacks, top)


def show(found: Cold, stacks: Stacks, top: int) -> None:
    from hakmem_lab.profile import by_stack

    table = Table(title="by size of block", **TABLE)
    for head in ("blocks of", "bytes", "cold", "%"):
        table.add_column(head, justify="right")
    for size, live, idle in [each for each in found.classes if each[2]][:top]:
        name = f"{size:,} B" if size else "huge"
        table.add_row(name, in_bytes(live), in_bytes(idle), f"{100 * idle / live:.0f}" if live else "")
    tables.show(out, table)
    table = Table(title="pages that were used", **TABLE)
    for head in ("within", "bytes"):
        table.add_column(head, justify="right")
    for seconds, size in found.used:
        table.add_row(f"{seconds:.1f} s", in_bytes(size))
    tables.show(out, table)
    if not stacks:
        return
    table = Table(title="by stack, of the blocks allocated while a profile was on", **TABLE)
    for head in ("cold", "mean age, s"):
        table.add_column(head, justify="right")
    table.add_column("allocated by")
    for stack, values in by_stack.largest(stacks, top, "cold"):
        each, age = values["cold"], values["age"].bytes / values["cold"].bytes if "age" in values else 0
        table.add_row(
            f"{in_bytes(each.bytes)} ± {in_bytes(each.error)}", f"{age:.0f}", escape(by_stack.short(stack))
        )
    tables.show(out, table)


def as_document(found: Cold, name: str) -> dict[str, Any]:
    facts = ["seconds", "live_bytes", "cold_bytes", "cold_pages", "swapped", "huge", "drift"]
    facts += ["looks", "unit", "look_seconds"]
    classes = [dict(zip(("size", "bytes", "cold"), each, strict=True)) for each in found.classes]
    return {"target": name, **{fact: getattr(found, fact) for fact in facts}, "used": found.used, "classes": classes}


def register(app: typer.Typer) -> None:
    app.command("cold", help=HELP)(cold)
