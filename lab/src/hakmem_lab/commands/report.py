"""hakmem report: one page for a set of results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hakmem_lab.commands import options as opt
from hakmem_lab.terminal.amounts import counted
from hakmem_lab.terminal.errors import LabError

ABOUT = """Make one HTML page of a set of results: verdicts first, then charts and sortable tables.

The page needs no network; its chart library lies beside it, once for all pages of a folder. For a folder it makes an
index of all results in it, with a page for each. Results are those of ab, sweep, compare and tune (.jsonl; the .json of
a decision record), snapshots (HAKMEM_STATS=json:FILE, 'hakmem stats --json'), recordings ('hakmem watch --json',
'hakmem run --sample'), and 'bench/run.py --json'.

Examples:

  hakmem report hakmem-results/*.jsonl

  hakmem report hakmem-results

  hakmem report bench/runs/0007-refill-count-of-64.json

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
            help="Where the page goes (by default report.html, or for one file beside it).",
            show_default=False,
        ),
    ] = None,
    title: Annotated[str | None, typer.Option(help="The page's title.", show_default=False)] = None,
    single_file: Annotated[
        bool,
        typer.Option("--single", help="Put the chart library into the page instead of beside it: one file of 2 MB."),
    ] = False,
    json: opt.Json = False,
) -> None:
    from hakmem_lab.pages import inputs
    from hakmem_lab.pages import report as pages
    from hakmem_lab.terminal import console

    if any(each.is_dir() for each in files):
        index(files, page, single_file, json)
        return
    items = [pages.item(inputs.read(path)) for path in files]
    single = len(items) == 1
    path = page or (files[0].with_suffix(".html") if single else Path("report.html"))
    if path.resolve() in [each.resolve() for each in files]:
        raise LabError(f"--page {path}: that is one of the results", "Give another place for the page.")
    pages.write(items, title or (items[0].verdict.of if single else "HAKMEM: report"), path, single_file)
    if json:
        opt.print_json({"items": [each.document for each in items], "files": {"page": str(path)}})
        return
    for each in items:
        figure = f"  {each.verdict.figure}" if each.verdict.figure else ""
        console.out.print(f"{each.verdict.word:12}{each.source.path.name}{figure}", markup=False, soft_wrap=True)
    console.out.print(f"page:       {path}", markup=False, soft_wrap=True)


def index(files: list[Path], page: Path | None, single: bool, json: bool) -> None:
    """The index of one folder; other files in it are named there and ignored."""
    from hakmem_lab.pages import index as pages
    from hakmem_lab.pages import inputs, report
    from hakmem_lab.terminal import console

    folder = files[0]
    if len(files) > 1 or page is not None:
        raise LabError("an index is of one folder, and goes into it", "Example: hakmem report hakmem-results")
    items, problems = [], []
    for path in sorted(each for each in folder.rglob("*.json*") if each.suffix in (".json", ".jsonl")):
        if path.parent.name == "baselines":
            continue
        try:
            items.append(report.item(inputs.read(path)))
        except LabError as error:
            problems.append(f"Not shown: {error.message}.")
    if not items:
        raise LabError(f"{folder} has no results", "'hakmem ab' and the others put theirs into hakmem-results.")
    written = pages.write(folder, items, problems, single)
    if json:
        document = {"items": [each.document for each in items], "problems": problems, "files": {"index": str(written)}}
        opt.print_json(document)
        return
    for said in problems:
        console.remark(f"hakmem: {said}")
    console.out.print(f"{counted(len(items), 'result')}", markup=False)
    opt.list_files({"index": str(written)})
