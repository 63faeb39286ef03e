"""Whether the machine was busy while an experiment ran, from the load recorded with each run.

On a busy machine wall time is a poor measure: the program waits for a processor, and other programs' work is in its
time. Processor time suffers much less. So on a busy machine an experiment by wall time is judged by processor time too;
its runs have both. Each of the two then gets half of the error rate, and processor time decides only if wall time
agrees (`combine`): a program that waits for something else shows its gain in wall time only."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np

from hakmem_lab.decide.statistics import Interval
from hakmem_lab.measure.results import Experiment, Model, Run

FULL = 0.9  # of the processors; if more are in use, programs wait for one another
OTHERS = 0.2  # processors; other programs that use fewer do not count
STOLEN = 0.05  # processors that the host took away
WAITING = 0.25  # share of the time in which something waited for a processor
CLOCK = 0.05  # spread of the clock between runs, over its median
WALL_OVER_CPU = 1.2
SWITCHES = 200  # per second of processor time
ENOUGH = 3  # runs needed to judge


class Conditions(Model):
    """The load on the machine during the runs: medians, and their meaning."""

    wall_over_cpu: float | None
    others: float | None
    stolen: float | None
    waiting: float | None
    switches: float
    clock_spread: float | None
    reasons: list[str]

    @property
    def busy(self) -> bool:
        return bool(self.reasons)

    @property
    def sentence(self) -> str:
        """That the machine was busy, with the signs; empty for a quiet one."""
        return f"The machine was busy: {', '.join(self.reasons)}." if self.busy else ""


def _middle(values: Sequence[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return float(median(known)) if known else None


def _cpu(run: Run) -> float:
    return run.cpu_user_s + run.cpu_system_s


def _spread(values: Sequence[float | None]) -> float | None:
    """The range from the first to the ninth decile, over the median."""
    known = [each for each in values if each]
    if len(known) < ENOUGH:
        return None
    low, middle, high = np.quantile(known, [0.1, 0.5, 0.9])
    return float((high - low) / middle)


def look(experiment: Experiment) -> Conditions:
    """The conditions over all counted runs."""
    runs = [run for each in experiment.rounds() for run in each.values()]
    beside = [run.surroundings for run in runs]
    cpus = experiment.head.machine.cpus
    ratio = _middle([run.wall_s / _cpu(run) for run in runs if _cpu(run) > 0])
    others = _middle([each.others if each else None for each in beside])
    own = _middle([_cpu(run) / run.wall_s for run in runs if run.wall_s > 0]) or 0.0
    found = Conditions(
        wall_over_cpu=ratio,
        others=others,
        stolen=_middle([each.stolen if each else None for each in beside]),
        waiting=_middle([each.waiting if each else None for each in beside]),
        switches=_middle([run.switches / _cpu(run) for run in runs if _cpu(run) > 0]) or 0.0,
        clock_spread=_spread([each.mhz if each else None for each in beside]),
        reasons=[],
    )
    if len(runs) >= ENOUGH:
        found.reasons = _reasons(found, own, cpus)
    return found


def _reasons(found: Conditions, own: float, cpus: int) -> list[str]:
    """Each sign of a busy machine as half a sentence.

    Wall time above processor time alone is no sign: a sleeping program has it on an idle machine too."""
    said = []
    if found.others is not None and found.others > OTHERS and found.others + own > FULL * cpus:
        said.append(f"other programs used {min(found.others, cpus):.1f} of {cpus} processors")  # ticks are coarse
    if found.stolen is not None and found.stolen > STOLEN:
        said.append(f"the host took {found.stolen:.2f} processors away (steal time)")
    slowed = found.wall_over_cpu is not None and found.wall_over_cpu > WALL_OVER_CPU
    if found.waiting is not None and found.waiting > WAITING and slowed:
        said.append(f"programs waited for a processor in {found.waiting:.0%} of the time")
    if said and slowed:
        said.append(f"wall time was {found.wall_over_cpu:.1f} times processor time")
    if said and found.switches > SWITCHES:
        said.append(f"the program was switched {found.switches:.0f} times per second of its own")
    if found.clock_spread is not None and found.clock_spread > CLOCK:
        said.append(f"the processors' clock moved by {found.clock_spread:.0%}")
    return said


def processor_time(experiment: Experiment) -> Experiment | None:
    """The same runs by processor time; None if that is meaningless (no time used, another metric)."""
    counted = [run for each in experiment.rounds() for run in each.values()]
    if experiment.head.metric.name != "time" or any(_cpu(run) <= 0 for run in counted):
        return None
    head = experiment.head.model_copy(deep=True)
    head.metric.name = "cpu"
    runs = [run.model_copy(update={"value": _cpu(run)}) for run in experiment.runs]
    return Experiment(head=head, runs=runs, failures=experiment.failures)


def agree(word: str, wall: Interval, cpu: Interval) -> bool:
    """Whether wall time is consistent with processor time's verdict: its interval contains the other's gain, and for a
    GO its own gain is one too."""
    return wall.low <= cpu.gain <= wall.high and (word != "GO" or wall.gain > 0)
