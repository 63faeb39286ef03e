"""The files that `hakmem report` reads, recognised by their content, not by their names."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from hakmem_lab.inspect import recording_file, snapshot_tables, snapshots
from hakmem_lab.inspect.snapshots import Snapshot
from hakmem_lab.measure import results
from hakmem_lab.measure.results import Experiment
from hakmem_lab.terminal.errors import LabError

KINDS = (
    "Give results of ab, sweep, compare or tune (.jsonl, or a record's .json), a snapshot (HAKMEM_STATS=json:FILE, "
    "'hakmem stats --json'), a recording ('hakmem watch --json', 'hakmem run --sample'), or 'bench/run.py --json'."
)


class Look(BaseModel):
    """One line of a recording."""

    model_config = ConfigDict(extra="allow")

    time: float
    snapshot: Snapshot
    seconds: float | None = None
    rates: dict[str, Any] | None = None
    anew: bool = False  # the first one of a program


class BenchRow(BaseModel):
    """One run of bench/run.py."""

    model_config = ConfigDict(extra="allow")

    round: int
    case: str
    allocator: str
    ops_per_s: float
    seconds: float
    peak_rss_kb: float
    minor_faults: float


@dataclass(frozen=True)
class Recording:
    looks: Sequence[Look]
    problem: str = ""


@dataclass(frozen=True)
class Bench:
    environment: dict[str, str]
    rows: Sequence[BenchRow]
    failures: Sequence[dict[str, Any]]


Content = Experiment | Snapshot | Recording | Bench


@dataclass(frozen=True)
class Source:
    """A file and its content."""

    path: Path
    content: Content


def read(path: Path) -> Source:
    """Reads a file of any known kind; otherwise a LabError that names the kinds."""
    if path.suffix == ".study":
        raise LabError(f"{path} is a search without a decision yet", f"Go on with: hakmem tune --resume {path}")
    try:
        text = snapshots.text_of(path)
    except OSError as error:
        raise LabError(f"cannot read {path}: {error.strerror}", KINDS) from error
    if not text.strip():
        raise LabError(f"{path} is empty: its program has not ended, or was killed", KINDS)
    try:
        return Source(path, _content(path, text))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise LabError(f"{path}: {where}: {first['msg']}", KINDS) from error


def _object(text: str) -> dict[str, Any]:
    """One JSON object; empty if the text is not one."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _content(path: Path, text: str) -> Content:
    first = _object(text.lstrip().partition("\n")[0])
    if first.get("type") == "head":
        return results.load(path)
    if first.get("type") in ("environment", "result", "failure"):
        return _bench(path, text)
    if "snapshot" in first or "problem" in first:
        return _recording(path, text)
    return _document(path, text, first or _object(text))


def _document(path: Path, text: str, whole: dict[str, Any]) -> Content:
    """A file that is one JSON object."""
    if "head" in whole and "runs" in whole:
        return results.from_document(text, str(path))
    if "classes" in whole and "version" in whole:
        return snapshots.from_text(text, str(path))
    if isinstance(whole.get("files"), dict) and "results" in whole["files"]:
        return _content_of_document(path, str(whole["files"]["results"]))
    if text.startswith(("# TYPE", "# HELP", "hakmem: ")):
        return snapshots.from_text(text, str(path))  # the error says which kind of statistics is needed
    raise LabError(f"{path}: its content is of no known kind", KINDS)


def _content_of_document(path: Path, named: str) -> Content:
    """Follows a command's --json document, which has the verdict's figures, to the file that has the runs."""
    for candidate in (path.parent / named, Path(named)):
        if candidate.is_file():
            return results.load(candidate)
    raise LabError(f"{path} names {named}, which does not exist", "Give that file; it has the runs.")


def _lines(path: Path, text: str) -> list[dict[str, Any]]:
    """The objects of a file with one per line; a last line that was cut off is ignored."""
    lines = [line for line in text.splitlines() if line.strip()]
    found = []
    for number, line in enumerate(lines, start=1):
        one = _object(line)
        if not one and number == len(lines) and number > 1:
            break
        if not one:
            raise LabError(f"{path}:{number}: not a JSON object", "Give the original file.")
        found.append(one)
    return found


def _recording(path: Path, text: str) -> Recording:
    lines = _lines(path, text)
    problems = [str(each["problem"]) for each in lines if each.get("problem")]
    looks = [Look.model_validate(each) for each in recording_file.looks(lines)]
    if not looks:
        raise LabError(
            f"{path}: {problems[0] if problems else 'it has no samples yet'}",
            "A program that runs longer, or a shorter --sample-interval, would help.",
        )
    for before, now in itertools.pairwise(looks):
        if now.rates is None and not now.anew and now.time > before.time:
            now.seconds = now.time - before.time
            now.rates = snapshot_tables.Rates(before.snapshot, now.seconds).document(now.snapshot)
    return Recording(looks, problems[0] if problems else "")


def _bench(path: Path, text: str) -> Bench:
    environment: dict[str, str] = {}
    rows, failures = [], []
    for each in _lines(path, text):
        kind = each.pop("type", "")
        if kind == "environment":
            environment = {name: str(value) for name, value in each.items()}
        elif kind == "result":
            rows.append(BenchRow.model_validate(each))
        elif kind == "failure":
            failures.append(each)
    if not rows:
        raise LabError(f"{path} has no result of a benchmark", "Let bench/run.py finish a round.")
    return Bench(environment, rows, failures)
