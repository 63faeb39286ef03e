"""The verdict on a fleet: reads what the plan asks for from Prometheus, refuses what cannot be compared, and decides.

GO: a target's gain reaches the threshold, its interval lies above 0, and every guard rail holds. NO-GO: all targets'
intervals end below the threshold, or a guard rail is broken. INCONCLUSIVE otherwise. Targets' intervals hold together
at all looks; so at most 2.5 % of experiments without any gain end in GO at whichever look is taken."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Annotated, Literal, Protocol

import numpy as np
from pydantic import BeforeValidator, Field

from hakmem_lab.decide.statistics import Interval
from hakmem_lab.decide.verdict import Word, judge
from hakmem_lab.fleet import checks, inference, metrics
from hakmem_lab.fleet.inference import Array, Estimates, Series
from hakmem_lab.fleet.metrics import Metric
from hakmem_lab.fleet.plan import Plan, in_scale, series
from hakmem_lab.fleet.prometheus import DAY_S, table
from hakmem_lab.measure.results import Model
from hakmem_lab.terminal.amounts import counted
from hakmem_lab.terminal.errors import LabError

NO_EVENTS = 3.0  # none seen in n trials: fewer than 3 / n, with 95 %
# A bound of a look that is too early for one is infinite, which JSON writes as null.
Low = Annotated[float, BeforeValidator(lambda value: -math.inf if value is None else value)]
High = Annotated[float, BeforeValidator(lambda value: math.inf if value is None else value)]


class Source(Protocol):
    """Where values come from: prometheus.Prometheus, or a simulated fleet."""

    def daily(self, query: str, host_label: str, first_day: int, days: int) -> dict[str, Array]: ...


class Row(Model):
    """One metric: HAKMEM's group against the other."""

    metric: str
    role: Literal["target", "guard"]
    scale: Literal["ratio", "difference"]
    gain: float = Field(description="above 0 is better, in %; of differences, events per host and day")
    low: Low
    high: High
    p: float = Field(description="of no effect at all, at this look alone")
    word: str = Field(description="GO, NO-GO or INCONCLUSIVE; of a guard rail holds, broken or open")
    reason: str
    by_look: list[tuple[float, Low, High]] = Field(description="gain, low and high at each look so far")


class FleetVerdict(Model):
    """The result of `hakmem fleet verdict`."""

    kind: Literal["hakmem-fleet-verdict"] = "hakmem-fleet-verdict"
    verdict: Literal["GO", "NO-GO", "INCONCLUSIVE", "REFUSED"]
    reason: str
    refusals: list[str] = Field(default_factory=list)
    rows: list[Row] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)
    day: int
    days: int
    hosts: int
    treated: int
    confidence: float = inference.CONFIDENCE


class Data:
    """Everything read for one verdict: by metric, days before and after the start."""

    def __init__(self, plan: Plan, source: Source, day: int) -> None:
        self.plan, self.day = plan, day
        self.names = [each.name for each in plan.hosts]
        self.treated = np.array([each.arm == "hakmem" for each in plan.hosts], dtype=bool)
        self._source = source
        expected = DAY_S / metrics.seconds(plan.step)
        seen = self._read(metrics.SEEN, plan.history_days)
        self.seen = np.nan_to_num(seen) / expected
        self.served = self._read(metrics.SERVED, 0)
        whole = np.where(self.seen >= checks.SEEN, 1.0, math.nan)
        self.values = {each.name: self._read(each.query, plan.history_days) * whole for each in plan.metrics}

    def _read(self, query: str, history: int) -> Array:
        plan = self.plan
        asked = metrics.filled(query, plan.host_label, plan.select, plan.step)
        days = history + self.day
        rows = self._source.daily(asked, plan.host_label, plan.start - history * DAY_S, days)
        return table(rows, self.names, days)

    def before(self, metric: Metric) -> Array:
        return self.values[metric.name][:, : self.plan.history_days]

    def after(self, metric: Metric) -> Array:
        return self.values[metric.name][:, self.plan.history_days :]


def complete_days(plan: Plan, now: float) -> int:
    """Whole days since the start, of those planned; a LabError before the first has passed."""
    day = int((now - plan.start) // DAY_S)
    if day < 1:
        begins = time.strftime("%Y-%m-%d %H:%M", time.gmtime(plan.start + DAY_S))
        raise LabError("the first day of the experiment has not passed", f"Its first look is on {begins} UTC.")
    return min(day, plan.days)


def decide(plan: Plan, source: Source, now: float) -> FleetVerdict:
    """Reads and decides. An end-only plan is not looked at before its end."""
    day = complete_days(plan, now)
    if plan.looks == "end" and day < plan.days:
        raise LabError(
            f"the plan has one look, after {plan.days} days; day {day} has passed", "Plan with --looks daily."
        )
    return judged(Data(plan, source, day))


def judged(data: Data) -> FleetVerdict:
    plan, day, treated = data.plan, data.day, data.treated
    refusals, notes = [], list[str]()
    first, there = checks.missing(plan, data.seen[:, plan.history_days :], treated)
    restarts = next((each for each in plan.metrics if each.name == "restarts"), None)
    refusals += [checks.changed(plan), first, checks.arms(plan, data.served, treated, there)]
    if restarts is not None:
        refusals.append(checks.one_side(data.after(restarts)[there], treated[there]))
    used, keep = _usable(data, there, notes, refusals)
    design = plan.design().kept(keep)
    usable = design.usable()
    if keep.any() and usable.any():
        lost = int((~usable).sum())
        if lost:
            notes.append(f"{counted(lost, 'host')} left out, whose block has lost one of its sides")
        keep[np.flatnonzero(keep)[~usable]] = False
        design = design.kept(usable)
        refusals.append(checks.differed_before(design, _levels(data, used, keep), plan.seed))
    elif not any(refusals):
        refusals.append("no host has data of all metrics before and after the start")
    found = [each for each in refusals if each]
    made = FleetVerdict(
        verdict="REFUSED",
        reason=found[0] if found else "",
        refusals=found,
        notes=notes,
        day=day,
        days=plan.days,
        hosts=int(keep.sum()),
        treated=int(treated[keep].sum()),
    )
    if not found:
        made.rows = _rows(data, used, design, keep)
        made.verdict, made.reason = overall(made.rows)
    return made


def _usable(
    data: Data, there: checks.Flags, notes: list[str], refusals: list[str | None]
) -> tuple[list[Metric], checks.Flags]:
    """The metrics that have data, and the hosts that have all of them."""
    used, keep = [], there.copy()
    for metric in data.plan.metrics:
        before = in_scale(metric, inference.mean_of_days(data.before(metric)))
        after = in_scale(metric, inference.mean_of_days(data.after(metric)))
        has = np.isfinite(before) & np.isfinite(after)
        share = float(has[there].mean()) if there.any() else 0.0
        if share >= 1 - checks.MISSING:
            used.append(metric)
            keep &= has
            continue
        zero = bool((data.after(metric) == 0).any())
        nothing = zero and not np.nan_to_num(data.after(metric)).any()
        if metric in metrics.METRICS and metric.role == "guard" and (nothing or not (zero or share)):
            what = f"{metric.name} is 0 on every host" if nothing else f"no data of {metric.name}"
            notes.append(f"{what}: not judged")
        else:
            lacking = "only zeros, or no data," if zero else "no data"
            refusals.append(f"{100 * (1 - share):.0f} % of the hosts have {lacking} of {metric.name}")
    return used, keep


def _levels(data: Data, used: Sequence[Metric], keep: checks.Flags) -> dict[str, Array]:
    """Each metric's level before the start, and its change from the first two thirds of that time to the last: a group
    that was switched on too early shows in the change long before it shows in the level."""
    found = {}
    for metric in used:
        before = data.before(metric)[keep]
        late = -max(1, before.shape[1] // 3)
        first, last = (in_scale(metric, inference.mean_of_days(part)) for part in (before[:, :late], before[:, late:]))
        change = last - first
        found[metric.name] = in_scale(metric, inference.mean_of_days(before))
        found[f"{metric.name}, its change"] = np.where(np.isfinite(change), change, 0.0)
    return found


def _rows(data: Data, used: Sequence[Metric], design: inference.Design, keep: checks.Flags) -> list[Row]:
    plan = data.plan
    table_ = [series(each, data.before(each)[keep], data.after(each)[keep], plan.looks) for each in used]
    return rows_of(plan, used, table_, design)


def rows_of(plan: Plan, used: Sequence[Metric], found: Sequence[Series], design: inference.Design) -> list[Row]:
    """Estimates and words of all metrics. Targets' bounds hold together; a guard rail that has to hold needs no such
    correction, since all of them must; one that is broken does."""
    estimates = inference.estimate(design, found, plan.seed)
    targets = [i for i, each in enumerate(used) if each.role == "target"]
    guards = [i for i, each in enumerate(used) if each.role == "guard"]
    of_targets = estimates.bounds(targets, plan.planned_looks)
    of_guards = estimates.bounds(guards, plan.planned_looks)
    rows = []
    for i, metric in enumerate(used):
        if metric.role == "target":
            rows.append(_target(plan, metric, estimates, i, of_targets))
        else:
            own = estimates.bounds([i], plan.planned_looks)
            rows.append(_guard(plan, metric, estimates, i, own, of_guards, found[i], design))
    return rows


def _gains(metric: Metric, estimates: Estimates, i: int, bounds: Array) -> list[tuple[float, float, float]]:
    """Gain, low and high at each look, above 0 if better."""
    sign = -1.0 if metric.less_is_better else 1.0
    middle = sign * estimates.effect[i] + 0.0  # no -0
    with np.errstate(invalid="ignore"):
        width = np.where(estimates.error[i] == 0.0, 0.0, bounds * estimates.error[i])
    if metric.scale == "difference":
        return [(float(m), float(m - w), float(m + w)) for m, w in zip(middle, width, strict=True)]

    def percent(value: float) -> float:
        # A gain of a metric of which less is better is the share that is saved.
        log = min(max(value, -700.0), 700.0)
        found = -100.0 * math.expm1(-log) if metric.less_is_better else 100.0 * math.expm1(log)
        return found if math.isfinite(value) else math.copysign(math.inf, value)

    return [(percent(m), percent(m - w), percent(m + w)) for m, w in zip(middle, width, strict=True)]


def _target(plan: Plan, metric: Metric, estimates: Estimates, i: int, bounds: Array) -> Row:
    looks = _gains(metric, estimates, i, bounds)
    gain, low, high = looks[-1]
    word, reason = judge(Interval(gain, low, high, inference.CONFIDENCE), plan.threshold)
    return _row(metric, looks, float(estimates.p[i, -1]), word, reason)


def _guard(
    plan: Plan,
    metric: Metric,
    estimates: Estimates,
    i: int,
    own: Array,
    joint: Array,
    found: Series,
    design: inference.Design,
) -> Row:
    looks = _gains(metric, estimates, i, own)
    gain, low, high = looks[-1]
    if metric.scale == "difference":
        # Hosts without events, or all with as many, do not make the interval a point.
        fewest = min(int(design.treated.sum()), int((~design.treated).sum()))
        days = found.after.shape[1] if plan.looks == "daily" else plan.days
        least = NO_EVENTS / (fewest * days)
        low, high = min(low, gain - least), max(high, gain + least)
        looks[-1] = (gain, low, high)
    unit = " %" if metric.scale == "ratio" else " per host and day"
    sure = _gains(metric, estimates, i, joint)[-1][2]
    if gain <= -metric.margin and sure < 0:
        word, reason = "broken", f"worse by {-gain:.3g}{unit}, more than the tolerated {metric.margin:g}{unit}"
    elif low > -metric.margin:
        word, reason = "holds", f"not worse by more than {metric.margin:g}{unit}"
    else:
        word, reason = "open", f"harm of {metric.margin:g}{unit} cannot be excluded"
    return _row(metric, looks, float(estimates.p[i, -1]), word, reason)


def _row(metric: Metric, looks: list[tuple[float, float, float]], p: float, word: str, reason: str) -> Row:
    gain, low, high = looks[-1]
    return Row(
        metric=metric.name,
        role=metric.role,
        scale=metric.scale,
        gain=gain,
        low=low,
        high=high,
        p=p,
        word=word,
        reason=reason,
        by_look=looks,
    )


def overall(rows: Sequence[Row]) -> tuple[Word, str]:
    """The verdict from all rows."""
    targets = [each for each in rows if each.role == "target"]
    broken = [each for each in rows if each.word == "broken"]
    unsure = [each for each in rows if each.word == "open"]
    won = [each for each in targets if each.word == "GO"]
    if broken:
        return "NO-GO", f"{broken[0].metric}: {broken[0].reason}"
    if won and not unsure:
        return "GO", f"{won[0].metric}: {won[0].reason}; every guard rail holds"
    if targets and all(each.word == "NO-GO" for each in targets):
        return "NO-GO", f"{targets[0].metric}: {targets[0].reason}"
    if won:
        return "INCONCLUSIVE", f"{won[0].metric} gains, but {unsure[0].metric}: {unsure[0].reason}"
    return "INCONCLUSIVE", "; ".join(f"{each.metric}: {each.reason}" for each in targets if each.word == "INCONCLUSIVE")
