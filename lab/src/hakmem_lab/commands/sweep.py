"""hakmem sweep: one option, or two, over lists of values in one interleaved experiment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hakmem_lab.commands import options as opt
from hakmem_lab.terminal.errors import UsageError

if TYPE_CHECKING:
    from hakmem_lab.experiment.interleaved import Session
    from hakmem_lab.target.configuration import Configuration
    from hakmem_lab.target.libhakmem import Option

ABOUT = r"""Measure an option over a list of values, or two over all pairs, and name the knee.

All values run in each round, in random order, so that they are compared under the same conditions. The base is the
option's default, which is added if the list lacks it. The knee is the least value above which larger ones gain less
than the threshold.

The exit status is 0 if all values were measured, 1 after an error, 130 after an interrupt (go on with --resume).

Examples:

  hakmem sweep --option l2_ring_cap --values 24,32,40,48,56,64 -- out/release/bench_mid_large_mt 2 2000000 400

  hakmem sweep --option refill_count --values 16,32,64,128 --metric 'ops_per_s=(\[0-9.]+)' -- BENCH

  hakmem sweep --option l2_ring_cap --values 24,48 --option refill_count --values 32,64 -- BENCH

  hakmem sweep --option refill_count --values 16,64 --record 0007-refill-batch/tree -- out/release/bench_tree
"""


def register(app: typer.Typer) -> None:
    app.command("sweep", help=ABOUT, context_settings=opt.PASS_ON)(sweep)


def sweep(
    program: opt.Program = None,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="The option's name; two options make a grid.", show_default=False),
    ] = None,
    values: Annotated[
        list[str] | None,
        typer.Option(metavar="V1,V2,...", help="The option's values; once for each --option.", show_default=False),
    ] = None,
    set_: Annotated[
        str,
        typer.Option(
            "--with", metavar="CONFIGURATION", help="The configuration that all runs share, as in 'hakmem ab'."
        ),
    ] = "",
    runs: opt.Runs = 10,
    threshold: opt.Threshold = 1.0,
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
    record: opt.Record = None,
) -> None:
    from hakmem_lab.decide import decision_record as records
    from hakmem_lab.experiment import interleaved
    from hakmem_lab.measure import one_run

    if record is not None:
        records.check_free(record)
    if resume is not None:
        session = interleaved.resume(resume, "sweep")
    else:
        configurations, points = grid(list(option or []), list(values or []), set_, library)
        chosen_seed = interleaved.seed_or_new(seed)
        plan = opt.plan(program, runs, warmup, chosen_seed, timeout, retries, anyway, threshold=threshold)
        chosen = one_run.Metric.parse(metric, lower_is_better)
        path = interleaved.results_path("sweep", out)
        session = interleaved.begin("sweep", plan, chosen, configurations, path, points=points)
    with session:
        session.run()
    conclude(session, page, json, record)


def grid(
    names: list[str], lists: list[str], common: str, library: Path | None
) -> tuple[list[Configuration], list[dict[str, str]]]:
    """A configuration for each combination of values, the base first."""
    import itertools

    from hakmem_lab.target import libhakmem
    from hakmem_lab.target.configuration import nearest, parse

    if not 1 <= len(names) <= 2 or len(names) != len(lists):
        raise UsageError(
            f"{len(names)} times --option and {len(lists)} times --values",
            "Give one or two options, each with its values: --option refill_count --values 16,32,64",
        )
    base = parse(common, "common", library)
    if base.allocator.kind != "ours" or base.allocator.shared_object is None:
        raise UsageError(f"--with {common}: only options of HAKMEM can be swept", "Leave out alloc:, or give lib:PATH.")
    options = libhakmem.options(base.allocator.shared_object)
    axes: list[list[tuple[str, str]]] = []
    for name, text in zip(names, lists, strict=True):
        plain = name.lower().removeprefix("hakmem_")
        if plain not in options:
            raise UsageError(f"--option {name}: unknown{nearest(plain, options)}", "docs/options.md lists the options.")
        axes.append([(plain, value) for value in axis_values(options[plain], text)])
    found: list[Configuration] = []
    points: list[dict[str, str]] = []
    for combination in itertools.product(*axes):
        label = " ".join(f"{name}={value}" for name, value in combination)
        found.append(parse(f"{common} {label}".strip(), label, library))
        points.append(dict(combination))
    return found, points


def axis_values(option: Option, text: str) -> list[str]:
    """The values of one --values, the default first."""
    from hakmem_lab.decide import sweep as sweeps

    listed = [each.strip() for each in text.split(",") if each.strip()]
    if len(listed) != len(set(listed)) or not listed:
        raise UsageError(f"--values {text}: needs different values, separated by commas", "Example: --values 16,32,64")
    defaults = [each for each in listed if sweeps.same_value(option, each)]
    default = defaults[0] if defaults else option.word or str(option.standard)
    return [default, *(each for each in listed if each != default)]


def conclude(session: Session, page: Path | None, json: bool, record: str | None) -> None:
    """Prints and writes the outcome."""
    from hakmem_lab.decide import decision_record as records
    from hakmem_lab.decide import result_tables
    from hakmem_lab.decide import sweep as sweeps

    found = sweeps.analyse(session.experiment, session.experiment.labels[0])

    def draw(target: Path) -> None:
        from hakmem_lab.pages import sweep as pages

        pages.write(session.experiment, found, target, session.path)

    def document() -> dict[str, Any]:
        return {"head": session.experiment.head.model_dump(mode="json"), "sweep": found.model_dump(mode="json")}

    if not json:
        result_tables.sweep(session.experiment, found)
    files = {"results": str(session.path)}
    files |= opt.draw_page(page or session.path.with_suffix(".html"), draw)
    if record is not None:
        opt.kept(lambda: files.update(record=str(records.write(record, session.experiment, found))))
    opt.tell(files, json, document)
