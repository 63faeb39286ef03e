"""The hosts' history, from which a plan is made."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hakmem_lab.fleet import metrics
from hakmem_lab.fleet.checks import MISSING
from hakmem_lab.fleet.inference import Array, mean_of_days
from hakmem_lab.fleet.metrics import Metric
from hakmem_lab.fleet.plan import in_scale
from hakmem_lab.fleet.prometheus import DAY_S, Prometheus, table
from hakmem_lab.terminal.errors import LabError

LEAST = 0.5  # the share of days that a host must have been seen


@dataclass
class History:
    hosts: list[str]
    strata: list[str]
    values: dict[str, Array]  # by metric: hosts by days
    metrics: list[Metric]
    notes: list[str] = field(default_factory=list)


def read(source: Prometheus, settings: Mapping[str, Any], wanted: Sequence[Metric], stratum: str) -> History:
    """The whole days before now or the start, whichever is earlier; hosts without half of them are left out."""
    days, label, select, step = (settings[each] for each in ("history_days", "host_label", "select", "step"))
    last = min(int(settings["start"]), int(time.time()) // DAY_S * DAY_S)
    first = last - days * DAY_S
    rows = {
        each.name: source.daily(metrics.filled(each.query, label, select, step), label, first, days) for each in wanted
    }
    names = sorted(rows[wanted[0].name])
    if not names:
        raise LabError(
            "Prometheus knows no host: no series of hakmem_process_resident_bytes in that time",
            "Does it scrape hakmem-exporter, and are --select and --host-label right?",
        )
    values = {name: table(of, names, days) for name, of in rows.items()}
    notes, used = [], []
    keep = np.isfinite(values[wanted[0].name]).mean(axis=1) >= LEAST
    for each in wanted:
        trouble = _trouble(each, values[each.name][keep])
        if trouble and each not in metrics.METRICS:
            raise LabError(trouble, "Is its query right?")
        if trouble:
            notes.append(f"{trouble}: it is no part of the plan")
            continue
        used.append(each)
    for each in used[1:]:
        keep &= np.isfinite(values[each.name]).mean(axis=1) >= LEAST
    if keep.sum() < len(names):
        notes.append(
            f"{len(names) - int(keep.sum())} of {len(names)} hosts were not seen long enough, and are left out"
        )
    kept = [name for name, is_kept in zip(names, keep, strict=True) if is_kept]
    strata = _strata(source, stratum, label, select, last, kept) if stratum else [""] * len(kept)
    return History(kept, strata, {each.name: values[each.name][keep] for each in used}, used, notes)


def _trouble(metric: Metric, values: Array) -> str:
    """Why a metric cannot be compared between the groups, or nothing."""
    has_level = np.isfinite(in_scale(metric, mean_of_days(values)))
    zero = ~has_level & np.isfinite(values).any(axis=1)
    if zero.sum() > MISSING * len(values):
        return f"{metric.name} is 0 on {int(zero.sum())} of {len(values)} hosts"
    return "" if has_level.any() else f"no host has a value of {metric.name}"


def _strata(source: Prometheus, stratum: str, label: str, select: str, at: int, hosts: Sequence[str]) -> list[str]:
    asked = metrics.filled(
        f"count by ($host, {stratum}) (hakmem_process_resident_bytes{{$select}})", label, select, "1h"
    )
    found = {
        labels.get(label, ""): labels.get(stratum, "")
        for labels, value in source.instant(asked, at)
        if not math.isnan(value)
    }
    return [found.get(host, "") for host in hosts]
