"""hakmem why: one verdict on a process's memory."""

from __future__ import annotations

import typer

from hakmem_lab.commands import options as opt
from hakmem_lab.terminal.console import remark

HELP = """Say in one paragraph why a process's memory is as large as it is, with evidence and the next command.

The verdict is leak, growth, fragmentation, retention, cache, elsewhere or live. The process is looked at for some time,
from outside; then all live blocks are read for pointers, which tells a leak from growth.

Examples:

  hakmem why $(pgrep -n redis-server)

  hakmem why 1234 --for 5m
"""


def why(
    pid: opt.Pid,
    time: opt.WatchTime = "10s",
    as_json: opt.Json = False,
) -> None:
    seconds = opt.seconds(time, "--for")

    from hakmem_lab.inspect import why as judge
    from hakmem_lab.inspect.live import Live

    live = Live(pid)
    remark(f"hakmem: process {pid} is watched for {time} (Ctrl-C: until now)")
    course = judge.look(live, seconds)
    lost = judge.lost(live)
    found = judge.judge(course, lost, pid)
    more = {"ledger": course.ledgers[-1], "live": course.live(), "unreferenced": lost, "seconds": course.times}
    opt.told([f"{found.word}: {found.said}", f"Next: {found.next}"], lambda: vars(found) | more, as_json)


def register(app: typer.Typer) -> None:
    app.command("why", help=HELP)(why)
