"""Results kept under a name, with which later ones are compared.

A machine is not equally fast on different days, so times are not compared. Both experiments ran A beside B in each
round, and A is the same code both times (by default the C library's malloc), so B's gain over A is what can change. Its
change is the difference of two means of logarithms, with Welch's interval, since the two samples have only A in common
and may spread differently.

Both sides run today's program, so B over A does not show whether the program itself has become slower. A alone does, as
far as the machine's speed is unchanged: A's change is reported, and refused if no machine could explain it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, ValidationError

from hakmem_lab.decide import noise, statistics
from hakmem_lab.decide.verdict import BY_PROCESSOR_TIME, values_of
from hakmem_lab.measure import results
from hakmem_lab.measure.results import Experiment, Machine, Model
from hakmem_lab.terminal.amounts import counted
from hakmem_lab.terminal.errors import LabError
from hakmem_lab.terminal.files import write_whole

VERSION = 1
MEMORY_TOLERANCE = 0.05
REFUSED = "Save a baseline on this machine, or compare anyway with --other-machine."
ANEW = "save a new baseline if that is intended"
SAID = 1.1  # times the baseline's: the machine may explain it, but the user must know
TOO_FAR = 2.5  # the program or the machine is another one
Word = Literal["WORSE", "BETTER", "LEVEL", "INCONCLUSIVE", "REFUSED"]


class Baseline(Model):
    """The experiments of a baseline, by case."""

    format: Literal["hakmem-baseline"] = "hakmem-baseline"
    version: int = VERSION
    name: str
    created: datetime
    commit: str
    cases: dict[str, Experiment]


class Itself(Model):
    """A now compared with A then, as a ratio."""

    metric: str = Field(description="its title: processor time instead of wall time on a busy machine")
    times: float
    low: float
    high: float
    wall_times: float | None = Field(default=None, description="by wall time, on a busy machine")

    def is_worth_saying(self) -> bool:
        return any(max(each, 1 / each) > SAID for each in (self.times, self.wall_times) if each)

    def is_another(self) -> bool:
        """Whether it has provably changed by more than a machine could explain."""
        return max(self.times, 1 / self.times) > TOO_FAR and not self.low <= 1.0 <= self.high

    @property
    def sentence(self) -> str:
        wall = f"; {self.wall_times:.2f} times by wall time, on a busy machine" if self.wall_times else ""
        return (
            f"A's own {self.metric} is {self.times:.2f} times the baseline's ({self.low:.2f} .. {self.high:.2f}{wall})"
        )


class Change(Model):
    """B's gain over A now, compared with then."""

    case: str
    then: float = Field(description="B's gain over A in the baseline, in %")
    now: float
    gain: float = Field(description="the change, in %, above 0 if B has become better")
    low: float
    high: float
    confidence: float
    rounds_then: int
    rounds_now: int
    verdict: Word
    reason: str
    decided_by: Literal["cpu"] | None = Field(default=None, description="processor time, on a busy machine")
    itself: Itself | None = None


def path_of(name: str, folder: Path) -> Path:
    """The file of a baseline: a name is a file in the folder of results; a path with .json is used as it is."""
    if name.endswith(".json"):
        return Path(name)
    if not name or "/" in name or name.startswith("."):
        raise LabError(f"'{name}' is not the name of a baseline", "Give a word, or a path that ends with .json.")
    return folder / "baselines" / f"{name}.json"


def save(name: str, path: Path, cases: dict[str, Experiment]) -> None:
    """Saves the experiments under that name, in place of an older baseline."""
    first = next(iter(cases.values()))
    made = Baseline(name=name, created=results.now(), commit=first.head.commit, cases=cases)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, (made.model_dump_json(indent=1) + "\n").encode())
    except OSError as error:
        raise LabError(f"cannot save the baseline in {path}: {error.strerror}", "Choose another place.") from error


def load(name: str, path: Path) -> Baseline:
    """The baseline of that name; a LabError that lists the existing ones if there is none."""
    try:
        found = Baseline.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        there = sorted(each.stem for each in path.parent.glob("*.json"))
        known = f"There are: {', '.join(there)}." if there else "Make one with: hakmem ab --save NAME ... -- PROGRAM"
        raise LabError(f"there is no baseline {name} ({path})", known) from None
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(f"cannot read {path}: {error}", "Save a new baseline.") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise LabError(f"{path} is not a baseline: {where}: {first['msg']}", "Save a new one with --save.") from None
    if found.version != VERSION:
        raise LabError(f"{path} was written by another version of the lab", f"This one reads version {VERSION}.")
    return found


# --- is it the same machine, and the same question? -------------------------------------------------------------------


def differences(then: Machine, now: Machine) -> tuple[list[str], list[str]]:
    """(differences that make the figures incomparable, differences that may explain a change), as 'name: then, now'."""
    hard: list[str] = []
    soft: list[str] = []

    def note(into: list[str], name: str, one: object, other: object) -> None:
        if one != other:
            into.append(f"{name}: {one} then, {other} now")

    note(hard, "processor", then.facts.get("processor"), now.facts.get("processor"))
    note(hard, "processors", then.cpus, now.cpus)
    note(hard, "page size", then.page_bytes, now.page_bytes)
    if abs(then.memory_bytes - now.memory_bytes) > MEMORY_TOLERANCE * then.memory_bytes:
        gib = [f"{each.memory_bytes / 2**30:.1f} GiB" for each in (then, now)]
        note(hard, "memory", gib[0], gib[1])
    for name in ("kernel", "huge pages", "C library", "frequency governor", "variables"):
        note(soft, name, then.facts.get(name, "unknown"), now.facts.get(name, "unknown"))
    return hard, soft


def check(then: Experiment, now: Experiment, other_machine: bool) -> list[str]:
    """Remarks on differences between then and now; a LabError if the two cannot be compared."""
    one, other = then.head, now.head
    hard, soft = differences(one.machine, other.machine)
    if hard and not other_machine:
        raise LabError(f"the baseline is from another machine: {'; '.join(hard)}", REFUSED)
    for name, before, after in (
        ("command", one.plan.command, other.plan.command),
        ("metric", (one.metric.name, one.metric.higher_is_better), (other.metric.name, other.metric.higher_is_better)),
        ("input", one.plan.input, other.plan.input),
    ):
        if before != after:
            raise LabError(f"the {name} is not the baseline's: {before} then, {after} now", "Save a baseline of it.")
    base, again = one.find("A"), other.find("A")
    if (base.digest, base.settings, base.allocator) != (again.digest, again.settings, again.allocator):
        raise LabError(
            f"A has changed: {base.description} then, {again.description} now; both are measured against it",
            "Take an A that does not change, such as --a alloc:system, and save a new baseline.",
        )
    return [*hard, *soft]


# --- what has changed -------------------------------------------------------------------------------------------------


def judge(gain: float, low: float, high: float, threshold: float) -> tuple[Word, str]:
    """WORSE and BETTER need the threshold and an interval that excludes 0; LEVEL an interval within the threshold."""
    if gain <= -threshold and high < 0:
        return "WORSE", f"the loss reaches {threshold:g} % and its interval lies below 0"
    if gain >= threshold and low > 0:
        return "BETTER", f"the gain reaches {threshold:g} % and its interval lies above 0"
    if -threshold < low and high < threshold:
        return "LEVEL", f"the interval lies within ±{threshold:g} %"
    return "INCONCLUSIVE", f"the interval is too wide to say whether the change reaches ±{threshold:g} %"


def compare(case: str, then: Experiment, now: Experiment, comparisons: int = 1, other_machine: bool = False) -> Change:
    """The change of B's gain over A; the comparisons share the error rate.

    If the machine was busy, then or now, processor time decides what wall time cannot, as in verdict.compare.
    REFUSED if A itself has changed too much, unless the machine is another one."""
    busy = noise.look(then).busy or noise.look(now).busy
    seconds = [noise.processor_time(each) for each in (then, now)] if busy else []
    cpu = [each for each in seconds if each is not None]
    change, itself = _by_metric(case, then, now, comparisons), _itself(then, now, comparisons)
    if len(cpu) == 2:
        both = ((then, now), (cpu[0], cpu[1]))
        change = _combined(*(_by_metric(case, *each, 2 * comparisons) for each in both))
        itself = _itself(*both[1], comparisons).model_copy(update={"wall_times": itself.times})
    if itself.is_another() and not other_machine:
        change.verdict = "REFUSED"
        change.reason = f"{itself.sentence}: the program, its input or the machine is another one; {ANEW}"
    return change.model_copy(update={"itself": itself})


def _itself(then: Experiment, now: Experiment, comparisons: int) -> Itself:
    logs = [np.log(values_of(each, "A")) for each in (now, then)]
    found = statistics.difference(logs[0], logs[1], 1.0 - (1.0 - statistics.CONFIDENCE) / comparisons)
    times, low, high = (1.0 + each / 100.0 for each in (found.gain, found.low, found.high))
    metric = now.head.metric
    title = metric.title if metric.metric().printed else metric.title.partition(",")[0]  # its ratio has no unit
    return Itself(metric=title, times=times, low=low, high=high)


def _combined(wall: Change, cpu: Change) -> Change:
    """The deciding change: by processor time only if wall time cannot decide and does not contradict it."""
    agrees = wall.low <= cpu.gain <= wall.high
    if wall.verdict != "INCONCLUSIVE" or cpu.verdict == "INCONCLUSIVE" or not agrees:
        return wall
    return cpu.model_copy(update={"reason": f"{BY_PROCESSOR_TIME}: {cpu.reason}", "decided_by": "cpu"})


def _by_metric(case: str, then: Experiment, now: Experiment, comparisons: int) -> Change:
    """`compare` by the experiments' metric alone."""
    higher = now.head.metric.higher_is_better
    gains = [statistics.log_gains(values_of(each, "A"), values_of(each, "B"), higher) for each in (then, now)]
    if min(len(each) for each in gains) < 2:
        raise LabError(f"{case}: fewer than two complete rounds", "Let it run longer, or save a new baseline.")
    confidence = 1.0 - (1.0 - statistics.CONFIDENCE) / comparisons
    found = statistics.difference(gains[1], gains[0], confidence)
    threshold = abs(now.head.plan.threshold)
    word, reason = judge(found.gain, found.low, found.high, threshold)
    means = [statistics.percent(float(each.mean())) for each in gains]
    wanted = now.head.plan.runs
    if len(gains[1]) < wanted:
        word, reason = "INCONCLUSIVE", f"the plan was not carried out: {len(gains[1])} of {counted(wanted, 'round')}"
    return Change(
        case=case,
        then=means[0],
        now=means[1],
        gain=found.gain,
        low=found.low,
        high=found.high,
        confidence=confidence,
        rounds_then=len(gains[0]),
        rounds_now=len(gains[1]),
        verdict=word,
        reason=reason,
    )


def gated(changes: list[Change]) -> list[str]:
    """What the exit status depends on, and how A itself compares with the baseline."""
    said = [
        "The verdict is on the change of B's gain over A since the baseline; both sides run today's program. How much "
        f"the program itself takes is not judged while A stays within {TOO_FAR:g} times the baseline's"
    ]
    for each in changes:
        if each.itself is None or (len(changes) == 1 and each.verdict == "REFUSED"):  # its reason says it
            continue
        if each.itself.is_worth_saying():
            why = "the program, its input or the machine has changed"
            said.append(f"{'' if len(changes) == 1 else f'{each.case}: '}{each.itself.sentence}: {why}")
        elif len(changes) == 1:
            said.append(each.itself.sentence)
    return said


def overall(changes: list[Change]) -> tuple[Word, str]:
    """One verdict on all cases: the worst news first."""
    words = ("REFUSED", "WORSE", "INCONCLUSIVE", "BETTER")
    by = {word: [each.case for each in changes if each.verdict == word] for word in words}
    if by["REFUSED"]:
        return "REFUSED", f"A differs from the baseline's: {', '.join(by['REFUSED'])}"
    if by["WORSE"]:
        return "WORSE", f"worse than the baseline: {', '.join(by['WORSE'])}"
    if by["INCONCLUSIVE"]:
        return "INCONCLUSIVE", f"not decided: {', '.join(by['INCONCLUSIVE'])}"
    if by["BETTER"]:
        return "BETTER", f"better than the baseline: {', '.join(by['BETTER'])}"
    return "LEVEL", "no case has changed by the threshold"
