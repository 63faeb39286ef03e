"""hakmem tune: a search over the library's options for one program, and a verdict on what it finds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hakmem_lab.commands import options as opt
from hakmem_lab.terminal.amounts import counted
from hakmem_lab.terminal.errors import NO_GO, LabError, UsageError

if TYPE_CHECKING:
    from hakmem_lab.decide.allocator_comparison import Gain
    from hakmem_lab.decide.verdict import Comparison
    from hakmem_lab.experiment.interleaved import Session
    from hakmem_lab.experiment.search import Search
    from hakmem_lab.measure.results import Experiment, Trial

ABOUT = r"""Search for settings that improve a program, and decide.

Optuna proposes settings of the tunable options (capacities, budgets, delays, presets, as far as the library has them);
each is measured in rounds with the default, and abandoned if it is far behind. The best one is then compared with the
default in a separate A/B experiment, by the rule of 'hakmem ab'. The file hakmem.env is written only if the verdict is
GO; otherwise the default stays.

The exit status is 0 after GO, 3 if the default stays, 4 if the verdict is open, 1 after an error, 130 after an
interrupt (go on with --resume).

Examples:

  hakmem tune -- python3 job.py

  hakmem tune --budget 1h --objective mix --options l2_ring_cap,thread_budget,purge_delay -- ./server --self-test

  hakmem tune --metric 'ops_per_s=(\[0-9.]+)' --budget 10m -- out/release/bench_mid_large_mt 2 2000000 400

  set -a; . ./hakmem.env; set +a; hakmem run -- python3 job.py
"""
MARK = "# Written by hakmem tune"
OBJECTIVES = ("time", "rss", "mix")


def register(app: typer.Typer) -> None:
    app.command("tune", help=ABOUT, context_settings=opt.PASS_ON)(tune)


def tune(
    program: opt.Program = None,
    budget: Annotated[
        str, typer.Option(metavar="TIME", help="Time for search and decision together: 90s, 15m, 2h.")
    ] = "15m",
    objective: Annotated[
        str, typer.Option(metavar="time|rss|mix", help="Wall time, peak memory, or their geometric mean.")
    ] = "time",
    metric: Annotated[
        str | None,
        typer.Option(
            metavar="REGEX|cpu",
            help="Instead of an objective: CPU time, or a number that the program prints, as in 'hakmem ab'.",
            show_default=False,
        ),
    ] = None,
    lower_is_better: opt.LowerIsBetter = False,
    options: Annotated[
        str, typer.Option(metavar="NAME,NAME,...", help="Search only these.", show_default="all that tune")
    ] = "",
    set_: Annotated[
        str,
        typer.Option(
            "--with", metavar="CONFIGURATION", help="The configuration that all runs share: the default to beat."
        ),
    ] = "",
    trials: Annotated[
        int | None, typer.Option(min=1, help="The most settings to try.", show_default="the budget")
    ] = None,
    trial_rounds: Annotated[int, typer.Option(min=1, max=1000, help="Rounds of each trial.")] = 3,
    runs: opt.Runs = 10,
    threshold: opt.Threshold = 1.0,
    retries: opt.Retries = 0,
    anyway: opt.Anyway = False,
    seed: opt.Seed = None,
    timeout: opt.Timeout = None,
    library: opt.Library = None,
    out: opt.Out = None,
    env: Annotated[Path, typer.Option(metavar="FILE", help="Where to write the settings after GO.")] = Path(
        "hakmem.env"
    ),
    page: opt.PageFile = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Go on with an interrupted search (.study).", show_default=False),
    ] = None,
    json: opt.Json = False,
) -> None:
    from hakmem_lab.experiment import interleaved
    from hakmem_lab.experiment import search as searches
    from hakmem_lab.measure import one_run
    from hakmem_lab.measure.results import MetricModel

    check_env(env)
    if resume is not None:
        path = resume.with_suffix(searches.SUFFIX)
        found = searches.Search.load(path)
    else:
        if objective not in OBJECTIVES:
            raise UsageError(f"--objective {objective}: unknown", f"Known are {', '.join(OBJECTIVES)}.")
        chosen = one_run.Metric.parse(metric or objective, lower_is_better)
        path = interleaved.results_path("tune", out).with_suffix(searches.SUFFIX)
        plan = searches.SearchPlan(
            command=list(program or []),
            typed=opt.typed(),
            base=set_,
            library=str(library.resolve()) if library else None,
            digest="",
            metric=MetricModel.of(chosen),
            options=[each.strip() for each in options.split(",") if each.strip()],
            budget_s=opt.seconds(budget, "--budget"),
            trials=trials,
            rounds=trial_rounds,
            runs=runs,
            threshold=threshold,
            seed=interleaved.seed_or_new(seed),
            timeout_s=timeout,
            retries=retries,
            anyway=anyway,
        )
        one_run.resolve(plan.command)
        plan.digest = searches.build_digest(searches.default_configuration(plan))
        found = searches.Search.create(plan, path)
    session = decide(found, path.with_suffix(".jsonl"))
    conclude(found, session, env, page, json)


def check_env(path: Path) -> None:
    """Raises a LabError if this command did not write the file; called before anything is measured."""
    try:
        first = path.read_text(encoding="utf-8").partition("\n")[0]
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(f"--env {path}: {error}", "Give another file.") from error
    if not first.startswith(MARK):
        raise LabError(f"--env {path} exists and was not written by hakmem tune", "Give another file with --env.")


def decide(found: Search, results: Path) -> Session | None:
    """Searches, then carries out the A/B experiment of the best setting; None if none was better."""
    from hakmem_lab.experiment import interleaved

    if results.exists():  # the search was finished, the decision interrupted
        session = interleaved.resume(results, "tune")
    else:
        found.run(found.warm_up())
        best = found.best()
        if best is None:
            return None
        asked = found.plan
        plan = opt.plan(
            asked.command,
            asked.runs,
            1,
            asked.seed,
            asked.timeout_s,
            asked.retries,
            asked.anyway,
            typed=asked.typed,
            threshold=asked.threshold,
            noise_check=True,
        )
        metric = asked.metric.metric()
        session = interleaved.begin("tune", plan, metric, found.configurations(best), results)
        session.note_trials(found.trials())
    with session:
        session.run()
    return session


def conclude(found: Search, session: Session | None, env: Path, page: Path | None, json: bool) -> None:
    """Prints and writes the outcome; exits with the verdict's status."""
    from hakmem_lab.decide import result_tables, verdict

    trials = found.trials()
    files = {"search": str(found.path)}
    compared = verdict.compare(session.experiment, "A", "B") if session is not None else None
    if not json:
        show_trials(trials, found.retried)
        if session is not None and compared is not None:
            result_tables.comparison(session.experiment, compared)
    if session is not None and compared is not None:
        files["results"] = str(session.path)
        study, judged, results = session.experiment, compared, session.path

        def draw(target: Path) -> None:
            from hakmem_lab.pages import tune as pages

            pages.write(study, judged, target, results)

        files |= opt.draw_page(page or session.path.with_suffix(".html"), draw)
        if compared.verdict == "GO" and opt.kept(lambda: write_env(env, study, judged, results)):
            files["settings"] = str(env)

    def document() -> dict[str, Any]:
        return {
            "plan": found.plan.model_dump(mode="json"),
            "retried": found.retried,
            "trials": [each.model_dump(mode="json") for each in trials],
            "comparison": compared.model_dump(mode="json") if compared else None,
            "verdict": compared.verdict if compared else "NO-GO",
        }

    if not json:
        result_tables.say(sentence(trials, compared, env, "settings" in files))
    opt.tell(files, json, document)
    raise typer.Exit(verdict.STATUS[compared.verdict] if compared else NO_GO)


def show_trials(trials: list[Trial], retried: int = 0, most: int = 5) -> None:
    """How many settings were tried, and the best of them."""
    from rich.markup import escape
    from rich.table import Table

    from hakmem_lab.decide import result_tables
    from hakmem_lab.terminal import console, tables

    given_up = sum(each.state == "pruned" for each in trials)
    failed = [each for each in trials if each.state == "failed"]
    result_tables.say(f"[bold]{counted(len(trials), 'setting')} tried, {given_up} of them abandoned early[/]")
    table = Table(**result_tables.TABLE)
    table.add_column("gain ± 95 % interval, %", justify="right")
    table.add_column("setting")
    complete = [each for each in trials if each.state == "complete" and each.gain is not None]
    for each in sorted(complete, key=lambda each: -(each.gain or 0.0))[:most]:
        table.add_row(result_tables.gain_cell(trial_gain(each)), escape(each.text))
    tables.show(console.out, table)
    if retried:
        result_tables.say(f"{retried} runs of the search failed and were repeated")
    for each in failed:
        console.out.print(f"[red]failed[/] under {escape(each.text)}")


def trial_gain(trial: Trial) -> Gain:
    """The mean of a trial's rounds, with its interval."""
    import numpy as np

    from hakmem_lab.decide import statistics
    from hakmem_lab.decide.allocator_comparison import Gain

    found = statistics.interval(np.log1p(np.array(trial.gains) / 100.0))
    return Gain(gain=found.gain, low=found.low, high=found.high)


def sentence(trials: list[Trial], compared: Comparison | None, env: Path, written: bool) -> str:
    """The outcome in words."""
    import shlex

    from rich.markup import escape

    if compared is None:
        return f"None of {counted(len(trials), 'setting')} was better than the default: the default stays."
    if compared.verdict == "GO" and not written:
        return f"The verdict is GO, but {escape(str(env))} could not be written; the settings are in the results."
    if compared.verdict == "GO":
        use = f"set -a; . {shlex.quote(str(env.absolute()))}; set +a"
        return escape(f"The settings are in {env}. Use them with: {use}")
    return f"The verdict is {compared.verdict}: the default stays, and {escape(str(env))} is not written."


def write_env(path: Path, study: Experiment, compared: Comparison, results: Path) -> None:
    """The settings as lines NAME=VALUE for shells, systemd and containers.

    A shell executes the file, so values are quoted where necessary, and comments stay on one line."""
    import shlex

    from hakmem_lab.decide import result_tables, verdict

    head = verdict.judged(study, compared).head
    settings = next(each.settings for each in head.series if each.label == "B")
    gain = f"{result_tables.gain(compared.gain)} ({result_tables.between(compared.low, compared.high)})"
    comments = [
        f"{MARK}: {compared.verdict}, {gain} over the default, {counted(compared.rounds, 'round')}.",
        f"# {head.metric.title}, of: {shlex.join(head.plan.command)}",
        f"# {head.find('B').description}, {head.created:%Y-%m-%d}",
    ]
    lines = [each.replace("\n", " ") for each in comments]
    lines += [f"{name}={shlex.quote(value)}" for name, value in settings.items()]
    try:
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as error:
        raise LabError(f"cannot write {path}: {error.strerror}", f"The results are in {results}.") from error
