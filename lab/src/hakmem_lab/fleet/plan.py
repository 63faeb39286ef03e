"""Who gets HAKMEM: blocks of hosts that resemble one another, a lot within each, and what the experiment can find."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field

from hakmem_lab.fleet import inference
from hakmem_lab.fleet.inference import Array, Design, Numbers, Series
from hakmem_lab.fleet.metrics import Metric
from hakmem_lab.measure.results import Model
from hakmem_lab.terminal.errors import LabError

BLOCK = 4  # hosts; a pair is lost with one of its two
FEWEST_HOSTS = 8
WORTH = 1.0  # the effect, in %, about which the plan says what finds it
POWER = 0.8
DRAWS = 4000
MOST_HOSTS_NEEDED = 10_000_000

Arm = Literal["hakmem", "control"]


class Host(Model):
    """One host's place in the experiment."""

    name: str
    block: int
    arm: Arm


class Power(Model):
    """What the plan can find of one metric, by the hosts' own history."""

    metric: str
    worth: float = Field(description="of a target 1 %; of a guard rail its margin, that is, to see that it holds")
    error: float = Field(description="standard error of the effect at the end, in % or per host and day")
    power: float = Field(description="probability to find an effect of `worth`, at some look")
    smallest: float = Field(description="the effect that is found with a probability of 80 %, in % or per host and day")
    hosts_needed: int | None = Field(description="for an effect of `worth`, with these days; None: too many")
    days_needed: int | None = Field(
        description="for an effect of `worth`, with these hosts; None: these days do not suffice"
    )


class Plan(Model):
    """The file of `hakmem fleet plan`."""

    kind: Literal["hakmem-fleet-plan"] = "hakmem-fleet-plan"
    version: int = 1
    seed: int
    host_label: str
    select: str
    step: str
    start: int = Field(description="Unix time of the midnight (UTC) from which both groups run as planned")
    days: int
    history_days: int
    threshold: float = Field(description="the gain of a target, in %, from which on HAKMEM is worth having")
    looks: Literal["daily", "end"] = "daily"
    metrics: list[Metric]
    hosts: list[Host]
    power: list[Power] = Field(default_factory=list, description="of metrics with something to measure")
    lots: str = Field(description="a hash of blocks and seed, by which a changed assignment is noticed")

    @property
    def planned_looks(self) -> int:
        return self.days if self.looks == "daily" else 1

    def design(self) -> Design:
        return Design.of([each.block for each in self.hosts], [each.arm == "hakmem" for each in self.hosts])


def blocks(features: Array, strata: Sequence[str], size: int = BLOCK) -> Numbers:
    """The hosts' block numbers. Hosts of one stratum are halved along the feature in which they differ most, until at
    most `size` are left: a k-d tree, whose leaves are blocks of hosts close to one another in all features."""
    found = np.zeros(len(features), dtype=np.int64)
    spread = np.std(features, axis=0)
    scaled = features / np.where(spread > 0, spread, 1.0)
    count = 0
    for stratum in sorted(set(strata)):
        waiting = [np.flatnonzero(np.asarray(strata) == stratum)]
        while waiting:
            hosts = waiting.pop()
            if len(hosts) < 2 * size:
                found[hosts] = count
                count += 1
                continue
            widest = int(np.argmax(np.ptp(scaled[hosts], axis=0)))
            order = hosts[np.argsort(scaled[hosts, widest], kind="stable")]
            half = max(size, len(hosts) // 2 // size * size)
            waiting += [order[half:], order[:half]]
    return found


def lots(block: Numbers, seed: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Half of each block, by lot; of an odd block, one more or less by lot too."""
    random = np.random.default_rng(seed)
    treated = np.zeros(len(block), dtype=bool)
    for number in range(int(block.max()) + 1 if len(block) else 0):
        hosts = np.flatnonzero(block == number)
        chosen = (len(hosts) + int(random.integers(2))) // 2
        treated[random.permutation(hosts)[:chosen]] = True
    return treated


def fingerprint(hosts: Sequence[Host], seed: int) -> str:
    text = "\n".join(f"{each.name} {each.block} {each.arm}" for each in hosts)
    return hashlib.sha256(f"{seed}\n{text}".encode()).hexdigest()[:16]


def in_scale(metric: Metric, values: Array) -> Array:
    """Values in which an effect is a difference: logarithms of a ratio metric, NaN for what has none."""
    if metric.scale == "difference":
        return values
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.log(values)
    return np.where(np.isfinite(found), found, math.nan)


def series(metric: Metric, before: Array, after: Array, looks: Literal["daily", "end"]) -> Series:
    """A metric of complete hosts as the inference wants it: means over days 1 to d, and over the time before."""
    means = inference.cumulative_means(after)
    if looks == "end":
        means = means[:, -1:]
    # A ratio has no value until the first event: those looks take that one's.
    seen = inference.filled_back(in_scale(metric, means))
    return Series(seen, in_scale(metric, inference.mean_of_days(before)))


def make(
    hosts: Sequence[str],
    strata: Sequence[str],
    history: Mapping[str, Array],
    metrics: Sequence[Metric],
    settings: Mapping[str, Any],
    worth: float = WORTH,
) -> Plan:
    """A plan from each metric's history (hosts by days), by name. settings: the fields of Plan that the user chose."""
    if len(hosts) < FEWEST_HOSTS:
        raise LabError(
            f"{len(hosts)} hosts have a history; an experiment needs {FEWEST_HOSTS}",
            "Is --select right, and does the exporter run on all of them?",
        )
    features = features_of(history, metrics)
    block = blocks(features, strata)
    seed = int(settings["seed"])
    treated = lots(block, seed)
    placed = [
        Host(name=name, block=int(number), arm="hakmem" if of else "control")
        for name, number, of in zip(hosts, block, treated, strict=True)
    ]
    plan = Plan(**settings, metrics=list(metrics), hosts=placed, lots=fingerprint(placed, seed))
    found = (power_of(plan, each, history, metrics, strata, worth) for each in metrics)
    plan.power = [each for each in found if each is not None]
    return plan


def features_of(history: Mapping[str, Array], metrics: Sequence[Metric]) -> Array:
    """The hosts' levels before the start, by which they are put into blocks."""
    columns = []
    for metric in metrics:
        level = in_scale(metric, inference.mean_of_days(history[metric.name]))
        middle = np.nanmedian(level) if np.isfinite(level).any() else 0.0
        columns.append(np.where(np.isfinite(level), level, middle))
    return np.stack(columns, axis=1)


def power_of(
    plan: Plan,
    metric: Metric,
    history: Mapping[str, Array],
    metrics: Sequence[Metric],
    strata: Sequence[str],
    target: float = WORTH,
) -> Power | None:
    """The experiment played on the history: its last days as the days after a start that changed nothing, blocks from
    the days before them. So the error is that of hosts not seen when the blocks were made. The real experiment has more
    days on both sides; what that makes of the error, the history's own course tells. None: the metric is 0, or nearly
    always, so there is nothing to measure."""
    known = history[metric.name]
    days = min(plan.days, known.shape[1] // 2)
    earlier = {name: values[:, :-days] for name, values in history.items()}
    after, before = known[:, -days:], earlier[metric.name]
    halves = [inference.mean_of_days(half) for half in (before, after)]
    usable = np.isfinite([in_scale(metric, half) for half in halves]).all(axis=0)
    if usable.sum() < BLOCK:
        if np.isfinite(halves).all(axis=0).sum() >= BLOCK:
            return None
        raise LabError(
            f"{int(usable.sum())} hosts have values of {metric.name} in both halves of the history: too few for a plan",
            "Give fewer --history days, or wait.",
        )
    number = blocks(features_of(earlier, metrics)[usable], [strata[i] for i in np.flatnonzero(usable).tolist()])
    design = Design.of(number, lots(number, plan.seed))
    found = inference.estimate(design, [series(metric, before[usable], after[usable], "end")], plan.seed, DRAWS)
    levels = in_scale(metric, known[usable])
    rehearsed = inference.course(levels, known.shape[1] - days, days)
    planned = inference.course(levels, plan.history_days, plan.days)
    if plan.looks == "end":
        planned = planned[-1:, -1:]
    if found.error[0, -1] <= 0 or not np.isfinite(planned).all():
        return None
    found = inference.prolonged(found, rehearsed, planned, plan.seed)
    bounds = found.bounds([0], plan.planned_looks)
    least = metric.margin if metric.role == "guard" else target
    worth = math.log1p(least / 100) if metric.scale == "ratio" else least

    def chance(effect: float, shrink: float = 1.0) -> float:
        return inference.power(found, 0, bounds, effect, shrink)

    error = max(float(found.error[0, -1]), 1e-9)
    smallest = bisect(lambda effect: chance(effect) >= POWER, error * 1e-3, error * 100)
    shrink = bisect(lambda each: chance(worth, 1 / each) >= POWER, 1e-3, 1e4)
    needed = max(math.ceil(int(usable.sum()) * shrink**2), FEWEST_HOSTS)
    looks = {plan.days: 1} if plan.looks == "end" else {day: day for day in range(1, plan.days + 1)}
    looked = [day for day, count in looks.items() if inference.power(found, 0, bounds[:count], worth) >= POWER]
    return Power(
        metric=metric.name,
        worth=least,
        error=_in_percent(metric, error),
        power=chance(worth),
        smallest=_in_percent(metric, smallest),
        hosts_needed=needed if needed <= MOST_HOSTS_NEEDED else None,
        days_needed=looked[0] if looked else None,
    )


def _in_percent(metric: Metric, value: float) -> float:
    return 100 * math.expm1(min(value, 700.0)) if metric.scale == "ratio" else value


def bisect(holds: Any, low: float, high: float) -> float:
    """The smallest value for which a rising condition holds, to 1 %."""
    while high / low > 1.01:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


# --- what the operator applies ----------------------------------------------------------------------------------------


def as_labels(plan: Plan) -> str:
    """A file for Prometheus' file_sd or for a relabelling: one line per host."""
    return "".join(f"{each.name} hakmem_arm={each.arm} hakmem_block={each.block}\n" for each in plan.hosts)


def as_ansible(plan: Plan) -> str:
    """An inventory with a group for each arm; the library is installed on both, and switched on for one."""
    lines = []
    for arm in ("hakmem", "control"):
        members = [f"{bare(each.name)} hakmem_block={each.block}" for each in plan.hosts if each.arm == arm]
        lines += [f"[{arm}]", *members, ""]
    lines += ["[fleet:children]", "hakmem", "control", "", "[hakmem:vars]", "hakmem_preload=true", "", "[control:vars]"]
    return "\n".join([*lines, "hakmem_preload=false", ""])


def as_kubernetes(plan: Plan) -> str:
    """A command per arm and thousand nodes."""
    lines = []
    for arm in ("hakmem", "control"):
        names = [bare(each.name) for each in plan.hosts if each.arm == arm]
        for first in range(0, len(names), 1000):
            lines.append(f"kubectl label --overwrite node {' '.join(names[first : first + 1000])} hakmem.io/arm={arm}")
    return "\n".join(lines) + "\n"


def bare(instance: str) -> str:
    """A host's name without the exporter's port."""
    name, colon, port = instance.rpartition(":")
    return name if colon and port.isdigit() else instance


FORMATS = {"labels": as_labels, "ansible": as_ansible, "kubernetes": as_kubernetes}
