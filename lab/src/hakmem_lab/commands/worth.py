"""hakmem worth: what any allocator could gain at most."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hakmem_lab.commands import options as opt

HELP = """Say what any allocator could gain for a program at most, in time and in memory.

The program runs on HAKMEM with 0, 5, 10 and 20 ns added to each call of malloc and free, in interleaved rounds: the
slope is the number of calls for which it waits. With the time in calls and in page faults that bounds what an allocator
could gain that took no time at all. At the peak of memory, live blocks beside resident memory bound the other gain.

Examples:

  hakmem worth -- python3 job.py

  hakmem worth --runs 10 --page worth.html -- ./program
"""


def worth(
    program: Annotated[
        list[str], typer.Argument(metavar="-- PROGRAM [ARGUMENTS]", help="What to run.", show_default=False)
    ],
    runs: Annotated[int, typer.Option(min=2, max=1000, help="Rounds of five runs each.")] = 5,
    cpu: Annotated[bool, typer.Option("--cpu", help="Processor time, of all threads: for a busy machine.")] = False,
    seed: opt.Seed = None,
    timeout: opt.Timeout = None,
    as_json: opt.Json = False,
    page: opt.WritePage = None,
    library: opt.Library = None,
) -> None:
    from hakmem_lab.commands.run import prepare
    from hakmem_lab.experiment import worth as experiment
    from hakmem_lab.experiment.interleaved import seed_or_new

    _, environment = prepare(program, None, [], None, None, [], False, library)
    found = experiment.measure(program, environment, runs, seed_or_new(seed), timeout, cpu)

    def draw(path: Path) -> None:
        from hakmem_lab.pages import worth as pages

        pages.write(found, " ".join(program), path)

    opt.told(experiment.says(found), lambda: as_document(found), as_json, page, draw)


def as_document(found: Any) -> dict[str, Any]:
    mean, low, high = found.bound()
    time = {
        "gain": mean,
        "low": low,
        "high": high,
        "bounded": not found.why_unbounded(),
        "felt": found.felt(),
        "rounds": [vars(r) for r in found.rounds],
    }
    return {"time": time, "memory": vars(found.memory) | {"most_saved": found.memory.most_saved}}


def register(app: typer.Typer) -> None:
    app.command("worth", help=HELP, context_settings=opt.PASS_ON)(worth)
