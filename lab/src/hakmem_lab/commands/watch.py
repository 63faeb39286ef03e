"""hakmem watch: a running process on HAKMEM, seen from outside while it runs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from hakmem_lab.target import process
from hakmem_lab.terminal.console import out, remark
from hakmem_lab.terminal.errors import LabError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from hakmem_lab.inspect.sampler import Sampler

HELP = """Watch a running process: moved blocks per class, hit rates, resident memory over time.

The process needs no preparation and is not stopped. Calls are counted only with HAKMEM_STATS=exact; without it hit
rates are unknown, while misses, refills and drains are always counted. Ctrl-C ends the view.

Examples:

  hakmem watch $(pgrep -n redis-server)

  hakmem watch 4711 --once

  hakmem watch 4711 --json --map --interval 5 --count 12 > a-minute.jsonl; hakmem report a-minute.jsonl
"""
MOST_ROWS = 64


def watch(
    pid: Annotated[int, typer.Argument(metavar="PID", help="The process id.", min=1)],
    interval: Annotated[float, typer.Option(help="Seconds between samples.", min=0.05, max=3600)] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Show one view, over one interval, and exit.")] = False,
    count: Annotated[int | None, typer.Option(help="Exit after this many views.", min=1)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per sample, one per line.")] = False,
    with_map: Annotated[bool, typer.Option("--map", help="With --json: add the map of SuperSlabs.")] = False,
) -> None:
    from hakmem_lab.inspect.sampler import Sampler

    if with_map and not as_json:
        raise LabError(
            "--map needs --json", "Example: hakmem watch --map --json PID > now.jsonl; hakmem report now.jsonl"
        )
    seen = Sampler(pid, with_map)
    views = 1 if once else count
    try:
        if as_json:
            each_line(seen, interval, views)
        elif out.is_terminal and not once:
            on_screen(seen, interval, views)
        else:
            one_after_another(seen, interval, views)
    except LabError:
        if process.exists(pid):
            raise
        remark(f"hakmem: process {pid} has ended")
    except KeyboardInterrupt:
        pass


def after_each(interval: float, views: int | None) -> Iterator[None]:
    """Waits before each of `views` samples, for ever if it is None; keeps the interval although a sample takes time."""
    due = time.monotonic()
    done = 0
    while views is None or done < views:
        due = max(due + interval, time.monotonic())
        time.sleep(max(due - time.monotonic(), 0))
        yield
        done += 1


def each_line(seen: Sampler, interval: float, views: int | None) -> None:
    for _ in after_each(interval, views):
        seen.step()
        out.file.write(json.dumps(seen.as_json()) + "\n")
        out.file.flush()


def one_after_another(seen: Sampler, interval: float, views: int | None) -> None:
    for _ in after_each(interval, views):
        seen.step()
        out.print(seen.frame(MOST_ROWS))


def on_screen(seen: Sampler, interval: float, views: int | None) -> None:
    from rich.live import Live as Screen

    from hakmem_lab.inspect.watch_screen import WatchScreen

    shown = WatchScreen(seen)

    def frame() -> RenderableType:
        return shown.frame(out.width, out.height)

    with Screen(frame(), console=out, screen=views is None, auto_refresh=False) as screen:
        for _ in after_each(interval, views):
            seen.step()
            shown.step()
            screen.update(frame(), refresh=True)


def register(app: typer.Typer) -> None:
    app.command("watch", help=HELP)(watch)
