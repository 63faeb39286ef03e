"""Carries out a plan: interleaved rounds in random order, each run written to the results file as it ends."""

from __future__ import annotations

import os
import random
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from hakmem_lab.decide import statistics
from hakmem_lab.measure import one_run, results, workload
from hakmem_lab.measure.allocator_check import AllocatorCheck
from hakmem_lab.measure.results import (
    NOISE,
    Experiment,
    Failure,
    Head,
    Kind,
    Machine,
    MachineLoad,
    MetricModel,
    Plan,
    Run,
    Series,
)
from hakmem_lab.target import elf, libhakmem, preload
from hakmem_lab.target.allocators import HAKMEM
from hakmem_lab.target.configuration import Configuration, parse, require_loadable
from hakmem_lab.terminal import console, progress
from hakmem_lab.terminal.amounts import counted
from hakmem_lab.terminal.errors import INTERRUPTED, LabError

FOLDER = Path("hakmem-results")
LAYOUT = "HAKMEM_LAYOUT_SEED"


def seed_or_new(given: int | None) -> int:
    """The seed of the order within the rounds, by default a random one; it is recorded."""
    return secrets.randbelow(1 << 31) if given is None else given


def results_path(kind: str, out: Path | None) -> Path:
    """The file of a new experiment: `out` is a file (.jsonl) or a folder, by default hakmem-results."""
    if out is not None and out.suffix == ".jsonl":
        return out
    stem = f"{kind}-{results.now().astimezone():%Y%m%d-%H%M%S}"
    folder, number = out or FOLDER, 1
    path = folder / f"{stem}.jsonl"
    while path.exists():
        number += 1
        path = folder / f"{stem}-{number}.jsonl"
    return path


class Session:
    """An experiment that is being carried out, as a context manager that closes its file."""

    def __init__(
        self,
        experiment: Experiment,
        configurations: Sequence[Configuration],
        path: Path,
        *,
        resumed: bool = False,
        drop_failures: bool = False,
    ) -> None:
        """configurations: in the order of the head's series.

        drop_failures: a configuration that fails is noted and left out; otherwise its failure ends the experiment."""
        self.experiment = experiment
        self.path = path
        self._environments = {each.label: each.environment() for each in configurations}
        self._allocators = {each.label: each.allocator for each in configurations}
        given = experiment.head.plan.command
        self._commands = {each.label: one_run.resolve(each.command(given)) for each in configurations}
        self._metric = experiment.head.metric.metric()
        self._said: set[str] = set()
        self._drop = drop_failures
        self._began = time.monotonic() - max((each.at for each in experiment.runs), default=0.0)
        self._writer = results.Writer(path, append=resumed)
        if not resumed:
            self._writer.line("head", experiment.head)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def note_trials(self, trials: Sequence[results.Trial]) -> None:
        """Saves the search that led here with the results."""
        for each in trials:
            self.experiment.trials.append(each)
            self._writer.line("trial", each)

    def order(self, number: int) -> list[str]:
        """The order within a round, which depends only on the seed and the round, so that a resume keeps it."""
        labels = list(self._environments)
        random.Random(f"{self.experiment.head.plan.seed}:{number}").shuffle(labels)
        return labels

    def layout_seed(self, number: int, label: str) -> int | None:
        """Where HAKMEM's blocks lie in a round, the same for all configurations; None: not for the lab to say."""
        allocator = self._allocators[label]
        if allocator.kind != "ours" or allocator.shared_object is None or LAYOUT in self._environments[label]:
            return None
        if "layout_seed" not in libhakmem.options(allocator.shared_object):
            return None
        return random.Random(f"layout {self.experiment.head.plan.seed}:{number}").randrange(1, 1 << 32)

    def _watch(self, label: str) -> AllocatorCheck | None:
        """The check for the first run of a configuration, unless nothing is preloaded or --anyway was given."""
        first = not any(each.label == label for each in self.experiment.runs)
        allocator = self._allocators[label]
        return (
            AllocatorCheck(allocator)
            if first
            and allocator.shared_object
            and not self.experiment.head.plan.anyway
            and self._metric.name != "instructions"
            else None
        )

    def _remark(self, said: str) -> None:
        """Prints a remark, once."""
        if said and said not in self._said:
            self._said.add(said)
            console.remark(f"hakmem: {said}")

    def _one(self, number: int, position: int, label: str) -> None:
        plan = self.experiment.head.plan
        layout = self.layout_seed(number, label)
        environment = self._environments[label] | ({} if layout is None else {LAYOUT: str(layout)})

        def note(error: LabError, again: str = "") -> None:
            failure = Failure(round=number, label=label, problem=error.message, said=error.advice)
            self.experiment.failures.append(failure)
            self._writer.line("failure", failure)
            if again:
                console.remark(f"{label} in round {number}: {error.message}; it is repeated ({again})")

        def made() -> tuple[one_run.Outcome, MachineLoad | None, float]:
            watch = self._watch(label)
            command, over_time = self._metric.wrapped(self._commands[label]), self._metric.name == "gib_seconds"
            outcome, beside = workload.run(plan, command, environment, watch, over_time)
            value = self._metric.of(one_run.require_success(outcome))
            if watch is not None:
                watch.require_served(outcome.cpu_s)
                self._remark(watch.remark())
            return outcome, beside, value

        try:
            outcome, beside, value = workload.retried(made, plan.retries or 0, note)
        except LabError as error:
            note(error)
            if not self._drop or self.experiment.failed() >= self._environments.keys():
                more = (
                    ""
                    if plan.retries or not isinstance(error, one_run.RunFailed)
                    else "; --retries N repeats such runs"
                )
                raise LabError(
                    f"{label} in round {number}: {error.message}",
                    f"{error.advice}\nThe runs until then are in {self.path}{more}.".lstrip(),
                ) from error
            console.remark(f"{label} takes no further part: {error.message}")
            return
        run = Run.of(number, position, label, time.monotonic() - self._began, value, outcome)
        run.surroundings, run.layout_seed = beside, layout
        self.experiment.runs.append(run)
        self._writer.line("run", run)

    def one_round(self, number: int, tick: Callable[[str], None] = lambda _: None) -> None:
        """Runs the missing runs of a round; numbers below 1 are warm-up."""
        done = {each.label for each in self.experiment.runs if each.round == number}
        for position, label in enumerate(self.order(number)):
            if label not in done and label not in self.experiment.failed():
                self._one(number, position, label)
            tick(label)

    def run(self, decided: Callable[[Experiment], bool] | None = None) -> None:
        """All rounds of the plan, with progress on standard error.

        decided: called after each planned look; True ends the experiment early.  On Ctrl-C a LabError says where the
        results are and how to go on."""
        plan = self.experiment.head.plan
        looks = statistics.looks(plan.runs, plan.max_runs) if plan.max_runs else (plan.runs,)
        total = (plan.warmup + looks[-1]) * len(self._environments)
        try:
            with progress.of(total, "runs") as tell:
                for number in range(1 - plan.warmup, looks[-1] + 1):
                    doing = f"round {number}" if number > 0 else "warm-up"
                    self.one_round(number, lambda _, doing=doing: tell(doing))  # type: ignore[misc]
                    if number in looks[:-1] and decided is not None and decided(self.experiment):
                        break
        except KeyboardInterrupt:
            kept = f"{counted(len(self.experiment.rounds()), 'complete round')} kept in {self.path}"
            raise LabError(
                f"interrupted; {self._writer.problem or kept}",
                f"Go on with: hakmem {self.experiment.head.kind} --resume {self.path}",
                INTERRUPTED,
            ) from None


def begin(
    kind: Kind,
    plan: Plan,
    metric: one_run.Metric,
    configurations: Sequence[Configuration],
    path: Path,
    *,
    points: Sequence[dict[str, str]] | None = None,
    drop_failures: bool = False,
) -> Session:
    """A new experiment: checks that the program exists and every library loads, and writes the head."""
    for each in configurations:
        program = one_run.resolve(each.command(plan.command))[0]
        if not plan.anyway:
            _require_preloadable(program, [each])
    require_loadable(configurations)
    series = [Series.of(each, points[place] if points else None) for place, each in enumerate(configurations)]
    everything = list(configurations)
    if plan.noise_check:
        first = configurations[0]
        again = Configuration(NOISE, first.text, first.allocator, first.settings, first.program)
        everything.append(again)
        series.append(Series.of(again))
    head = Head(
        kind=kind,
        created=results.now(),
        commit=results.commit_of(libhakmem.source_tree()),
        machine=Machine.here(),
        plan=plan,
        metric=MetricModel.of(metric),
        series=series,
    )
    return Session(Experiment(head=head), everything, path, drop_failures=drop_failures)


def _require_preloadable(program: str, configurations: Sequence[Configuration]) -> None:
    """A LabError if a library could not be preloaded into the program: both sides would run on the same malloc."""
    looked_at = preload.look(program, os.environ)
    for each in configurations:
        described = elf.describe(each.allocator.shared_object) if each.allocator.shared_object is not None else None
        problem = preload.obstacle(looked_at, described) if described is not None else None
        if problem is not None:
            raise LabError(f"{each.label} would run on another malloc: {problem[0]}", problem[1])


def resume(path: Path, kind: Kind, *, drop_failures: bool = False) -> Session:
    """Goes on with an interrupted experiment, in its original order.

    A LabError if the file is of another kind, or a library that it names has changed."""
    experiment = results.load(path)
    if experiment.head.kind != kind:
        raise LabError(
            f"{path} is of 'hakmem {experiment.head.kind}'",
            f"Go on with: hakmem {experiment.head.kind} --resume {path}",
        )
    configurations = [_again(each) for each in experiment.head.series]
    require_loadable(configurations)
    if not drop_failures:  # failed configurations get another chance
        lost = experiment.broken()
        experiment.failures = [each for each in experiment.failures if each not in lost]
    _mend(path)
    return Session(experiment, configurations, path, resumed=True, drop_failures=drop_failures)


def _again(series: Series) -> Configuration:
    """A configuration from a results file, with the original library file."""
    given: Path | None = None
    if series.shared_object and series.allocator == HAKMEM:
        given = (libhakmem.source_tree() or Path()) / series.shared_object
    found = parse(series.text, series.label, given)
    now = Series.of(found)
    if now.digest != series.digest or found.settings != series.settings:
        raise LabError(
            f"{series.label} has changed: {series.description} then, {now.description} now",
            "Build the measured version again, or start a new experiment.",
        )
    return found


def _mend(path: Path) -> None:
    """Removes an unfinished last line that a crash has left."""
    text = path.read_bytes()
    if text and not text.endswith(b"\n"):
        path.write_bytes(text[: text.rfind(b"\n") + 1])
