"""hakmem why: one verdict on a process's memory."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from hakmem_lab.commands.cold import parse_time
from hakmem_lab.terminal.console import out, remark

HELP = """Say in one paragraph why a process's memory is as large as it is, with evidence and the next command.

The verdict is leak, growth, fragmentation, retention, cache, elsewhere or live. The process is looked at for some time,
from outside; then all live blocks are read for pointers, which tells a leak from growth.

Examples:

  hakmem why $(pgrep -n redis-server)

  hakmem why 1234 --for 5m
"""


def why(
    pid: Annotated[int, typer.Argument(metavar="PID", help="A process id.")],
    time: Annotated[str, typer.Option("--for", metavar="TIME", help="How long to watch; Ctrl-C: until now.")] = "10s",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    seconds = parse_time(time)

    from hakmem_lab.inspect import why as judge
    from hakmem_lab.inspect.live import Live
    from hakmem_lab.inspect.live_blocks import Heap

    live = Live(pid)
    remark(f"hakmem: process {pid} is watched for {time} (Ctrl-C: until now)")
    course = judge.look(live, seconds)
    lost = judge.unreferenced(Heap(live))
    found = judge.judge(course, lost, pid)
    if as_json:
        document = vars(found) | {"ledger": course.ledgers[-1], "live": course.live(), "unreferenced": lost}
        out.file.write(json.dumps(document | {"seconds": course.times}) + "\n")
        return
    out.print(f"[bold]{found.word}[/]: ", end="")
    out.print(found.said, markup=False, soft_wrap=True)
    out.print(f"Next: {found.next}", markup=False, soft_wrap=True)


def register(app: typer.Typer) -> None:
    app.command("why", help=HELP)(why)
