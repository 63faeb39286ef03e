"""hakmem compare: one program under every installed allocator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hakmem_lab.commands import options as opt
from hakmem_lab.terminal.errors import ERROR, UsageError

if TYPE_CHECKING:
    from hakmem_lab.experiment.interleaved import Session
    from hakmem_lab.target.configuration import Configuration

ABOUT = r"""Run one program under every allocator found on the machine, in interleaved rounds.

Shows wall time, CPU time, peak memory and page faults, with the gains over the C library's malloc, and draws time
against memory. An allocator under which the program fails is noted and left out.

The exit status is 0 if all ran, 1 if one failed, 130 after an interrupt (go on with --resume). It does not tell which
one is best.

Examples:

  hakmem compare -- python3 job.py

  hakmem compare --alloc hakmem,mimalloc --runs 9 --metric 'ops_per_s=(\[0-9.]+)' -- out/release/bench_random_mixed

  hakmem compare --config 'HAKMEM_THP=always' --config lib:other/libhakmem.so -- sh -c 'sort big.txt >/dev/null'
"""


def register(app: typer.Typer) -> None:
    app.command("compare", help=ABOUT, context_settings=opt.PASS_ON)(compare)


def compare(
    program: opt.Program = None,
    alloc: Annotated[
        str, typer.Option(metavar="all|NAME,NAME", help="The allocators; gains refer to the first.")
    ] = "all",
    config: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONFIGURATION",
            help="A further column, as in 'hakmem ab'; repeatable.",
            show_default=False,
        ),
    ] = None,
    runs: opt.Runs = 5,
    metric: opt.MetricText = "time",
    lower_is_better: opt.LowerIsBetter = False,
    warmup: opt.Warmup = 1,
    retries: opt.Retries = 0,
    anyway: opt.Anyway = False,
    seed: opt.Seed = None,
    timeout: opt.Timeout = None,
    library: opt.Library = None,
    out: opt.Out = None,
    page: opt.PageFile = None,
    resume: opt.Resume = None,
    json: opt.Json = False,
    markdown: opt.Markdown = None,
    csv: opt.Csv = None,
    junit: opt.Junit = None,
    github: opt.Github = False,
    github_comment: opt.GithubComment = None,
) -> None:
    from hakmem_lab.experiment import interleaved
    from hakmem_lab.measure import one_run

    forms = opt.Forms(
        {"markdown": markdown, "csv": csv, "junit": junit, "github-comment": github_comment}, github, json
    )
    with forms.errors_too("hakmem compare"):
        if resume is not None:
            session = interleaved.resume(resume, "compare", drop_failures=True)
        else:
            plan = opt.plan(program, runs, warmup, interleaved.seed_or_new(seed), timeout, retries, anyway)
            chosen = one_run.Metric.parse(metric, lower_is_better)
            columns = configurations(alloc, list(config or []), library)
            path = interleaved.results_path("compare", out)
            session = interleaved.begin("compare", plan, chosen, columns, path, drop_failures=True)
        forms.cases = session.experiment.labels
        with session:
            session.run()
        conclude(session, page, forms)


def configurations(alloc: str, extra: list[str], library: Path | None) -> list[Configuration]:
    """The columns: the requested allocators, then further configurations."""
    from hakmem_lab.target import allocators
    from hakmem_lab.target.configuration import parse

    names = [each.strip() for each in alloc.split(",") if each.strip()]
    if names == ["all"]:
        peers = [name for name, path in allocators.find_peers().items() if path is not None]
        names = [allocators.SYSTEM, allocators.HAKMEM, *peers]
    found = [parse(f"alloc:{name}", name, library) for name in names]
    found += [parse(text, text, library) for text in extra]
    labels = [each.label for each in found]
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice or len(found) < 2:
        problem = f"{', '.join(twice)}: given twice" if twice else "a comparison needs at least two allocators"
        raise UsageError(problem, "Example: hakmem compare --alloc system,hakmem -- PROGRAM")
    return found


def conclude(session: Session, page: Path | None, forms: opt.Forms) -> None:
    """Prints and writes the outcome."""
    from hakmem_lab.decide import allocator_comparison, result_tables

    experiment = session.experiment
    found = allocator_comparison.analyse(experiment)

    def draw(target: Path) -> None:
        from hakmem_lab.pages import compare as pages

        pages.write(experiment, found, target, session.path)

    def document() -> dict[str, Any]:
        failures = [each.model_dump(mode="json") for each in experiment.failures]
        head = experiment.head.model_dump(mode="json")
        return {"head": head, "comparison": found.model_dump(mode="json"), "failures": failures}

    report = allocator_comparison.report(experiment, found)
    if not forms.json:
        result_tables.compare(experiment, found)
    files = {"results": str(session.path)}
    files |= opt.draw_page(page or session.path.with_suffix(".html"), draw)
    files |= forms.write(report)
    opt.tell(files, forms.json, document)
    forms.annotate(report)
    if experiment.failed():
        raise typer.Exit(ERROR)
