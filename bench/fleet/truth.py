#!/usr/bin/env python3
"""Holds the fleet's verdict against simulated fleets whose truth is known, through a real Prometheus.

  truth.py rates [--fleets 1000] [--effects 0,0.5,1,2,5]    error rates, coverage, and power against the plan's promise
  truth.py large [--hosts 10000]                            time and memory of one verdict on a large fleet

Every fleet has its own hosts, noise and lot; promtool writes their samples into one Prometheus, and each verdict reads its own
fleet from there, as a user's would. --memory leaves Prometheus out: the statistics alone."""

from __future__ import annotations

import argparse
import json
import math
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import real
import simulated
from hakmem_lab.fleet import metrics, verdict
from hakmem_lab.fleet import plan as plans
from hakmem_lab.fleet.prometheus import DAY_S, Prometheus

HISTORY = 14
DAYS = 14
STEP = "6h"
RESIDENT = metrics.METRICS[:1]


def planned(fleet: simulated.Fleet, seed: int, wanted: tuple[metrics.Metric, ...] = RESIDENT, step: str = STEP, looks: str = "daily",
            threshold: float = 1.0) -> plans.Plan:
    """The fleet's plan, from its own history."""
    select = f'service="{fleet.service}"'
    source = simulated.InMemory(fleet, step, select)
    history = {}
    for each in wanted:
        rows = source.daily(metrics.filled(each.query, "instance", select, step), "instance", fleet.start, HISTORY)
        history[each.name] = np.stack([rows[name] for name in fleet.names])
    settings = {"seed": seed, "host_label": "instance", "select": select, "step": step, "start": fleet.start + HISTORY * DAY_S,
                "days": fleet.kind.days - HISTORY, "history_days": HISTORY, "threshold": threshold, "looks": looks}
    return plans.make(fleet.names, fleet.types, history, wanted, settings)


def switched_on(fleet: simulated.Fleet, plan: plans.Plan, effects: dict[str, float]) -> None:
    treated = np.array([each.arm == "hakmem" for each in plan.hosts])
    fleet.apply(treated, HISTORY, effects)


def log_of(gain: float) -> float:
    """The true effect on the logarithm of memory of a gain in %."""
    return math.log1p(-gain / 100)


class Tally:
    """How verdicts on fleets with one true gain came out."""

    def __init__(self, gain: float) -> None:
        self.gain = gain
        self.count = self.refused = self.end = self.any_day = self.end_go = self.covers = self.covers_all = self.found = 0
        self.promised: list[float] = []

    def add(self, plan: plans.Plan, found: verdict.FleetVerdict) -> None:
        self.count += 1
        if found.verdict == "REFUSED":
            self.refused += 1
            return
        row = found.rows[0]
        looks = row.by_look
        go = [gain >= plan.threshold and low > 0 for gain, low, _ in looks]
        self.any_day += any(go)
        self.end_go += go[-1]
        self.covers += looks[-1][1] <= self.gain <= looks[-1][2]
        self.covers_all += all(low <= self.gain <= high for _, low, high in looks)
        self.found += any(low > 0 for _, low, _ in looks)
        if plan.power and self.gain == plans.WORTH:
            self.promised.append(plan.power[0].power)

    def line(self) -> dict[str, float]:
        judged = max(self.count - self.refused, 1)
        found = {"gain": self.gain, "fleets": self.count, "refused": self.refused, "GO at the end": self.end_go / judged,
                 "GO on any day": self.any_day / judged, "covered at the end": self.covers / judged,
                 "covered on all days": self.covers_all / judged, "found": self.found / judged}
        return found | ({"promised": float(np.mean(self.promised))} if self.promised else {})


def rates(fleets: int, effects: list[float], hosts: int, memory: bool, looks: str, seed: int) -> list[dict[str, float]]:
    now = int(time.time())
    start = (now // DAY_S - HISTORY - DAYS) * DAY_S
    kind = simulated.Kind(hosts=hosts, days=HISTORY + DAYS, step_s=metrics.seconds(STEP))
    found = []
    for gain in effects:
        made, tally = [], Tally(gain)
        for number in range(fleets):
            each = seed + 100_000 * round(10 * gain) + number
            fleet = simulated.make(each, start, kind, f"f{each}")
            plan = planned(fleet, each, looks=looks)
            switched_on(fleet, plan, {"resident memory": log_of(gain)})
            if memory:
                tally.add(plan, verdict.decide(plan, simulated.InMemory(fleet, STEP, plan.select), now))
            else:
                made.append((fleet, plan))
            if len(made) == 100 or (made and number == fleets - 1):
                through_prometheus(made, tally, now)
                made.clear()
            if number % 100 == 99:
                print(f"{number + 1} of {fleets}: {json.dumps(tally.line())}", file=sys.stderr, flush=True)
        found.append(tally.line())
        print(json.dumps(found[-1]), flush=True)
    return found


def through_prometheus(made: list[tuple[simulated.Fleet, plans.Plan]], tally: Tally, now: float) -> None:
    with tempfile.TemporaryDirectory(prefix="hakmem-fleet-") as name:
        real.backfill([fleet for fleet, _ in made], Path(name), only_resident=True)
        with real.serving(Path(name)) as url:
            source = Prometheus(url)
            for _, plan in made:
                tally.add(plan, verdict.decide(plan, source, now))


def large(hosts: int) -> dict[str, float]:
    """One verdict on a large fleet, hourly samples of all metrics."""
    now = int(time.time())
    start = (now // DAY_S - HISTORY - DAYS) * DAY_S
    fleet = simulated.make(1, start, simulated.Kind(hosts=hosts, days=HISTORY + DAYS, step_s=6 * 3600))
    plan = planned(fleet, 1, metrics.METRICS)
    switched_on(fleet, plan, {"resident memory": log_of(1.0)})
    with tempfile.TemporaryDirectory(prefix="hakmem-fleet-") as name:
        count = real.backfill([fleet], Path(name))
        del fleet
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with real.serving(Path(name)) as url:
            began = time.monotonic()
            found = verdict.decide(plan, Prometheus(url), now)
            seconds = time.monotonic() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    row = found.rows[0] if found.rows else None
    return {"hosts": hosts, "samples": count, "seconds": seconds, "peak_mib": peak / 1024, "before_mib": before / 1024,
            "gain": row.gain if row else math.nan, "low": row.low if row else math.nan, "high": row.high if row else math.nan}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("rates", "large"))
    parser.add_argument("--fleets", type=int, default=1000)
    parser.add_argument("--effects", default="0,0.5,1,2,5", help="true gains, in %%")
    parser.add_argument("--hosts", type=int)
    parser.add_argument("--looks", choices=("daily", "end"), default="daily")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--memory", action="store_true", help="without Prometheus")
    asked = parser.parse_args()
    if not asked.memory and not real.is_here():
        sys.exit("prometheus and promtool are not installed: apt-get install prometheus")
    if asked.what == "large":
        print(json.dumps(large(asked.hosts or 10_000)))
    else:
        rates(asked.fleets, [float(each) for each in asked.effects.split(",")], asked.hosts or 200, asked.memory, asked.looks, asked.seed)


if __name__ == "__main__":
    main()
