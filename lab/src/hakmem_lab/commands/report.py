"""hakmem report: one page for a set of results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hakmem_lab.commands import options as opt
from hakmem_lab.errors import LabError

ABOUT = """Make one HTML page of a set of results: verdicts first, then charts and sortable tables.

The page needs no network. Results are those of ab, sweep, compare and tune (.jsonl; the .json of a decision record),
snapshots (HAKMEM_STATS=json:FILE, 'hakmem stats --json'), recordings ('hakmem watch --json', 'hakmem run --sample'),
and 'bench/run.py --json'.

Examples:

  hakmem report hakmem-results/*.jsonl

  hakmem report docs/decisions/0007-refill-count-of-64.json

  hakmem run --sample run.jsonl -- python3 job.py; hakmem report run.jsonl --page run.html
"""


def register(app: typer.Typer) -> None:
    app.command("report", help=ABOUT)(report)


def report(
    files: Annotated[list[Path], typer.Argument(metavar="RESULTS...", help="Files of results.", show_default=False)],
    page: Annotated[
        Path | None,
        typer.Option(
            "--page",
            metavar="FILE.html",
            help="Where the page goes (report.html; of one file, beside it).",
            show_default=False,
        ),
    ] = None,
    title: Annotated[str | None, typer.Option(help="The page's title.", show_default=False)] = None,
    json: opt.Json = False,
) -> None:
    from hakmem_lab import console, sources
    from hakmem_lab.pages import report as pages

    items = [pages.item(sources.read(path)) for path in files]
    single = len(items) == 1
    path = page or (files[0].with_suffix(".html") if single else Path("report.html"))
    if path.resolve() in [each.resolve() for each in files]:
        raise LabError(f"--page {path}: that is one of the results", "Give another place for the page.")
    pages.write(items, title or (items[0].verdict.of if single else "HAKMEM: report"), path)
    if json:
        opt.print_json({"items": [each.document for each in items], "files": {"page": str(path)}})
        return
    for each in items:
        figure = f"  {each.verdict.figure}" if each.verdict.figure else ""
        console.out.print(f"{each.verdict.word:12}{each.source.path.name}{figure}", markup=False, soft_wrap=True)
    console.out.print(f"page:       {path}", markup=False, soft_wrap=True)
