"""The results of an experiment: versioned models, and the file that keeps them.

The file has one JSON object per line: the head first, then every run as it ends, so that an interrupted experiment
loses nothing and can be resumed.  Everything derived from the runs (intervals, verdicts) is computed again when a file
is read.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import sys
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any, ClassVar, Literal

import psutil
from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, ValidationError, model_serializer

from hakmem_lab import __version__
from hakmem_lab.measure.one_run import Metric, Outcome
from hakmem_lab.target import allocators, libhakmem
from hakmem_lab.target.configuration import Configuration
from hakmem_lab.terminal import console, extras
from hakmem_lab.terminal.errors import LabError

VERSION = 1
RETRIES_LISTED = 5
NOISE = "A again"  # the label of the first configuration's second series, which checks the noise

Kind = Literal["ab", "sweep", "compare", "tune"]


class Model(BaseModel):
    """Refuses unknown fields, so that a newer file is never half understood.

    Reading and writing use a field's alias: the name in the files stays when the name in the code changes."""

    model_config = ConfigDict(extra="forbid")
    LATER: ClassVar[tuple[str, ...]] = ()  # fields that older files lack; not written if they are None

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        found: dict[str, Any] = handler(self)
        return {name: value for name, value in found.items() if value is not None or name not in self.LATER}

    def model_dump(self, **how: Any) -> dict[str, Any]:
        return super().model_dump(**{"by_alias": True, **how})

    def model_dump_json(self, **how: Any) -> str:
        return super().model_dump_json(**{"by_alias": True, **how})


class Machine(Model):
    """The machine of the experiment: facts that a reader needs to judge the figures."""

    facts: dict[str, str]
    cpus: int = Field(description="processors the lab may use")
    memory_bytes: int
    page_bytes: int
    versions: dict[str, str] = Field(description="of Python and of the libraries that compute")

    @classmethod
    def here(cls) -> Machine:
        """This machine, now."""
        facts = allocators.environment_facts()
        governor = allocators.first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
        facts["C library"] = os.confstr("CS_GNU_LIBC_VERSION") or "unknown"
        if governor != "unknown":
            facts["frequency governor"] = governor
        names = [name for name in ("numpy", "scipy", "plotly", "pydantic") if extras.has(name)]
        versions = {name: importlib.metadata.version(name) for name in names}
        return cls(
            facts=facts,
            cpus=len(os.sched_getaffinity(0)),
            memory_bytes=psutil.virtual_memory().total,
            page_bytes=os.sysconf("SC_PAGESIZE"),
            versions={"python": sys.version.split()[0], "hakmem-lab": __version__, **versions},
        )


def shown(path: Path) -> str:
    """A path for the results: relative to the source tree if it lies there."""
    tree = libhakmem.source_tree()
    return str(path.relative_to(tree)) if tree is not None and path.is_relative_to(tree) else str(path)


@functools.cache
def digest(path: Path) -> str:
    """Distinguishes builds of a library."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def describe(allocator: allocators.Allocator) -> str:
    """A description of the allocator's code for readers."""
    if allocator.kind == "ours" and allocator.shared_object is not None:
        return f"{shown(allocator.shared_object)}, build {digest(allocator.shared_object)}"
    return allocators.describe(allocator)


class Series(Model):
    """One configuration of an experiment."""

    label: str
    text: str = Field(description="as given, parsed again on a resume")
    allocator: str
    shared_object: str | None = Field(
        alias="library", description="its file, relative to the source tree if it lies there"
    )
    digest: str = Field(description="the beginning of the file's SHA-256, which identifies the build")
    description: str
    settings: dict[str, str]
    point: dict[str, str] = Field(default_factory=dict, description="in a sweep: the values of the swept options")

    @classmethod
    def of(cls, configuration: Configuration, point: dict[str, str] | None = None) -> Series:
        allocator = configuration.allocator
        return cls(
            label=configuration.label,
            text=configuration.text,
            allocator=allocator.name,
            library=shown(allocator.shared_object) if allocator.shared_object else None,
            digest=digest(allocator.shared_object) if allocator.shared_object else "",
            description=describe(allocator),
            settings=configuration.settings,
            point=point or {},
        )


class MetricModel(Model):
    name: str
    higher_is_better: bool
    unit: str

    @classmethod
    def of(cls, metric: Metric) -> MetricModel:
        return cls(name=metric.name, higher_is_better=metric.higher_is_better, unit=metric.unit)

    def metric(self) -> Metric:
        return Metric(self.name, self.higher_is_better)

    @property
    def title(self) -> str:
        """A title for a table's head or a chart's axis."""
        names = {
            "time": "wall time, s",
            "cpu": "CPU time, s",
            "rss": "peak memory, MiB",
            "gib_seconds": "memory over time, GiB·s",
            "instructions": "instructions",
            "mix": "time and memory, √(s·MiB)",
        }
        return names.get(self.name, self.name)


class Plan(Model):
    """The decisions before the first run."""

    LATER = ("prepare", "cleanup", "input", "client", "ready", "latency", "retries", "anyway")

    command: list[str] = Field(description="the program that is measured and its arguments")
    typed: str = Field(description="the lab's own command line")
    runs: int = Field(ge=1, description="rounds; with until_decided, those before the first look")
    warmup: int = Field(default=1, ge=0, description="rounds that are not counted")
    seed: int = Field(description="of the order within the rounds")
    threshold: float = Field(default=1.0, description="gain in % that is worth having")
    prediction: tuple[float, float] | None = Field(default=None, description="expected gain in %, from..to")
    max_runs: int | None = Field(default=None, description="bound of rounds; set means: until decided")
    noise_check: bool = False
    timeout_s: float | None = None
    prepare: str | None = Field(default=None, description="a shell command before each run, not measured")
    cleanup: str | None = Field(default=None, description="a shell command after each run, not measured")
    input: str | None = Field(default=None, description="the file that is the program's input")
    client: str | None = Field(default=None, description="the program is a server; this shell command is its client")
    ready: str | None = Field(default=None, description="how the server shows that it is ready")
    latency: str | None = Field(
        default=None, description="a regular expression for the latencies that the client prints"
    )
    retries: int | None = Field(default=None, description="how many times a failed run is repeated")
    anyway: bool | None = Field(default=None, description="measured whether or not the allocators serve the program")


class MachineLoad(Model):
    """The load on the machine during a run."""

    others: float = Field(description="processors that other programs used, on average")
    stolen: float = Field(description="processors that the host took from this machine, on average")
    waiting: float | None = Field(default=None, description="share of the time in which a task waited for a processor")
    mhz: float | None = Field(default=None, description="mean clock of the processors after the run")


class Run(Model):
    """One finished run of the program; round 0 and below are warm-up."""

    LATER = ("surroundings", "quantiles", "layout_seed")

    round: int
    position: int = Field(description="its place in the round's order, from 0")
    label: str
    value: float = Field(description="of the metric")
    at: float = Field(description="seconds since the experiment began")
    wall_s: float
    cpu_user_s: float
    cpu_system_s: float
    peak_rss_bytes: int
    minor_faults: int
    major_faults: int
    switches: int
    surroundings: MachineLoad | None = None
    quantiles: dict[str, float] | None = Field(default=None, description="of a client's latencies")
    layout_seed: int | None = Field(default=None, description="HAKMEM_LAYOUT_SEED, unless the configuration sets it")

    @classmethod
    def of(cls, round_: int, position: int, label: str, at: float, value: float, outcome: Outcome) -> Run:
        return cls(
            round=round_,
            position=position,
            label=label,
            value=value,
            at=round(at, 3),
            wall_s=outcome.wall_s,
            cpu_user_s=outcome.cpu_user_s,
            cpu_system_s=outcome.cpu_system_s,
            peak_rss_bytes=outcome.peak_rss_bytes,
            minor_faults=outcome.minor_faults,
            major_faults=outcome.major_faults,
            switches=outcome.switches,
            quantiles=outcome.quantiles,
        )


class Trial(Model):
    """One setting that a search tried, in its own rounds, each paired with the default."""

    number: int
    text: str = Field(description="the configuration, as `hakmem ab` takes it")
    values: dict[str, str] = Field(description="of all searched options, including those at the default")
    state: Literal["complete", "pruned", "failed"]
    gains: list[float] = Field(description="in %, of each round over the default")
    gain: float | None = Field(description="their mean, as a ratio in %; None if no round was complete")


class Failure(Model):
    """A run that failed. Unless it was repeated, its configuration takes no further part."""

    round: int
    label: str
    problem: str
    said: str


class Head(Model):
    """The first line of a results file."""

    format: Literal["hakmem-experiment"] = "hakmem-experiment"
    version: int = VERSION
    kind: Kind
    created: datetime
    commit: str = Field(default="", description="of the source tree, when the lab runs from one")
    machine: Machine
    plan: Plan
    metric: MetricModel
    series: list[Series]

    def find(self, label: str) -> Series:
        return next(each for each in self.series if each.label == label)


class Experiment(Model):
    """The head and all measurements."""

    head: Head
    runs: list[Run] = Field(default_factory=list)
    failures: list[Failure] = Field(default_factory=list)
    trials: list[Trial] = Field(default_factory=list, description="of the search before it, in `hakmem tune`")

    @property
    def labels(self) -> list[str]:
        """The configurations in order, without the second series of the noise check."""
        return [each.label for each in self.head.series if each.label != NOISE]

    def _is_made_good(self, failure: Failure) -> bool:
        return any(run.round == failure.round and run.label == failure.label for run in self.runs)

    def broken(self) -> list[Failure]:
        """The last failure of each configuration that takes no further part."""
        return list({each.label: each for each in self.failures if not self._is_made_good(each)}.values())

    def failed(self) -> set[str]:
        return {each.label for each in self.broken()}

    def retried(self) -> str:
        """A sentence on the runs that failed and were repeated; empty if there were none."""
        found = [each for each in self.failures if self._is_made_good(each)]
        if not found:
            return ""
        labels = [each.label for each in found]
        counts = ", ".join(f"{labels.count(label)} of {label}" for label in dict.fromkeys(labels))
        listed = "; ".join(f"{each.label} in round {each.round}, {each.problem}" for each in found[:RETRIES_LISTED])
        rest = f"; and {len(found) - RETRIES_LISTED} more" if len(found) > RETRIES_LISTED else ""
        was = "was" if len(found) == 1 else "were"
        return (
            f"{len(found)} of {len(self.runs) + len(found)} runs failed and {was} repeated, {counts}: {listed}{rest}."
        )

    def rounds(self) -> list[dict[str, Run]]:
        """The complete rounds after warm-up, in order; configurations that failed are left out."""
        wanted = {each.label for each in self.head.series} - self.failed()
        found: dict[int, dict[str, Run]] = {}
        for run in self.runs:
            if run.round >= 1 and run.label in wanted:
                found.setdefault(run.round, {})[run.label] = run
        return [found[number] for number in sorted(found) if found[number].keys() == wanted]


def commit_of(tree: Path | None) -> str:
    """The abbreviated commit of a source tree; empty if unknown."""
    if tree is None:
        return ""
    return allocators.command_output(["git", "-C", str(tree), "describe", "--always", "--dirty"]).strip()


def now() -> datetime:
    return datetime.now(timezone.utc).replace(microsecond=0)


class Writer:
    """A results file that grows run by run.  An error after the head is reported once, and the experiment goes on."""

    def __init__(self, path: Path, append: bool = False) -> None:
        self.path = path
        self.problem = ""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: IO[str] = path.open("a" if append else "x", encoding="utf-8")
        except OSError as error:
            raise LabError(f"cannot write {path}: {error.strerror}", "Choose another place with --out.") from error

    def line(self, type_: str, model: Model) -> None:
        if self.problem:
            return
        try:
            self._file.write(f'{{"type": "{type_}", "data": {model.model_dump_json()}}}\n')
            self._file.flush()
        except OSError as error:
            self.problem = f"cannot write {self.path}: {error.strerror}"
            if type_ == "head":
                self.path.unlink(missing_ok=True)  # --resume could not use it
                raise LabError(self.problem, "Choose another place with --out.") from error
            console.complain(self.problem, "Later runs are not saved, but the verdict includes them.")

    def close(self) -> None:
        """Closes the file; after a write error, the rest of the last line fails once more."""
        with contextlib.suppress(OSError):
            self._file.close()


class _Line(Model):
    type: Literal["head", "run", "failure", "trial"]
    data: Head | Run | Failure | Trial


def load(path: Path) -> Experiment:
    """An experiment from its file; a last line that a crash cut off is ignored.

    A LabError if the file cannot be read, is of another kind, or of another version."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(f"cannot read {path}: {error}", "Give a .jsonl file that the lab wrote.") from error
    parsed = list(_parse(path, lines))
    if not parsed or not isinstance(parsed[0], Head):
        raise LabError(
            f"{path} does not begin with the head of an experiment", "Give a .jsonl file that the lab wrote."
        )
    return Experiment(
        head=parsed[0],
        runs=[each for each in parsed if isinstance(each, Run)],
        failures=[each for each in parsed if isinstance(each, Failure)],
        trials=[each for each in parsed if isinstance(each, Trial)],
    )


def document(experiment: Experiment) -> str:
    """An experiment as one JSON document with a run per line, so that a diff of two is readable."""
    dumped = experiment.model_dump(mode="json")
    parts = [f'"head": {json.dumps(dumped["head"], indent=1)}']
    for name in ("runs", "failures", "trials"):
        rows = ",\n".join(json.dumps(each) for each in dumped[name])
        parts.append(f'"{name}": [\n{rows}\n]' if rows else f'"{name}": []')
    return "{" + ",\n".join(parts) + "}\n"


def from_document(content: str, name: str) -> Experiment:
    """An experiment from a text that `document` wrote; a LabError if it is something else or of another version."""
    try:
        found = Experiment.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise LabError(
            f"{name} is not an experiment: {where}: {first['msg']}", "Give a file that the lab wrote."
        ) from None
    if found.head.version != VERSION:
        raise LabError(f"{name} was written by another version of the lab", f"This one reads version {VERSION}.")
    return found


def _parse(path: Path, lines: list[str]) -> Iterable[Head | Run | Failure | Trial]:
    for number, text in enumerate(lines, start=1):
        if '"version":' in text and number == 1 and f'"version":{VERSION},' not in text.replace(" ", ""):
            raise LabError(f"{path} was written by another version of the lab", f"This one reads version {VERSION}.")
        try:
            yield _Line.model_validate_json(text).data
        except ValidationError as error:
            if number == len(lines) and number > 1:
                return
            first = error.errors()[0]
            raise LabError(
                f"{path}:{number}: not a line of an experiment: {first['msg']}",
                "Give a .jsonl file that the lab wrote.",
            ) from error
