"""Runs the suite's rounds and keeps every run: the file, its models, resuming, progress.

Rounds are interleaved: each runs every case once under every allocator, the allocators of a case one after the other
in random order, so that a change of the machine's speed meets all of them.  Round 0 is a warm-up with the quick
arguments; its failures count, its figures don't; a quick run has none.  A pair of case and allocator that failed is not
tried again.  Further rounds have the cases of which the others do not tell enough.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import random
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Literal

import listing
from hakmem_lab.measure import one_run, results
from hakmem_lab.measure.results import Machine, Model
from hakmem_lab.target import elf, libhakmem, preload
from hakmem_lab.target.allocators import FLOOR, Allocator
from hakmem_lab.terminal import console
from hakmem_lab.terminal.errors import INTERRUPTED, LabError
from listing import Case, Places
from pydantic import Field, ValidationError
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

VERSION = 1
TIMEOUT_S, QUICK_TIMEOUT_S = 180.0, 60.0
FIRST_REQUEST = "libfirst_request.so"


class Plan(Model):
    quick: bool
    rounds: int = Field(ge=1)
    more: int = Field(default=0, ge=0, description="rounds besides, at most, of cases whose ratio is not known well")
    seed: int


class CaseRow(Model):
    """A case as it was measured; the command without the machine's own paths."""

    name: str
    group: str
    about: str
    command: list[str]


class AllocatorRow(Model):
    name: str
    kind: str
    description: str
    digest: str = Field(description="the beginning of the library's SHA-256")


class Missing(Model):
    """A case or an allocator that could not take part, and why."""

    name: str
    reason: str


class Head(Model):
    """The first line of a results file."""

    format: Literal["hakmem-suite"] = "hakmem-suite"
    version: int = VERSION
    created: datetime
    commit: str
    machine: Machine
    plan: Plan
    cases: list[CaseRow]
    allocators: list[AllocatorRow]
    missing: list[Missing]


class Sample(Model):
    """One run.  time is what is compared: seconds per operation, or of the whole run when it counts none."""

    round: int
    position: int
    case: str
    allocator: str
    at: float
    time: float
    wall_s: float
    cpu_s: float
    peak_rss_bytes: int
    minor_faults: int
    major_faults: int
    check: str = ""
    extra: dict[str, float] = Field(default_factory=dict, description="what a runner reads beside these")


class Failure(Model):
    round: int
    case: str
    allocator: str
    reason: str


class Bare(Model):
    """What a program holds before its first request of memory."""

    case: str
    bytes: int


Entry = Sample | Failure | Bare


class Results(Model):
    """The head and all that was measured."""

    head: Head
    samples: list[Sample] = Field(default_factory=list)
    failures: list[Failure] = Field(default_factory=list)
    bare: dict[str, int] = Field(default_factory=dict)

    def broken(self) -> set[tuple[str, str]]:
        return {(each.case, each.allocator) for each in self.failures}

    def before(self, number: int) -> Results:
        """What was known when this round began."""
        return self.model_copy(update={"samples": [each for each in self.samples if each.round < number]})

    def add(self, entry: Entry) -> None:
        if isinstance(entry, Bare):
            self.bare[entry.case] = entry.bytes
        else:
            (self.samples if isinstance(entry, Sample) else self.failures).append(entry)  # type: ignore[arg-type]


class _Line(Model):
    type: Literal["head", "run", "failure", "bare"]
    data: Head | Sample | Failure | Bare


def load(path: Path) -> Results:
    """Results from their file; a last line that was cut off is passed over.  A LabError for any other file."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(f"cannot read {path}: {error}", "Give a file that './dev bench --suite' has written.") from error
    parsed: list[Head | Entry] = []
    for number, text in enumerate(lines, start=1):
        try:
            parsed.append(_Line.model_validate_json(text).data)
        except ValidationError as error:
            if number == len(lines) and number > 1:
                break
            raise LabError(
                f"{path}:{number}: not a line of the suite's results: {error.errors()[0]['msg']}",
                "Give a file that './dev bench --suite' has written.",
            ) from None
    if not parsed or not isinstance(parsed[0], Head):
        raise LabError(f"{path} does not begin with the suite's head", "Give a file of './dev bench --suite'.")
    found = Results(head=parsed[0])
    for entry in parsed[1:]:
        if not isinstance(entry, Head):
            found.add(entry)
    return found


def joined(files: Sequence[Results]) -> Results:
    """Several files as one: each has measured other benchmarks, on the same machine, under the same allocators; a LabError otherwise."""
    first = files[0]
    cases, found = list(first.head.cases), first.model_copy(deep=True)
    for each in files[1:]:
        twice = {case.name for case in cases} & {case.name for case in each.head.cases}
        if twice:
            raise LabError(f"several of the files have {', '.join(sorted(twice))}", "Give files of different benchmarks.")
        if _measured_on(each.head) != _measured_on(first.head):
            raise LabError(
                "the files are not of one machine, one build and the same allocators", "Measure the benchmarks that are missing there anew."
            )
        cases += each.head.cases
        found.samples += each.samples
        found.failures += each.failures
        found.bare.update(each.bare)
    missing = {each.name: each for file in files for each in file.head.missing if each.name not in {case.name for case in cases}}
    found.head = first.head.model_copy(update={"cases": cases, "missing": list(missing.values())})
    return found


def _measured_on(head: Head) -> tuple[object, ...]:
    """What two files have to share, so that their means mean something."""
    facts = {name: value for name, value in head.machine.facts.items() if name != "load"}
    return facts, head.plan.quick, sorted((each.name, each.digest, each.description) for each in head.allocators)


def digest(allocator: Allocator) -> str:
    return results.digest(allocator.shared_object) if allocator.shared_object is not None else ""


def describe(allocator: Allocator) -> str:
    """Which code this is, without the path of its file."""
    said = results.describe(allocator)
    inside = re.fullmatch(r"/\S+ \((.+)\)", said)
    return inside.group(1) if inside else re.sub(r"(?<!\S)/\S*/", "", said)


def generic(case: Case, quick: bool) -> list[str]:
    """The command as the list has it."""
    return [case.program, *(case.quick if quick else case.args)]


def head_of(cases: Sequence[Case], allocators: Sequence[Allocator], missing: Sequence[Missing], plan: Plan) -> Head:
    machine = Machine.here()
    machine.facts.pop("variables", None)
    return Head(
        created=results.now(),
        commit=results.commit_of(libhakmem.source_tree()),
        machine=machine,
        plan=plan,
        cases=[CaseRow(name=c.name, group=c.group, about=c.about, command=generic(c, plan.quick)) for c in cases],
        allocators=[
            AllocatorRow(name=a.name, kind=a.kind, description=describe(a), digest=digest(a)) for a in allocators
        ],
        missing=list(missing),
    )


# --- one run ------------------------------------------------------------------------------------------------


def printed_numbers(output: str) -> dict[str, float]:
    """The numbers of a result line; none when there is no such line."""
    for line in output.splitlines():
        fields = dict(re.findall(r"(\w+)=([0-9.]+)(?=\s|$)", line))
        if {"ops_per_s", "seconds"} <= fields.keys():
            return {name: float(value) for name, value in fields.items()}
    return {}


def check_of(case: Case, output: str) -> str:
    """A digest of what the program computed; empty when it does not tell."""
    if case.output:
        return hashlib.sha256(output.encode()).hexdigest()[:16]
    found = re.search(r"\bcheck=([0-9a-f]+)", output)
    return found.group(1) if found else ""


def environment_of(case: Case, allocator: Allocator, places: Places, fresh: Path | None = None) -> dict[str, str]:
    """A carrier runs on the system's malloc and hands the library on to the program that is measured."""
    own = {name: places.fill(value, fresh) for name, value in case.env.items()}
    environment = {**allocator.environment(), **own}
    if case.carrier:
        environment["SUITE_PRELOAD"] = environment.pop("LD_PRELOAD", "")
    return environment


class Runner:
    """Runs one case under one allocator."""

    def __init__(self, places: Places, quick: bool) -> None:
        self.places = places
        self.quick = quick

    def run(self, case: Case, allocator: Allocator, quick: bool) -> dict[str, Any] | None:
        """The fields of a Sample that come from the run; None when the floor has no such loop.

        A LabError when it fails."""
        fresh = Path(tempfile.mkdtemp(prefix="hakmem-suite-", dir=listing.room()))
        try:
            if allocator.kind == "floor":
                command = self.places.floor_command(case, quick)
            else:
                command = self.places.command(case, quick, fresh)
            if command is None:
                return None
            timeout = QUICK_TIMEOUT_S if quick else TIMEOUT_S
            environment = environment_of(case, allocator, self.places, fresh)
            outcome = one_run.require_success(one_run.run(command, environment, timeout))
            return {**self.figures(case, outcome), "extra": self.extra(case, outcome, fresh)}
        finally:
            shutil.rmtree(fresh, ignore_errors=True)

    def bare(self, case: Case) -> int | None:
        """The peak of a run of the case's program that ends at its first request; None where it cannot be had."""
        library = self.places.build / FIRST_REQUEST
        if not library.is_file():
            return None
        with tempfile.TemporaryDirectory(prefix="hakmem-suite-", dir=listing.room()) as fresh:
            where = Path(fresh)
            command = [self.places.program(case.needs[0])] if case.carrier else self.places.command(case, True, where)
            alone = dataclasses.replace(case, carrier=False)
            environment = environment_of(alone, Allocator("first_request", "peer", library), self.places, where)
            outcome = one_run.run(command, environment, QUICK_TIMEOUT_S)
        return outcome.peak_rss_bytes if outcome.status == 0 else None

    def extra(self, case: Case, outcome: one_run.Outcome, fresh: Path) -> dict[str, float]:
        """What else is read from the run's output or the files that it has left; the suite needs nothing else."""
        return {}

    @staticmethod
    def figures(case: Case, outcome: one_run.Outcome) -> dict[str, float | int | str]:
        numbers = printed_numbers(outcome.output)
        if not numbers and case.group != listing.REAL:
            raise LabError("no result line in its output")
        if numbers and numbers["ops_per_s"] <= 0:
            raise LabError("its result line counts no operations")
        carried = case.carrier
        return {
            "time": 1 / numbers["ops_per_s"] if numbers else outcome.wall_s,
            "wall_s": numbers.get("seconds", outcome.wall_s) if carried else outcome.wall_s,
            "cpu_s": numbers["cpu_s"] if carried else outcome.cpu_s,
            "peak_rss_bytes": int(numbers["peak_rss_kb"] * 1024) if carried else outcome.peak_rss_bytes,
            "minor_faults": int(numbers["minor_faults"]) if carried else outcome.minor_faults,
            "major_faults": outcome.major_faults,
            "check": check_of(case, outcome.output),
        }


def not_loadable(case: Case, places: Places, allocators: Sequence[Allocator]) -> str | None:
    """Why the libraries could not be preloaded into the case's program, as far as its file tells."""
    name = case.needs[0] if case.carrier else case.program
    program = preload.look(places.program(name), {})
    for allocator in allocators:
        described = elf.describe(allocator.shared_object) if allocator.shared_object is not None else None
        problem = preload.obstacle(program, described) if described is not None else None
        if problem is not None:
            return problem[0]
    return None


# --- all rounds ---------------------------------------------------------------------------------------------

Known = Callable[[Results, str], bool]  # whether the results tell enough of a case


def all_known(_kept: Results, _case: str) -> bool:
    return True


class Session:
    """The suite being run.  Close it, so that the file is."""

    typed: ClassVar[str] = "./dev bench --suite"  # how to go on with it

    def __init__(
        self,
        kept: Results,
        cases: Sequence[Case],
        allocators: Sequence[Allocator],
        runner: Runner,
        path: Path,
        *,
        resumed: bool = False,
        more: int = 0,
        known: Known = all_known,
    ) -> None:
        self.results = kept
        self._more = more
        self._known = known
        self.path = path
        self._cases = list(cases)
        self._allocators = {each.name: each for each in allocators}
        self._runner = runner
        self._began = time.monotonic() - max((each.at for each in kept.samples), default=0.0)
        self._checks = {each.case: each.check for each in kept.samples if each.check and each.round > 0}
        if resumed:
            mend(path)
        self._writer = results.Writer(path, append=resumed)
        if not resumed:
            self._writer.line("head", kept.head)

    def close(self) -> None:
        self._writer.close()

    def order(self, number: int, case: str) -> list[str]:
        """The allocators of a case in a round: it depends on the seed, so that a resumed run keeps to it."""
        names = list(self._allocators)
        random.Random(f"{self.results.head.plan.seed}:{number}:{case}").shuffle(names)
        return names

    def left_of(self, number: int, cases: Sequence[Case]) -> Iterator[tuple[int, int, Case, str]]:
        """What is still to be run of a round."""
        done = {(each.case, each.allocator) for each in self.results.samples if each.round == number}
        for case in cases:
            for position, name in enumerate(self.order(number, case.name)):
                if (case.name, name) not in done and (name != FLOOR or case.floor):
                    yield number, position, case, name

    def steps(self) -> Iterator[tuple[int, int, Case, str]]:
        """All that is still to be run of the rounds in which every case takes part."""
        plan = self.results.head.plan
        for number in range(1 if plan.quick else 0, plan.rounds + 1):
            yield from self.left_of(number, self._cases)

    def further(self) -> Iterator[tuple[int, int, Case, str]]:
        """... and of those after them.  Who takes part follows from the rounds before, so that a resumed run keeps to it."""
        first = self.results.head.plan.rounds + 1
        for number in range(first, first + self._more):
            before = self.results.before(number)
            yield from self.left_of(number, [case for case in self._cases if not self._known(before, case.name)])

    def one(self, number: int, position: int, case: Case, name: str) -> None:
        if (case.name, name) in self.results.broken():
            return
        quick = self.results.head.plan.quick or number == 0
        try:
            fields = self._runner.run(case, self._allocators[name], quick)
            if fields is None:
                return
            sample = Sample(
                round=number,
                position=position,
                case=case.name,
                allocator=name,
                at=round(time.monotonic() - self._began, 3),
                **fields,
            )  # type: ignore[arg-type]
            if number > 0 and name != FLOOR:
                self._compare(sample)
        except LabError as error:
            reason = " ".join([error.message, *error.advice.splitlines()[-1:]])
            self._keep("failure", Failure(round=number, case=case.name, allocator=name, reason=reason))
            return
        self._keep("run", sample)

    def _compare(self, sample: Sample) -> None:
        """A LabError when the program computed something else than under the first allocator."""
        expected = self._checks.setdefault(sample.case, sample.check)
        if sample.check != expected:
            raise LabError(f"it computed {sample.check or 'nothing'}, not {expected or 'nothing'} as before")

    def look_at_programs(self) -> None:
        """Notes what each program holds by itself, unless that is known."""
        for case in self._cases:
            held = self._runner.bare(case) if case.name not in self.results.bare else None
            if held is not None:
                self._keep("bare", Bare(case=case.name, bytes=held))

    def _keep(self, type_: str, entry: Entry) -> None:
        self.results.add(entry)
        self._writer.line(type_, entry)

    def run(self) -> None:
        """Everything that is left, with progress on standard error; a LabError on Ctrl-C that says how to go on."""
        self.look_at_programs()
        steps = list(self.steps())
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("runs"))
        times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
        terminal, rounds, before = console.err.is_terminal, self.results.head.plan.rounds, -1
        began = time.monotonic()
        try:
            with Progress(*columns, *times, console=console.err, transient=True, disable=not terminal) as progress:
                task = progress.add_task("warm-up", total=len(steps))
                for place, (number, position, case, name) in enumerate(itertools.chain(steps, self.further())):
                    what = f"round {number} of {rounds}" if number else "warm-up"
                    if number > rounds:
                        what = f"round {number}, of what is not known well"
                    progress.update(task, description=f"{what}: {case.name} under {name}", total=max(place + 1, len(steps)))
                    if number != before and not terminal:
                        spent, rest = time.monotonic() - began, len(steps) - place
                        left = f", about {spent / place * rest / 60:.0f} min left" if place and rest > 0 else ""
                        console.remark(f"{what}{left}")
                        before = number
                    self.one(number, position, case, name)
                    progress.advance(task)
        except KeyboardInterrupt:
            raise LabError(
                f"interrupted; what was measured is kept in {self.path}",
                f"Go on with: {self.typed} --resume {self.path}",
                INTERRUPTED,
            ) from None


def mend(path: Path) -> None:
    """Cuts off a last line that was left unfinished."""
    text = path.read_bytes()
    if text and not text.endswith(b"\n"):
        path.write_bytes(text[: text.rfind(b"\n") + 1])


def require_same(kept: Head, now: Head) -> None:
    """A LabError unless a resumed run would measure what the interrupted one did."""
    then = {each.name: each.digest for each in kept.allocators}
    for each in now.allocators:
        if then.get(each.name) != each.digest:
            raise LabError(f"{each.name} is no longer the library it was", "Build what was measured, or start anew.")
    if [(c.name, c.command) for c in kept.cases] != [(c.name, c.command) for c in now.cases]:
        raise LabError("the list of benchmarks is no longer what it was", "Start a new run.")
    if then.keys() != {each.name for each in now.allocators}:
        raise LabError("an allocator of the interrupted run is missing", "Install it again, or start anew.")
