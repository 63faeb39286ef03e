"""hakmem stats: a snapshot as tables."""

from __future__ import annotations

from typing import Annotated

import typer

from hakmem_lab.console import out, remark
from hakmem_lab.errors import LabError

HELP = """Show a snapshot of the allocator's figures: a file that HAKMEM_STATS=json:FILE wrote, or a running process.

Examples:

  hakmem run --stats json -- PROGRAM; hakmem stats hakmem-stats.*.json

  hakmem stats $(pgrep -n redis-server)

  hakmem stats --map --json $(pgrep -n redis-server) > now.json; hakmem report now.json
"""


def stats(
    target: Annotated[str, typer.Argument(metavar="FILE|PID", help="A snapshot's file, or a process id.")],
    with_map: Annotated[
        bool,
        typer.Option("--map", help="Of a process: the map of SuperSlabs too, what lies in each and how full it is."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The snapshot itself, as JSON.")] = False,
) -> None:
    from hakmem_lab import snapshots, views

    snapshot = snapshots.load(target, with_map)
    if with_map and snapshot.map is None:
        raise LabError(
            f"{target} has no map of SuperSlabs", "A process has one, and what 'hakmem watch --map --json' records."
        )
    if as_json:
        out.file.write(snapshot.model_dump_json(exclude_none=True) + "\n")
        return
    if snapshot.version > snapshots.VERSION:
        remark(
            f"hakmem: the snapshot has version {snapshot.version}, this lab knows {snapshots.VERSION}: "
            "figures may mean something else; a newer lab reads it right"
        )
    for each in views.whole(snapshot):
        views.show(out, each)
    if not snapshot.group("ledger"):
        out.print("No ledger of resident memory in this snapshot: HAKMEM_STATS_LEDGER=1 adds it.", soft_wrap=True)


def register(app: typer.Typer) -> None:
    app.command("stats", help=HELP)(stats)
