"""hakmem cold: what of a process's memory nobody uses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hakmem_lab.commands import options as opt
from hakmem_lab.terminal import tables
from hakmem_lab.terminal.amounts import in_bytes
from hakmem_lab.terminal.console import out, remark

if TYPE_CHECKING:
    from hakmem_lab.inspect.cold import Cold
    from hakmem_lab.profile.by_stack import Stacks

HELP = """Say what of a process's live memory nobody has read or written for some time.

It needs no privilege and no option in the process, which goes on running: the kernel's notes of used pages
(/proc/PID/clear_refs) are cleared, and when the time is over the pages of live blocks are read, which shows those that
nobody had used. This resets the kernel's own page ageing. While a heap profile is on, cold memory is shown by call
stack, with the age of its blocks.

Examples:

  hakmem cold $(pgrep -n redis-server) --for 10m

  hakmem cold 1234 --for 30s --json
"""


def cold(
    pid: opt.Pid,
    time: opt.WatchTime = "1m",
    top: opt.Top = 15,
    as_json: opt.Json = False,
    page: opt.WritePage = None,
) -> None:
    seconds = opt.seconds(time, "--for")

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
    said = search.says(found, live.name)

    def draw(path: Path) -> None:
        from hakmem_lab.pages import cold as pages

        pages.write(found, stacks, live.name, said, path)

    if opt.told(said, lambda: as_document(found, stacks, live.name), as_json, page, draw):
        show(found, stacks, top)


def show(found: Cold, stacks: Stacks, top: int) -> None:
    from hakmem_lab.profile import by_stack

    rows = [
        (f"{size:,} B" if size else "huge", in_bytes(live), in_bytes(idle), f"{100 * idle / live:.0f}" if live else "")
        for size, live, idle in [each for each in found.classes if each[2]][:top]
    ]
    tables.show(out, tables.made("by size of block", ("blocks of", "bytes", "cold", "%"), rows))
    used = [(f"{seconds:.1f} s", in_bytes(size)) for seconds, size in found.used]
    tables.show(out, tables.made("pages that were used", ("within", "bytes"), used))
    if stacks:
        stack_rows = [
            (values["cold"].says, f"{by_stack.mean_age(values):.0f}", by_stack.short(stack))
            for stack, values in by_stack.largest(stacks, top, "cold")
        ]
        heads = ("cold", "mean age, s", "allocated by")
        tables.show(out, tables.made(by_stack.TITLE, heads, stack_rows, ("allocated by",)))


def as_document(found: Cold, stacks: Stacks, name: str) -> dict[str, Any]:
    from hakmem_lab.profile import by_stack

    facts = ["seconds", "live_bytes", "cold_bytes", "cold_pages", "swapped", "huge", "drift"]
    facts += ["looks", "unit", "look_seconds", "used"]
    classes = [dict(zip(("size", "bytes", "cold"), each, strict=True)) for each in found.classes]
    document = {"target": name, **{fact: getattr(found, fact) for fact in facts}, "classes": classes}
    return document | {"stacks": by_stack.as_json(stacks)}


def register(app: typer.Typer) -> None:
    app.command("cold", help=HELP)(cold)
