"""Carries out several cases as one experiment: every round runs every case, and each case has its own results."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from hakmem_lab.decide import baselines, exports, verdict
from hakmem_lab.decide.verdict import Comparison
from hakmem_lab.experiment import case_file
from hakmem_lab.experiment.interleaved import Session
from hakmem_lab.measure.results import Experiment, Model
from hakmem_lab.terminal import progress
from hakmem_lab.terminal.errors import INTERRUPTED, LabError


class Judged(Model):
    """The outcome of all cases, and of the comparison with a baseline, if any."""

    verdict: str
    reason: str
    remarks: list[str]
    comparisons: dict[str, Comparison]
    changes: dict[str, baselines.Change] | None


@dataclass(frozen=True)
class Part:
    """A case and its session."""

    name: str
    session: Session

    @property
    def experiment(self) -> Experiment:
        return self.session.experiment


def file_of(folder: Path, place: int, name: str) -> Path:
    """The file of a case; the number distinguishes names that become equal."""
    return folder / f"{place:02d}-{re.sub(r'[^A-Za-z0-9_.=-]+', '_', name)}.jsonl"


def run(parts: Sequence[Part]) -> None:
    """Runs all rounds; on Ctrl-C a LabError says where the results are."""
    plan = parts[0].experiment.head.plan
    each_round = sum(len(part.experiment.head.series) for part in parts)
    total = each_round * (plan.runs + plan.warmup)
    with ExitStack() as open_files:
        for part in parts:
            open_files.enter_context(part.session)
        try:
            with progress.of(total, "runs") as tell:
                for number in range(1 - plan.warmup, plan.runs + 1):
                    for part in parts:
                        _one_round(part, number, lambda _, name=part.name: tell(name))  # type: ignore[misc]
        except KeyboardInterrupt:
            folder = parts[0].session.path.parent
            raise LabError(
                f"interrupted; the runs until then are in {folder}",
                "Each file is an experiment: hakmem report shows them, hakmem ab --resume FILE goes on with one.",
                INTERRUPTED,
            ) from None


def _one_round(part: Part, number: int, tick: Callable[[str], None]) -> None:
    try:
        part.session.one_round(number, tick)
    except LabError as error:
        error.message, error.case = f"{part.name}: {error.message}", part.name
        raise


def judge(parts: Sequence[Part], baseline: baselines.Baseline | None, other_machine: bool) -> Judged:
    """Judges every case with its share of the error rate, and all together."""
    count = len(parts)
    found = {part.name: verdict.compare(part.experiment, "A", "B", count) for part in parts}
    beside = [*_busy(found), *_retried({part.name: part.experiment for part in parts})]
    if baseline is None:
        threshold = {part.name: part.experiment.head.plan.threshold for part in parts}
        worse = [name for name, each in found.items() if each.gain <= -abs(threshold[name]) and each.high < 0]
        better = [name for name, each in found.items() if each.verdict == "GO"]
        word, reason = case_file.overall([each.verdict for each in found.values()], worse, better)
        return Judged(verdict=word, reason=reason, remarks=beside, comparisons=found, changes=None)
    remarks = {said: None for part in parts for said in check(part, baseline, other_machine)}
    changes = {
        part.name: baselines.compare(part.name, baseline.cases[part.name], part.experiment, count, other_machine)
        for part in parts
    }
    against, reason = baselines.overall(list(changes.values()))
    if count == 1:
        reason = next(iter(changes.values())).reason
    told = [f"It differs from the baseline's: {said}" for said in remarks]
    told = [*baselines.gated(list(changes.values())), *told, *beside]
    return Judged(verdict=against, reason=reason, remarks=told, comparisons=found, changes=changes)


def check(part: Part, baseline: baselines.Baseline, other_machine: bool) -> list[str]:
    """The differences between the baseline and now; a LabError if the case is not in it, or cannot be compared."""
    if part.name not in baseline.cases:
        known = ", ".join(baseline.cases)
        raise LabError(f"the baseline has no case {part.name}", f"It has: {known}. Save a new one with this case.")
    return baselines.check(baseline.cases[part.name], part.experiment, other_machine)


def _busy(found: dict[str, Comparison]) -> list[str]:
    """One sentence when the machine was busy, for all cases."""
    busy = [name for name, each in found.items() if each.conditions is not None and each.conditions.busy]
    if not busy:
        return []
    first = found[busy[0]].conditions
    assert first is not None
    where = "" if len(busy) == len(found) else f" while {', '.join(busy)} ran"
    return [f"The machine was busy{where}: {', '.join(first.reasons)}"]


def _retried(made: dict[str, Experiment]) -> list[str]:
    """A phrase for each case on the runs that failed and were repeated."""
    said = {name: each.retried().rstrip(".") for name, each in made.items()}
    return [text if len(made) == 1 else f"{name}: {text}" for name, text in said.items() if text]


def title_of(experiment: Experiment, found: Comparison | baselines.Change) -> str:
    """The title of the deciding metric."""
    metric = experiment.head.metric
    return (metric.model_copy(update={"name": "cpu"}) if found.decided_by == "cpu" else metric).title


def row(case: str, experiment: Experiment, judged: Comparison, change: baselines.Change | None = None) -> exports.Row:
    """One case's verdict, or its change since the baseline."""
    each = judged if change is None else change
    return exports.Row(
        case=case,
        metric=title_of(experiment, each),
        gain=each.gain,
        low=each.low,
        high=each.high,
        confidence=each.confidence,
        rounds=judged.rounds,
        verdict=each.verdict,
        reason=each.reason,
    )


def texts(experiment: Experiment) -> dict[str, str]:
    """The configurations in the words of the command line."""
    return {each.label: each.text or "HAKMEM as it is" for each in experiment.head.series}


def report_of_one(case: str, experiment: Experiment, found: Comparison) -> exports.Report:
    """One experiment's verdict as a report for the exports."""
    sides = texts(experiment)
    title = f"{sides['B']} against {sides['A']}"
    rows = [row(case, experiment, found)]
    remarks = [*_busy({case: found}), *_retried({case: experiment})]
    return exports.Report(title, found.verdict, found.reason, rows, remarks)


def report(parts: Sequence[Part], found: Judged) -> exports.Report:
    """The outcome as a report for the exports."""
    sides = texts(parts[0].experiment)
    changes = found.changes or {}
    rows = [row(each.name, each.experiment, found.comparisons[each.name], changes.get(each.name)) for each in parts]
    title = f"{sides['B']} against {sides['A']}"
    if found.changes is not None:
        title = f"{sides['B']} against the baseline, both measured beside {sides['A']}"
    return exports.Report(title, found.verdict, found.reason, rows, found.remarks)
