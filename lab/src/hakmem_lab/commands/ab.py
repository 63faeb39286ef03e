"""hakmem ab: two configurations of one program or of several, interleaved, and a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hakmem_lab.commands import options as opt
from hakmem_lab.terminal.errors import UsageError

if TYPE_CHECKING:
    from hakmem_lab.decide.baselines import Baseline
    from hakmem_lab.decide.exports import Report
    from hakmem_lab.experiment.case_file import Case
    from hakmem_lab.experiment.interleaved import Session
    from hakmem_lab.experiment.multi_case import Judged, Part
    from hakmem_lab.measure.results import Experiment, Plan

ABOUT = r"""Compare two configurations of one program and decide.

Each round runs A and B once, in random order; the gain is the mean over these pairs, above 0 if B is better.

A configuration is a text of variables ('HAKMEM_REFILL_COUNT=64', or 'refill_count=64'), lib:PATH for another library
file, alloc:NAME for another allocator, or a combination; an empty one is HAKMEM with its defaults.

The verdicts, with their exit statuses:

  [bold]GO[/] (0): the gain reaches the threshold, and its interval lies above 0
  [bold]NO-GO[/] (3): the interval's upper end lies below the threshold
  [bold]INCONCLUSIVE[/] (4): neither; says how many rounds would decide

With --against the status tells how B's gain over A has changed, not the program's own time: [bold]BETTER[/] and
[bold]LEVEL[/] are 0, [bold]WORSE[/] is 3, [bold]INCONCLUSIVE[/] is 4, and [bold]REFUSED[/] is 1: A itself is
shown to be more than 2.5 times the baseline's, or less than 1/2.5 of it.
1 is also an error, which --markdown, --csv, --junit, --github and --json record too; 2 is a wrong command line, 130 an
interrupt (finished runs are kept; go on with --resume).

Examples:

  hakmem ab --a '' --b 'refill_count=64' -- out/release/bench_random_mixed 20000000 400

  hakmem ab --a alloc:system --b alloc:hakmem --metric 'ops_per_s=(\[0-9.]+)' -- out/release/larson 2 8 1000 5000 10 1 2

  hakmem ab --a '' --b 'tiers=0' --metric rss --until-decided --max-runs 60 --record 0007-tiers -- python3 job.py

  hakmem ab --save main -- ./program;  (a change)  hakmem ab --against main --github

  hakmem ab --a '' --b 'refill_count=64' --param size=10,1000 --prepare './make {size} >in' --input in -- ./program

  hakmem ab --a '' --b '' --ready port:7000 --client 'redis-benchmark -p 7000 -t set' -- redis-server --port 7000

  hakmem ab --a '' --b 'refill_count=64' --cases bench.toml --markdown verdict.md --junit verdict.xml
"""


@dataclass(frozen=True)
class Asked:
    """The experiment's parameters on the command line, independent of the program."""

    a: str
    b: str
    runs: int
    warmup: int
    seed: int
    threshold: float
    prediction: tuple[float, float] | None
    max_runs: int | None
    noise_check: bool
    metric: str
    lower_is_better: bool
    timeout: float | None
    shared_object: Path | None
    retries: int = 0
    anyway: bool = False

    def plan(self, case: Case) -> Plan:
        """The plan of one case, whose own values take precedence."""
        return opt.plan(
            case.words,
            self.runs,
            self.warmup,
            self.seed,
            case.timeout or self.timeout,
            self.retries,
            self.anyway,
            threshold=self.threshold if case.threshold is None else case.threshold,
            prediction=self.prediction,
            max_runs=self.max_runs,
            noise_check=self.noise_check,
            prepare=case.prepare,
            cleanup=case.cleanup,
            input=case.input,
            **self.server(case),
        )

    @staticmethod
    def server(case: Case) -> dict[str, str | None]:
        """A server's part of the plan, checked before anything starts."""
        if case.client is None:
            if case.ready is not None or case.latency is not None:
                raise UsageError(
                    "--ready and --latency need --client", "The program is then a server: docs/lab.md, Servers."
                )
            return {}
        from hakmem_lab.measure import latencies, server_runner

        if case.ready is None:
            raise UsageError("--client needs --ready", server_runner.READY_EXAMPLE)
        server_runner.parse_ready(case.ready)
        if case.latency is not None:
            latencies.check(case.latency)
        return {"client": case.client, "ready": case.ready, "latency": case.latency}

    def begin(self, case: Case, path: Path) -> Session:
        """The experiment of one case."""
        from hakmem_lab.experiment import interleaved
        from hakmem_lab.measure import one_run
        from hakmem_lab.target.configuration import parse

        metric = one_run.Metric.parse(case.metric or self.metric, case.lower_is_better or self.lower_is_better)
        configurations = [parse(self.a, "A", self.shared_object), parse(self.b, "B", self.shared_object)]
        return interleaved.begin("ab", self.plan(case), metric, configurations, path)


@dataclass(frozen=True)
class Wanted:
    """The places where the outcome goes."""

    page: Path | None
    json: bool
    record: str | None
    save: str | None
    folder: Path
    forms: opt.Forms


def register(app: typer.Typer) -> None:
    app.command("ab", help=ABOUT, context_settings=opt.PASS_ON)(ab)


def ab(
    program: opt.Program = None,
    a: Annotated[str | None, typer.Option("--a", metavar="CONFIGURATION", help="The base.", show_default=False)] = None,
    b: Annotated[
        str | None, typer.Option("--b", metavar="CONFIGURATION", help="The candidate.", show_default=False)
    ] = None,
    runs: opt.Runs = 10,
    threshold: opt.LeastGain = 1.0,
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
            help="Judge after --runs rounds and then at intervals, until the verdict is GO or NO-GO. Confidence "
            "intervals are wider, so that repeated looks do not raise the error rate.",
        ),
    ] = False,
    max_runs: Annotated[int, typer.Option(min=2, max=100_000, help="The most rounds with --until-decided.")] = 100,
    noise_check: Annotated[
        bool,
        typer.Option(help="Run A a second time in each round; no verdict if A differs from itself."),
    ] = True,
    warmup: opt.Warmup = 1,
    prepare: opt.Prepare = None,
    cleanup: opt.Cleanup = None,
    input_: opt.Input = None,
    param: opt.Param = None,
    cases: opt.Cases = None,
    client: opt.Client = None,
    ready: opt.Ready = None,
    latency: opt.Latency = None,
    save: opt.Save = None,
    against: opt.Against = None,
    other_machine: opt.OtherMachine = False,
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
    record: opt.Record = None,
) -> None:
    from hakmem_lab.decide import decision_record as records
    from hakmem_lab.decide import verdict
    from hakmem_lab.experiment import interleaved

    folder = out if out is not None and out.suffix != ".jsonl" else interleaved.FOLDER
    forms = opt.Forms(
        {"markdown": markdown, "csv": csv, "junit": junit, "github-comment": github_comment}, github, json
    )
    wanted = Wanted(page, json, record, save, folder, forms)
    with forms.errors_too("hakmem ab"):
        if record is not None:
            records.check_free(record)
        if resume is not None:
            finish(interleaved.resume(resume, "ab"), wanted)
            return
        if until_decided and max_runs < runs:
            raise UsageError(f"--max-runs {max_runs} is below --runs {runs}", "Give a larger --max-runs.")
        known = baseline_of(against, folder, save) if against is not None else None
        a, b = sides(a, b, save, known)
        asked = Asked(
            a=a,
            b=b,
            runs=runs,
            warmup=warmup,
            seed=interleaved.seed_or_new(seed),
            threshold=threshold,
            prediction=verdict.parse_prediction(predict) if predict is not None else None,
            max_runs=max_runs if until_decided else None,
            noise_check=noise_check,
            metric=metric,
            lower_is_better=lower_is_better,
            timeout=timeout,
            shared_object=library,
            retries=retries,
            anyway=anyway,
        )
        program = [*own_program(a, b), *(program or [])] if cases is None else program
        hooks = {"prepare": prepare, "cleanup": cleanup, "input": input_}
        hooks |= {"client": client, "ready": ready, "latency": latency}
        asked, found = programs(asked, list(program or []), list(param or []), hooks, cases, known)
        forms.cases = [each.name for each in found]
        if known is None and len(found) == 1 and cases is None:
            finish(asked.begin(found[0], interleaved.results_path("ab", out)), wanted)
        else:
            finish_all(asked, found, wanted, known, other_machine, out)


def baseline_of(name: str, folder: Path, save: str | None) -> Baseline:
    """The baseline given with --against."""
    from hakmem_lab.decide import baselines

    if save == name:
        raise UsageError(f"--save {name} would replace what --against {name} reads", "Save under another name.")
    return baselines.load(name, baselines.path_of(name, folder))


def own_program(*texts: str) -> list[str]:
    """The first program, if all configurations name one; the command line then has only arguments for them."""
    from hakmem_lab.target.configuration import parse

    if not all("cmd:" in each for each in texts):
        return []
    named = [parse(each, "A", checked=False).program for each in texts]
    return list(named[0][:1]) if all(named) else []


def sides(a: str | None, b: str | None, save: str | None, known: Baseline | None) -> tuple[str, str]:
    """The two configurations: those given, the baseline's, or for a new baseline the C library and HAKMEM."""
    if known is not None:
        head = next(iter(known.cases.values())).head
        return (head.find("A").text if a is None else a), (head.find("B").text if b is None else b)
    if save is not None:
        return ("alloc:system" if a is None else a), ("" if b is None else b)
    if a is None or b is None:
        raise UsageError("--a and --b are needed", "Example: hakmem ab --a '' --b 'refill_count=64' -- PROGRAM")
    return a, b


def programs(
    asked: Asked,
    program: list[str],
    params: list[str],
    hooks: dict[str, str | None],
    file: Path | None,
    known: Baseline | None,
) -> tuple[Asked, list[Case]]:
    """The cases: those of the file, of the program and its parameters, or of the baseline."""
    from dataclasses import replace

    from hakmem_lab.experiment import case_file
    from hakmem_lab.measure import one_run

    if file is not None:
        if program or params or any(hooks.values()):
            raise UsageError(
                "--cases says which programs run, with which parameters, input, --prepare and --cleanup",
                "Put them into the file, as keys of a [[case]].",
            )
        if asked.max_runs is not None:
            raise UsageError("--until-decided works for one program only", "Leave it out, and give --runs.")
        whole, found = case_file.read(file)
        runs = asked.runs if whole.runs is None else whole.runs
        return replace(asked, runs=runs, warmup=asked.warmup if whole.warmup is None else whole.warmup), found
    if not program and known is not None:
        return replace(asked, max_runs=None), [case_again(name, each) for name, each in known.cases.items()]
    one_run.resolve(program)
    if asked.max_runs is not None and (params or known is not None):
        raise UsageError("--until-decided works for one program without parameters or baseline", "Give --runs instead.")
    return asked, case_file.of_program(program, case_file.parse_params(params), **hooks)


def case_again(name: str, then: Experiment) -> Case:
    """A case as the baseline measured it."""
    from hakmem_lab.experiment.case_file import Case

    plan, metric = then.head.plan, then.head.metric
    return Case(
        name=name,
        command=plan.command,
        metric=metric.name,
        lower_is_better=metric.metric().printed and not metric.higher_is_better,
        threshold=plan.threshold,
        timeout=plan.timeout_s,
        prepare=plan.prepare,
        cleanup=plan.cleanup,
        input=plan.input,
        client=plan.client,
        ready=plan.ready,
        latency=plan.latency,
    )


def decided(found: Experiment) -> bool:
    """Whether the runs so far allow GO or NO-GO."""
    from hakmem_lab.decide import verdict

    return verdict.compare(found, "A", "B").verdict != "INCONCLUSIVE"


def finish(session: Session, wanted: Wanted) -> None:
    """Runs one experiment, prints and writes its outcome; exits with the verdict's status."""
    from hakmem_lab.decide import case_tables, latency_shifts, result_tables, verdict
    from hakmem_lab.decide import decision_record as records
    from hakmem_lab.experiment import multi_case

    case = one_name(session.experiment)
    wanted.forms.cases = [case]
    with session:
        session.run(decided)
    found = verdict.compare(session.experiment, "A", "B")

    def draw(target: Path) -> None:
        from hakmem_lab.pages import ab as pages

        pages.write(session.experiment, found, target, session.path)

    def document() -> dict[str, Any]:
        head = session.experiment.head.model_dump(mode="json")
        shifts = [each.model_dump(mode="json") for each in latency_shifts.shifts(session.experiment)]
        failures = [each.model_dump(mode="json") for each in session.experiment.failures]
        return {"head": head, "comparison": found.model_dump(mode="json"), "shifts": shifts, "failures": failures}

    if not wanted.json:
        result_tables.comparison(session.experiment, found)
        case_tables.shifts(latency_shifts.shifts(session.experiment))
    files = {"results": str(session.path)}
    files |= opt.draw_page(wanted.page or session.path.with_suffix(".html"), draw)
    if (name := wanted.record) is not None:
        opt.kept(lambda: files.update(record=str(records.write(name, session.experiment, found))))
    report = multi_case.report_of_one(case, session.experiment, found)
    files |= keep(wanted, report, {case: session.experiment})
    opt.tell(files, wanted.json, document)
    wanted.forms.annotate(report)
    raise typer.Exit(verdict.STATUS[found.verdict])


def one_name(experiment: Experiment) -> str:
    """The name of a single case in a baseline."""
    from hakmem_lab.experiment import case_file

    return case_file.of_program(experiment.head.plan.command, {})[0].name


def keep(wanted: Wanted, report: Report, made: dict[str, Experiment]) -> dict[str, str]:
    """Writes the exports and the baseline, and reports those that could not be written."""
    from hakmem_lab.decide import baselines

    files = wanted.forms.write(report)
    if (name := wanted.save) is not None:
        path = baselines.path_of(name, wanted.folder)
        if opt.kept(lambda: baselines.save(name, path, made)):
            files["baseline"] = str(path)
    return files


def finish_all(
    asked: Asked, found: list[Case], wanted: Wanted, known: Baseline | None, other_machine: bool, out: Path | None
) -> None:
    """Runs all cases, prints and writes their outcome; exits with the status of the overall verdict."""
    from hakmem_lab.decide import exports
    from hakmem_lab.experiment import multi_case

    if wanted.record is not None:
        raise UsageError("--record works for one program only", "Run the cases one by one, as parts of a record.")
    parts = begin_all(asked, found, out)
    if known is not None:
        for part in parts:
            multi_case.check(part, known, other_machine)
    multi_case.run(parts)
    judged = multi_case.judge(parts, known, other_machine)
    report = multi_case.report(parts, judged)
    show_all(parts, judged, report, wanted)
    wanted.forms.annotate(report)
    raise typer.Exit(exports.STATUS[judged.verdict])


def begin_all(asked: Asked, found: list[Case], out: Path | None) -> list[Part]:
    """The experiments, whose files share a folder."""
    from hakmem_lab.experiment import interleaved, multi_case

    if out is not None and out.suffix == ".jsonl":
        raise UsageError(f"--out {out}: several cases need a folder", "Give a folder.")
    stem = folder = interleaved.results_path("ab", out).with_suffix("")
    number = 1
    while folder.exists():
        number += 1
        folder = stem.with_name(f"{stem.name}-{number}")
    return [
        multi_case.Part(case.name, asked.begin(case, multi_case.file_of(folder, place, case.name)))
        for place, case in enumerate(found, start=1)
    ]


def show_all(parts: list[Part], judged: Judged, report: Report, wanted: Wanted) -> None:
    """Prints the verdict, then the files that were written."""
    from hakmem_lab.decide import case_tables

    folder = parts[0].session.path.parent

    def draw(target: Path) -> None:
        from hakmem_lab.pages import cases as pages

        pages.write(
            report, [(each.experiment, judged.comparisons[each.name], each.session.path) for each in parts], target
        )

    def document() -> dict[str, Any]:
        heads = {part.name: part.experiment.head.model_dump(mode="json") for part in parts}
        failures = {part.name: [each.model_dump() for each in part.experiment.failures] for part in parts}
        return {"heads": heads, "outcome": judged.model_dump(mode="json"), "failures": failures}

    if not wanted.json:
        case_tables.cases(report)
    files = {"results": str(folder)} | opt.draw_page(wanted.page or folder / "index.html", draw)
    files |= keep(wanted, report, {part.name: part.experiment for part in parts})
    opt.tell(files, wanted.json, document)
