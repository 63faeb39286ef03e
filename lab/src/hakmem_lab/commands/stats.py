"""hakmem stats: a snapshot as tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hakmem_lab.commands import options as opt
from hakmem_lab.target import elf
from hakmem_lab.terminal.console import out, remark
from hakmem_lab.terminal.errors import LabError

if TYPE_CHECKING:
    from hakmem_lab.inspect.snapshots import Snapshot

HELP = """Show a snapshot of the figures: a file that HAKMEM_STATS=json:FILE wrote, a running process, or a core dump.

Examples:

  hakmem run --stats json -- PROGRAM; hakmem stats hakmem-stats.*.json

  hakmem stats $(pgrep -n redis-server)

  hakmem stats core.1234

  hakmem stats --map --json $(pgrep -n redis-server) > now.json; hakmem report now.json
"""


def stats(
    target: Annotated[
        str, typer.Argument(metavar="FILE|PID|CORE", help="A snapshot's file, a process id, or a core dump.")
    ],
    with_map: Annotated[
        bool,
        typer.Option("--map", help="For a process or a core: add the map of SuperSlabs, with the use of each slab."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The snapshot itself, as JSON.")] = False,
    file: opt.OfCore = None,
) -> None:
    from hakmem_lab.inspect import snapshot_tables, snapshots

    core = elf.is_elf(Path(target))
    snapshot = _of_core(target, with_map, file) if core else snapshots.load(target, with_map)
    if with_map and snapshot.map is None:
        raise LabError(
            f"{target} has no map of SuperSlabs",
            "Processes, core dumps and recordings of 'hakmem watch --map --json' have one.",
        )
    if as_json:
        out.file.write(snapshot.model_dump_json(exclude_none=True) + "\n")
        return
    if snapshot.version > snapshots.VERSION:
        remark(
            f"hakmem: the snapshot has version {snapshot.version}, this lab knows {snapshots.VERSION}: "
            "figures may have other meanings; use a newer lab"
        )
    for each in snapshot_tables.whole(snapshot):
        snapshot_tables.show(out, each)
    if snapshot.profiled:
        out.print(f"A heap profile is on: hakmem profile --off {target} stops it.", soft_wrap=True, markup=False)
    if core:
        out.print("No ledger of resident memory: a core dump does not say which pages were resident.", soft_wrap=True)
    elif not snapshot.group("ledger"):
        out.print("No ledger of resident memory in this snapshot: HAKMEM_STATS_LEDGER=1 adds it.", soft_wrap=True)


def _of_core(target: str, with_map: bool, file: Path | None) -> Snapshot:
    from hakmem_lab.inspect import snapshots
    from hakmem_lab.inspect.core import Dead

    dead = Dead(Path(target), file)
    for each in dead.core.remarks():
        remark(f"hakmem: {each}")
    return snapshots.from_core(dead, with_map)


def register(app: typer.Typer) -> None:
    app.command("stats", help=HELP)(stats)
