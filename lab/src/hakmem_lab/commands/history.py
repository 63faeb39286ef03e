"""hakmem history: results over commits, and the commits that changed them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hakmem_lab.commands import options as opt
from hakmem_lab.terminal.errors import ERROR, LabError

if TYPE_CHECKING:
    from hakmem_lab.decide.history import Series
    from hakmem_lab.measure.results import Experiment

ABOUT = """Draw results over commits, and mark the commits that changed them.

Reads results of 'hakmem ab' from folders, files and baselines. Those with the same program, metric, pair of
configurations and machine form a series, in the order of the source tree's history if it has their commits, otherwise
by time. A change is marked if it is larger than in 95 % of random orders of the same points, of which it needs 8.
To judge the newest commit alone, use 'hakmem ab --against'.

Examples:

  hakmem history

  hakmem history results/ bench/baselines/*.json --page history.html

  hakmem history --json | jq '.series[].changes'
"""


def register(app: typer.Typer) -> None:
    app.command("history", help=ABOUT)(history)


def history(
    sources: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FOLDER|FILE...", help="Results (hakmem-results in this folder).", show_default=False),
    ] = None,
    page: opt.PageFile = None,
    single: Annotated[
        bool, typer.Option("--single", help="Put the chart library into the page instead of beside it.")
    ] = False,
    json: opt.Json = False,
) -> None:
    from hakmem_lab.decide import history as histories
    from hakmem_lab.experiment import interleaved
    from hakmem_lab.target import libhakmem
    from hakmem_lab.terminal import extras

    given = sources or [interleaved.FOLDER]
    found = histories.gather(read(given), histories.positions(libhakmem.source_tree()))
    target = page or (given[0] if given[0].is_dir() else given[0].parent) / "history.html"

    def draw(target: Path) -> None:
        from hakmem_lab.pages import history as pages

        pages.write(found, target, single)

    if not json:
        show(found)
    files = opt.draw_page(target, draw)
    opt.tell(files, json, lambda: {"series": [each.model_dump(mode="json") for each in found]})
    if not files and extras.has("plotly"):
        raise typer.Exit(ERROR)


def show(found: Sequence[Series]) -> None:
    """Prints each program's changes, one per line."""
    from hakmem_lab.decide import history as histories
    from hakmem_lab.terminal import console

    for each in found:
        console.out.print(f"{each.title} ({each.metric}): {len(each.points)} experiments", markup=False, soft_wrap=True)
        for change in each.changes:
            way = "better" if change.gain > 0 else "worse"
            size = f"{change.gain:+.2f} % ({change.low:+.2f} .. {change.high:+.2f})"
            console.out.print(f"  {change.after} after {change.before}: {size}, {way}", markup=False, soft_wrap=True)
        if not each.changes:
            few = len(each.points) < histories.FEWEST
            said = f"too few to tell; {histories.FEWEST} are needed" if few else "no commit has changed the level"
            console.out.print(f"  {said}", markup=False, soft_wrap=True)


def read(sources: list[Path]) -> list[tuple[str, Experiment]]:
    """Every experiment in these files and folders, with its file; other files in a folder are ignored."""
    from hakmem_lab.decide import baselines
    from hakmem_lab.measure import results
    from hakmem_lab.pages.inputs import read as read_one

    found: list[tuple[str, Experiment]] = []
    for source in sources:
        if not source.exists():
            raise LabError(
                f"{source}: there is no such file or folder", "Give results of 'hakmem ab', or their folder."
            )
        inside = sorted(each for each in source.rglob("*.json*") if each.suffix in (".json", ".jsonl"))
        for path in inside if source.is_dir() else [source]:
            try:
                if path.suffix == ".json" and '"hakmem-baseline"' in path.read_text(errors="replace")[:200]:
                    kept = baselines.load(path.stem, path)
                    found += [(str(path), each) for each in kept.cases.values()]
                    continue
                content = read_one(path).content
                if isinstance(content, results.Experiment):
                    found.append((str(path), content))
            except LabError:
                if not source.is_dir():
                    raise
    return list({_identity(each): (file, each) for file, each in found}.values())


def _identity(each: Experiment) -> tuple[object, ...]:
    """The experiments without duplicates: a baseline is a copy of results that may be in the same folder."""
    return (each.head.created, *each.head.plan.command, each.head.plan.seed, len(each.runs))
