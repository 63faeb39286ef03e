"""Results over commits: the series that they form, their order, and the commits that changed something.

A point is one experiment: B's gain over A, the mean of its rounds' logarithms.  The points of one machine, one program
and one question make a series.  A change point divides a series where the sums of its two parts differ most (CUSUM),
if that difference is larger than in 95 % of random orders of the same points; each part is then divided further
(Vostrikova's binary segmentation).  The random orders assume nothing about the noise except that the points are
exchangeable, which is why a point is an experiment and not a round."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hakmem_lab.decide import statistics, verdict
from hakmem_lab.decide.statistics import Array
from hakmem_lab.measure.results import Experiment, Model
from hakmem_lab.target import allocators
from hakmem_lab.terminal.errors import LabError

ORDERS = 1999  # random orders
ERROR = 0.05  # of each division
LEAST = 2  # points on each side of a change
FEWEST = 8  # points that a part needs to be divided: with 7, no order is rare enough


class Point(Model):
    """One experiment."""

    file: str
    commit: str
    begun: str
    gain: float
    low: float
    high: float
    verdict: str


class ChangePoint(Model):
    """The first point after a change."""

    place: int
    before: str
    after: str
    gain: float
    low: float
    high: float
    p: float


class Series(Model):
    """The points of one question in the order of the commits, and the changes between them."""

    title: str
    metric: str
    machine: str
    points: list[Point]
    levels: list[tuple[int, int, float]]  # from, to (exclusive), mean gain in %
    changes: list[ChangePoint]


@dataclass(frozen=True)
class _Measured:
    file: str
    experiment: Experiment
    mean: float  # of the logarithms


def positions(tree: Path | None) -> dict[str, int]:
    """The position of each commit in the history of a source tree, by its full name."""
    if tree is None:
        return {}
    listed = allocators.command_output(["git", "-C", str(tree), "rev-list", "--topo-order", "--reverse", "HEAD"])
    return {name: place for place, name in enumerate(listed.split())}


def place_of(commit: str, known: dict[str, int]) -> int | None:
    """The position of a commit named as by `git describe --always --dirty`; None if the history lacks it."""
    short = commit.removesuffix("-dirty").rpartition("-g")[2]
    found = [place for name, place in known.items() if short and name.startswith(short)]
    return found[0] if len(found) == 1 else None


def _question(experiment: Experiment) -> tuple[str, ...]:
    """The facts that the points of one series have in common; only B's build may differ."""
    head = experiment.head
    sides = [f"{each.allocator} {each.text}" for each in (head.find("A"), head.find("B"))]
    machine = f"{head.machine.facts.get('processor', '')} {head.machine.cpus}"
    return (shlex.join(head.plan.command), head.metric.name, str(head.plan.input), *sides, machine)


def _ordered(found: Sequence[_Measured], known: dict[str, int]) -> list[_Measured]:
    """The points in the order of the history if it has every commit, otherwise by time."""
    places = [place_of(each.experiment.head.commit, known) for each in found]
    if any(each is None for each in places):
        return sorted(found, key=lambda each: each.experiment.head.created)
    order = sorted(range(len(found)), key=lambda at: (places[at], found[at].experiment.head.created))
    return [found[at] for at in order]


def gather(experiments: Sequence[tuple[str, Experiment]], known: dict[str, int]) -> list[Series]:
    """The series of all experiments of the kind ab, the longest first; a LabError if there is none."""
    groups: dict[tuple[str, ...], list[_Measured]] = {}
    for file, experiment in experiments:
        if experiment.head.kind != "ab" or len(experiment.rounds()) < 2:
            continue
        higher = experiment.head.metric.higher_is_better
        values = (verdict.values_of(experiment, label) for label in ("A", "B"))
        mean = float(np.mean(statistics.log_gains(next(values), next(values), higher)))
        groups.setdefault(_question(experiment), []).append(_Measured(file, experiment, mean))
    if not groups:
        raise LabError("there is no result of hakmem ab among these", "Give the folder of results; --save saves some.")
    found = [_series(_ordered(each, known)) for each in groups.values()]
    return sorted(found, key=lambda each: -len(each.points))


def _series(found: Sequence[_Measured]) -> Series:
    head = found[0].experiment.head
    values = np.array([each.mean for each in found])
    commits = [each.experiment.head.commit or "unknown" for each in found]
    divisions = divide(values)
    borders = [0, *(place for place, _ in divisions), len(values)]
    levels = [
        (start, end, statistics.percent(float(values[start:end].mean()))) for start, end in itertools.pairwise(borders)
    ]
    changes = []
    for number, (place, p) in enumerate(divisions):
        before, after = values[borders[number] : place], values[place : borders[number + 2]]
        size = statistics.difference(after, before)
        changes.append(
            ChangePoint(
                place=place,
                before=commits[place - 1],
                after=commits[place],
                gain=size.gain,
                low=size.low,
                high=size.high,
                p=p,
            )
        )
    sides = [head.find(label).text or "HAKMEM as it is" for label in ("B", "A")]
    return Series(
        title=f"{shlex.join(head.plan.command)}: {sides[0]} against {sides[1]}",
        metric=head.metric.title,
        machine=head.machine.facts.get("processor", "unknown"),
        points=[_point(each) for each in found],
        levels=levels,
        changes=changes,
    )


def _point(measured: _Measured) -> Point:
    found = verdict.compare(measured.experiment, "A", "B")
    shown = found.by_wall_time or found  # a series is of one metric
    return Point(
        file=measured.file,
        commit=measured.experiment.head.commit or "unknown",
        begun=measured.experiment.head.created.strftime("%Y-%m-%d %H:%M"),
        gain=shown.gain,
        low=shown.low,
        high=shown.high,
        verdict=found.verdict,
    )


def _cusum(rows: Array) -> Array:
    """For each row and each division of it: the distance of its two sides, weighted by their sizes."""
    count = rows.shape[-1]
    sizes = np.arange(LEAST, count - LEAST + 1)
    sums = np.cumsum(rows - rows.mean(axis=-1, keepdims=True), axis=-1)[..., sizes - 1]
    apart: Array = np.abs(sums) * np.sqrt(count / (sizes * (count - sizes)))
    return apart


def divide(values: Array, start: int = 0) -> list[tuple[int, float]]:
    """The positions of changes with their p-values, in order.  The random orders are the same in every run."""
    if len(values) < FEWEST or np.ptp(values) <= 1e-12:
        return []
    apart = _cusum(values)
    orders = np.random.default_rng(19540101).permuted(np.tile(values, (ORDERS, 1)), axis=-1)
    rarer = int(np.sum(_cusum(orders).max(axis=-1) >= apart.max() * (1 - 1e-9)))
    p = (1 + rarer) / (1 + ORDERS)
    if p > ERROR:
        return []
    place = int(np.argmax(apart)) + LEAST
    rest = [*divide(values[:place], start), (start + place, p), *divide(values[place:], start + place)]
    return sorted(rest)
