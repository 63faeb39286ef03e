"""hakmem ab: two configurations of one program, interleaved, and a verdict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hakmem_lab.commands import options as opt
from hakmem_lab.errors import LabError

if TYPE_CHECKING:
    from hakmem_lab.experiment import Session
    from hakmem_lab.results import Experiment

ABOUT = r"""Compare two configurations of one program and decide.

Each round runs A and B once, in random order; the gain is that of the paired rounds, above 0 when B is better.

A configuration is a text of variables ('HAKMEM_REFILL_COUNT=64', or 'refill_count=64'), lib:PATH for another library
file, alloc:NAME for another allocator, or a mixture; an empty one is HAKMEM as it is.

[bold]GO[/] (exit status 0): the gain reaches the threshold and its interval lies above 0.
[bold]NO-GO[/] (3): the interval's upper end lies below the threshold.
[bold]INCONCLUSIVE[/] (4): neither; says how many rounds would decide.
1 is an error, 2 a wrong command line, 130 an interrupt (what was measured is kept; go on with --resume).

Examples:

  hakmem ab --a '' --b 'refill_count=64' -- out/release/bench_random_mixed 20000000 400

  hakmem ab --a alloc:system --b alloc:hakmem --metric 'ops_per_s=(\[0-9.]+)' -- out/release/larson 2 8 1000 5000 10 1 2

  hakmem ab --a '' --b 'tiers=0' --metric rss --until-decided --max-runs 60 --record 0007-tiers -- python3 job.py
"""


def register(app: typer.Typer) -> None:
    app.command("ab", help=ABOUT, context_settings=opt.PASS_ON)(ab)


def ab(
    program: opt.Program = None,
    a: Annotated[str | None, typer.Option("--a", metavar="CONFIGURATION", help="The base.", show_default=False)] = None,
    b: Annotated[
        str | None, typer.Option("--b", metavar="CONFIGURATION", help="What may be better.", show_default=False)
    ] = None,
    runs: opt.Runs = 10,
    threshold: opt.Threshold = 1.0,
    predict: Annotated[
        str | None,
        typer.Option(metavar="FROM..TO", help="The gain you expect, in %, e.g. '+0.5..1.5'.", show_default=False),
    ] = None,
    metric: opt.MetricText = "time",
    lower_is_better: opt.LowerIsBetter = False,
    until_decided: Annotated[
        bool,
        typer.Option(
            "--until-decided",
            help="Look after --runs rounds and then now and again, until the verdict is GO or NO-GO. The "
            "intervals are wider, so that looking often does not raise the error rate.",
        ),
    ] = False,
    max_runs: Annotated[int, typer.Option(min=2, max=100_000, help="Bound of rounds for --until-decided.")] = 100,
    noise_check: Annotated[
        bool,
        typer.Option(help="Run A a second time in each round; no verdict when A differs from itself."),
    ] = True,
    warmup: opt.Warmup = 1,
    seed: opt.Seed = None,
    timeout: opt.Timeout = None,
    library: opt.Library = None,
    out: opt.Out = None,
    page: opt.PageFile = None,
    resume: opt.Resume = None,
    json: opt.Json = False,
    record: opt.Record = None,
) -> None:
    from hakmem_lab import experiment, measure, verdict
    from hakmem_lab import record as records
    from hakmem_lab.configuration import parse
    from hakmem_lab.results import Plan

    if record is not None:
        records.check_free(record)
    if resume is not None:
        session = experiment.resume(resume, "ab")
    else:
        if a is None or b is None:
            raise LabError("--a and --b are needed", "Example: hakmem ab --a '' --b 'refill_count=64' -- PROGRAM")
        if until_decided and max_runs < runs:
            raise LabError(f"--max-runs {max_runs} is below --runs {runs}", "Give a bound of at least that many.")
        plan = Plan(
            command=list(program or []),
            typed=opt.typed(),
            runs=runs,
            warmup=warmup,
            seed=experiment.new_seed() if seed is None else seed,
            threshold=threshold,
            prediction=verdict.parse_prediction(predict) if predict is not None else None,
            max_runs=max_runs if until_decided else None,
            noise_check=noise_check,
            timeout_s=timeout,
        )
        session = experiment.begin(
            "ab",
            plan,
            measure.Metric.parse(metric, lower_is_better),
            [parse(a, "A", library), parse(b, "B", library)],
            experiment.results_path("ab", out),
        )
    with session:
        session.run(decided)
    conclude(session, page, json, record)


def decided(found: Experiment) -> bool:
    """Whether the runs so far allow GO or NO-GO."""
    from hakmem_lab import verdict

    return verdict.compare(found, "A", "B").verdict != "INCONCLUSIVE"


def conclude(session: Session, page: Path | None, json: bool, record: str | None) -> None:
    """Prints and writes what the experiment has found; ends with the verdict's exit status."""
    from hakmem_lab import console, show, verdict
    from hakmem_lab import record as records
    from hakmem_lab.pages import ab as pages

    found = verdict.compare(session.experiment, "A", "B")
    page_path = page or session.path.with_suffix(".html")
    pages.write(session.experiment, found, page_path)
    files = {"results": str(session.path), "page": str(page_path)}
    if record is not None:
        files["record"] = str(records.write(record, session.experiment, found))
    if json:
        head = session.experiment.head.model_dump(mode="json")
        opt.print_json({"head": head, "comparison": found.model_dump(mode="json"), "files": files})
    else:
        show.comparison(session.experiment, found)
        for name, path in files.items():
            console.out.print(f"{name + ':':9}{path}", markup=False, soft_wrap=True)
    raise typer.Exit(verdict.STATUS[found.verdict])
