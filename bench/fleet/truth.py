#!/usr/bin/env python3
"""Holds the fleet's verdict against simulated fleets whose truth is known, through a real Prometheus or
VictoriaMetrics.

  truth.py rates [--fleets 1000] [--effects 0,0.5,1,2,5]    error rates, coverage, and power against the plan's promise
  truth.py large [--hosts 10000]                            time and memory of one verdict on a large fleet

Every fleet has its own hosts, noise and lot; promtool, or VictoriaMetrics' import, writes the samples of a hundred into one server, and each verdict reads its
own fleet from there, as a user's would. --memory leaves the server out: the statistics alone. --record names the file to which every
verdict is appended; the same command goes on where it was stopped."""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
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
THRESHOLD = 1.0  # %
BATCH = 100  # fleets in one server
RESIDENT = metrics.METRICS[:1]


def planned(fleet: simulated.Fleet, seed: int, wanted: tuple[metrics.Metric, ...] = RESIDENT, step: str = STEP, looks: str = "daily",
            worth: float = plans.WORTH) -> plans.Plan:
    """The fleet's plan, from its own history; what it promises is to find a gain of `worth`, in %."""
    select = f'service="{fleet.service}"'
    source = simulated.InMemory(fleet, step, select)
    history = {}
    for each in wanted:
        rows = source.daily(metrics.filled(each.query, "instance", select, step), "instance", fleet.start, HISTORY)
        history[each.name] = np.stack([rows[name] for name in fleet.names])
    settings = {"seed": seed, "host_label": "instance", "select": select, "step": step, "start": fleet.start + HISTORY * DAY_S,
                "days": fleet.kind.days - HISTORY, "history_days": HISTORY, "threshold": THRESHOLD, "looks": looks}
    return plans.make(fleet.names, fleet.types, history, wanted, settings, worth)


def switched_on(fleet: simulated.Fleet, plan: plans.Plan, effects: dict[str, float]) -> None:
    treated = np.array([each.arm == "hakmem" for each in plan.hosts])
    fleet.apply(treated, HISTORY, effects)


def log_of(gain: float) -> float:
    """The true effect on the logarithm of memory of a gain in %."""
    return math.log1p(-gain / 100)


@dataclass
class Outcome:
    """One verdict on a fleet whose gain is known."""

    hosts: int
    source: str  # an engine of real.py, or memory
    gain: float  # true, in %
    looks: str
    seed: int
    promised: float
    refused: str  # why, or empty
    found: list[tuple[float, float, float]]  # gain, low and high at each look

    @property
    def fleet(self) -> tuple[int, str, float, int]:
        return self.hosts, self.source, self.gain, self.seed


def outcome(plan: plans.Plan, data: verdict.Data, source: str, gain: float) -> Outcome:
    result = verdict.judged(data)
    found = result.rows[0].by_look if result.rows else []
    return Outcome(len(plan.hosts), source, gain, plan.looks, plan.seed, plan.power[0].power, result.reason if not found else "", found)


class Tally:
    """How verdicts on fleets with one true gain came out."""

    def __init__(self, gain: float) -> None:
        self.gain = gain
        self.count = self.refused = self.end = self.any_day = self.end_go = self.covers = self.covers_all = self.found = 0
        self.promised: list[float] = []

    def add(self, each: Outcome) -> None:
        self.count += 1
        if each.refused:
            self.refused += 1
            return
        go = [gain >= THRESHOLD and low > 0 for gain, low, _ in each.found]
        self.any_day += any(go)
        self.end_go += go[-1]
        self.covers += each.found[-1][1] <= self.gain <= each.found[-1][2]
        self.covers_all += all(low <= self.gain <= high for _, low, high in each.found)
        self.found += any(low > 0 for _, low, _ in each.found)
        self.promised.append(each.promised)

    def line(self) -> dict[str, float]:
        judged = max(self.count - self.refused, 1)
        found = {"gain": self.gain, "fleets": self.count, "refused": self.refused, "GO at the end": self.end_go / judged,
                 "GO on any day": self.any_day / judged, "covered at the end": self.covers / judged,
                 "covered on all days": self.covers_all / judged, "found": self.found / judged}
        return found | ({"promised": float(np.mean(self.promised))} if self.gain and self.promised else {})


@dataclass
class Made:
    """A fleet that is judged by a plan for each kind of look; the plans differ in nothing else."""

    fleet: simulated.Fleet
    plans: list[plans.Plan]
    gain: float


def make_fleet(seed: int, gain: float, looks: list[str], start: int, kind: simulated.Kind) -> Made:
    fleet = simulated.make(seed, start, kind, f"f{seed}")
    made = [planned(fleet, seed, looks=each, worth=gain or plans.WORTH) for each in looks]
    switched_on(fleet, made[0], {"resident memory": log_of(gain)})
    return Made(fleet, made, gain)


def judge(made: Made, source: verdict.Source, name: str) -> list[Outcome]:
    data, found = verdict.Data(made.plans[0], source, DAYS), []
    for plan in made.plans:
        data.plan = plan
        found.append(outcome(plan, data, name, made.gain))
    return found


def through_engine(batch: list[Made], engine: str) -> list[Outcome]:
    with tempfile.TemporaryDirectory(prefix="hakmem-fleet-") as name:
        real.backfill([each.fleet for each in batch], Path(name), only_resident=True, engine=engine)
        with real.serving(Path(name), engine) as url:
            source = Prometheus(url)
            return [found for each in batch for found in judge(each, source, engine)]


def recorded(record: Path) -> list[Outcome]:
    return [Outcome(**json.loads(line)) for line in record.read_text().splitlines()] if record.exists() else []


def rates(asked: argparse.Namespace) -> None:
    """Appends every verdict to the record and goes on where that ends; prints the rates of all that stands in it."""
    start = (int(time.time()) // DAY_S - HISTORY - DAYS) * DAY_S
    kind = simulated.Kind(hosts=asked.hosts or 200, days=HISTORY + DAYS, step_s=metrics.seconds(STEP))
    looks, source = asked.looks.split(","), "memory" if asked.memory else asked.engine
    for gain in map(float, asked.effects.split(",")):
        seeds = [asked.seed + 100_000 * round(10 * gain) + number for number in range(asked.fleets)]
        known = {(each.fleet, each.looks) for each in recorded(asked.record)}
        todo = [each for each in seeds if not all(((kind.hosts, source, gain, each), look) in known for look in looks)]
        for first in range(0, len(todo), BATCH):
            batch = [make_fleet(each, gain, looks, start, kind) for each in todo[first : first + BATCH]]
            if asked.memory:
                found = [of for each in batch for of in judge(each, simulated.InMemory(each.fleet, STEP, each.plans[0].select), source)]
            else:
                found = through_engine(batch, asked.engine)
            with asked.record.open("a", encoding="ascii") as file:
                file.writelines(json.dumps(asdict(each)) + "\n" for each in found if (each.fleet, each.looks) not in known)
            print(f"{gain} %: {first + len(batch)} of {len(todo)}", file=sys.stderr, flush=True)
    summary(recorded(asked.record))


def summary(outcomes: list[Outcome]) -> None:
    tallies: dict[tuple[int, str, str, float], Tally] = {}
    for each in outcomes:
        tallies.setdefault((each.hosts, each.source, each.looks, each.gain), Tally(each.gain)).add(each)
    for (hosts, source, looks, _), tally in sorted(tallies.items()):
        print(json.dumps({"hosts": hosts, "source": source, "looks": looks} | tally.line()), flush=True)


def large(hosts: int, step_s: int, engine: str) -> dict[str, float | str]:
    """`hakmem fleet verdict` on a large fleet, as a user runs it: all metrics, a sample per step."""
    start = (int(time.time()) // DAY_S - HISTORY - DAYS) * DAY_S
    fleet = simulated.make(1, start, simulated.Kind(hosts=hosts, days=HISTORY + DAYS, step_s=step_s))
    plan = planned(fleet, 1, metrics.METRICS, step=f"{step_s // 3600}h")
    switched_on(fleet, plan, {"resident memory": log_of(1.0)})
    with tempfile.TemporaryDirectory(prefix="hakmem-fleet-") as name:
        folder = Path(name)
        count = real.backfill([fleet], folder, engine=engine)
        del fleet
        (folder / "plan.json").write_text(plan.model_dump_json())
        before = children_seconds()
        with real.serving(folder, engine) as url, (folder / "verdict.json").open("w+") as file:
            began = time.monotonic()
            command = [sys.executable, "-m", "hakmem_lab", "fleet", "verdict", "--prometheus", url, "--plan", str(folder / "plan.json"), "--json"]
            _, status, used = os.wait4(subprocess.Popen(command, stdout=file).pid, 0)
            seconds = time.monotonic() - began
            file.seek(0)
            if os.waitstatus_to_exitcode(status) not in (0, 3, 4):
                sys.exit(f"no verdict: {file.read()}")
            found = verdict.FleetVerdict.model_validate_json(file.read())
    row, own = found.rows[0], used.ru_utime + used.ru_stime
    return {"hosts": hosts, "samples": count, "seconds": seconds, "processor_seconds": own,
            "processor_seconds_of_the_engine": children_seconds() - before - own, "peak_mib": used.ru_maxrss / 1024,
            "verdict": found.verdict, "gain": row.gain, "low": row.low, "high": row.high}


def children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("rates", "large"))
    parser.add_argument("--fleets", type=int, default=1000)
    parser.add_argument("--effects", default="0,0.5,1,2,5", help="true gains, in %%")
    parser.add_argument("--hosts", type=int)
    parser.add_argument("--step", type=int, default=6, help="hours between the samples of the large fleet")
    parser.add_argument("--looks", default="daily,end", help="each fleet is judged with looks on every day, with one at the end, or both")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", choices=tuple(real.NEEDED), default=real.PROMETHEUS)
    parser.add_argument("--memory", action="store_true", help="without an engine")
    parser.add_argument("--record", type=Path, default=Path("out/fleet-rates.jsonl"))
    asked = parser.parse_args()
    if not asked.memory and not real.is_here(asked.engine):
        sys.exit(f"not installed: {' and '.join(real.NEEDED[asked.engine])}")
    if asked.what == "large":
        print(json.dumps(large(asked.hosts or 10_000, asked.step * 3600, asked.engine)))
    else:
        rates(asked)


if __name__ == "__main__":
    main()
