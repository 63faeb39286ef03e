"""Simulated fleets: hosts of several types and services with a daily course, drift, autocorrelated noise, heavy tails, restarts,
counter resets, lost and late hosts. The truth about them is known, so a verdict can be held against it.

They are written as OpenMetrics for promtool, which makes a real Prometheus' blocks of them, and can be asked like a Prometheus in
memory, for tests of the statistics alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np
from hakmem_lab.fleet import metrics
from hakmem_lab.fleet.inference import Array
from hakmem_lab.fleet.prometheus import DAY_S

GIB = float(1 << 30)
TYPES = (2.0, 8.0, 24.0)  # GiB that a host of each type typically needs
SERVICES = 4


@dataclass(frozen=True)
class Kind:
    """What a fleet is like."""

    hosts: int = 200
    days: int = 28
    step_s: int = 3600
    spread: float = 0.35  # between hosts of one type, of a logarithm
    drift: float = 0.012  # of a host per day
    noise: float = 0.04  # of an hour, with a memory of a day
    course: float = 0.08  # between night and day
    restart: float = 0.02  # chance per host and day
    tails: float = 4.0  # degrees of freedom of the noise


@dataclass
class Fleet:
    """Hours by hosts: the values that an exporter would have shown."""

    kind: Kind
    names: list[str]
    types: list[str]
    start: int  # of the first sample, Unix time
    resident: Array
    cpu: Array  # counters from here on
    faults: Array
    killed: Array
    started: Array  # the start time of the service
    served: Array  # 1 where HAKMEM serves it
    there: np.ndarray  # whether the host is seen
    service: str = "web"

    @property
    def times(self) -> np.ndarray:
        return self.start + self.kind.step_s * (np.arange(self.resident.shape[1]) + 1)

    def apply(self, treated: np.ndarray, from_day: int, effects: dict[str, float]) -> None:
        """Switches HAKMEM on for these hosts, with these true effects (logarithms; of kills, per host and day)."""
        first = from_day * DAY_S // self.kind.step_s
        self.served[treated, first:] = 1.0
        self.resident[treated, first:] *= math.exp(effects.get("resident memory", 0.0))
        for name, counter in (("processor time", self.cpu), ("faults", self.faults)):
            if effects.get(name):
                steps = np.diff(counter, axis=1, prepend=0.0)
                steps[treated, first:] = np.where(steps[treated, first:] > 0, steps[treated, first:] * math.exp(effects[name]), 0.0)
                counter[:] = np.cumsum(np.maximum(steps, 0.0), axis=1)
        if effects.get("kills"):
            random = np.random.default_rng(5)
            share = effects["kills"] * self.kind.step_s / DAY_S
            events = random.random((int(treated.sum()), self.killed.shape[1] - first)) < share
            self.killed[treated, first:] += np.cumsum(events, axis=1)


def autocorrelated(random: np.random.Generator, kind: Kind, shape: tuple[int, int]) -> Array:
    """Noise with a memory of about a day and heavy tails, of standard deviation `noise`."""
    keep = math.exp(-kind.step_s / DAY_S)
    fresh = random.standard_t(kind.tails, shape) * math.sqrt((kind.tails - 2) / kind.tails)
    found = np.empty(shape)
    found[:, 0] = fresh[:, 0]
    for i in range(1, shape[1]):
        found[:, i] = keep * found[:, i - 1] + math.sqrt(1 - keep**2) * fresh[:, i]
    return kind.noise * found


def make(seed: int, start: int, kind: Kind | None = None, service: str = "web") -> Fleet:
    kind = kind or Kind()
    random = np.random.default_rng(seed)
    samples = kind.days * DAY_S // kind.step_s
    shape = (kind.hosts, samples)
    of_type = random.integers(len(TYPES), size=kind.hosts)
    hours = kind.step_s * (np.arange(samples) + 1) / 3600.0
    level = np.log(np.asarray(TYPES)[of_type]) + kind.spread * random.standard_t(kind.tails, kind.hosts)
    busy = random.uniform(0.5, 1.5, kind.hosts)
    course = kind.course * busy[:, None] * np.sin(2 * np.pi * (hours - 9) / 24)[None]
    week = 0.5 * kind.course * (np.floor(hours / 24) % 7 < 5)[None]
    daily = kind.drift * random.standard_normal((kind.hosts, kind.days)).cumsum(axis=1)
    drift = np.repeat(daily, samples // kind.days, axis=1)
    common = np.repeat(0.01 * random.standard_normal(kind.days).cumsum(), samples // kind.days)[None]
    log = level[:, None] + course + week + drift + common + autocorrelated(random, kind, shape)
    restarted = random.random(shape) < kind.restart * kind.step_s / DAY_S
    since = np.where(restarted, np.arange(samples)[None], -10_000)
    age = (np.arange(samples)[None] - np.maximum.accumulate(since, axis=1)) * kind.step_s
    resident = GIB * np.exp(log) * (1 - 0.4 * np.exp(-age / 7200.0))  # a fresh program fills its caches first
    load = np.exp(course + week + drift + autocorrelated(random, kind, shape))
    names = [f"host-{i:05d}:9798" for i in range(kind.hosts)]
    there = np.ones(shape, dtype=bool)
    late = random.random(kind.hosts) < 0.005
    there[late, : samples // 8] = False
    lost = random.random(kind.hosts) < 0.01
    there[lost, samples - samples // 10 :] = False
    there &= random.random(shape) > 0.002  # single scrapes that failed
    begun = np.where(np.maximum.accumulate(since, axis=1) < 0, start - 86_400, start + kind.step_s * np.maximum.accumulate(since, axis=1))

    def counter(rate: Array) -> Array:
        """A process's counter: it begins again at 0 with each restart."""
        total = np.cumsum(rate * kind.step_s, axis=1)
        at_restart = np.maximum.accumulate(np.where(restarted, total, 0.0), axis=1)
        return total - at_restart

    return Fleet(
        kind, names, [f"type-{each}" for each in of_type], start, resident, counter(load * busy[:, None]),
        counter(load * 40 * random.lognormal(0, 0.3, kind.hosts)[:, None]), np.zeros(shape), begun.astype(float), np.zeros(shape), there,
        service,
    )


# --- as a Prometheus has it -------------------------------------------------------------------------------------------


def write_openmetrics(fleets: list[Fleet], file: TextIO, only_resident: bool = False) -> int:
    """All series of all fleets; the number of samples. promtool wants the samples of a family together."""
    families = [("hakmem_process_resident_bytes", "gauge", "", lambda fleet: fleet.resident)]
    if not only_resident:
        families += [
            ("hakmem_process_start_time_seconds", "gauge", "", lambda fleet: fleet.started),
            ("hakmem_process_cpu_seconds", "counter", ',mode="user"', lambda fleet: fleet.cpu),
            ("hakmem_process_faults", "counter", ',kind="minor"', lambda fleet: fleet.faults),
            ("hakmem_cgroup_memory_events", "counter", ',event="oom_kill"', lambda fleet: fleet.killed),
        ]
    count = 0
    for name, kind, label, of in families:
        sample = name + ("_total" if kind == "counter" else "")
        file.write(f"# TYPE {name} {kind}\n")
        for fleet in fleets:
            values, times = of(fleet), fleet.times.tolist()
            for host, row, there, served in zip(fleet.names, values, fleet.there, fleet.served, strict=True):
                # One process has one allocator at a time: the series of before ends where the other begins.
                for allocator, flag in (("glibc", 0.0), ("hakmem", 1.0)):
                    places = np.flatnonzero(there & (served == flag))
                    head = f'{sample}{{instance="{host}",service="{fleet.service}",process="0",allocator="{allocator}"{label}}} '
                    file.writelines(f"{head}{row[i]:.6g} {times[i]}\n" if sample != "hakmem_process_start_time_seconds"
                                    else f"{head}{row[i]:.0f} {times[i]}\n" for i in places.tolist())
                    count += len(places)
    if not only_resident:
        file.write("# TYPE hakmem_exporter_build gauge\n")
        count += sum(write_exporter(fleet, file) for fleet in fleets)
    file.write("# EOF\n")
    return count


def write_exporter(fleet: Fleet, file: TextIO) -> int:
    """The exporters themselves, which are seen wherever their hosts are."""
    times = fleet.times.tolist()
    for host, there in zip(fleet.names, fleet.there, strict=True):
        file.writelines(f'hakmem_exporter_build{{instance="{host}",exporter="1"}} 1 {times[i]}\n' for i in np.flatnonzero(there).tolist())
    return int(fleet.there.sum())


class InMemory:
    """Answers the lab's own queries from a fleet, as a Prometheus with this data would."""

    def __init__(self, fleet: Fleet, step: str, select: str) -> None:
        self.fleet = fleet
        self.step, self.select = step, select
        self.asked: list[str] = []

    def _days(self, values: Array, how: str) -> Array:
        per_day = DAY_S // self.fleet.kind.step_s
        shaped = np.where(self.fleet.there, values, math.nan).reshape(len(values), -1, per_day)
        known = np.isfinite(shaped)
        sums, counts = np.where(known, shaped, 0.0).sum(axis=2), known.sum(axis=2)
        if how == "count":
            return np.where(counts > 0, counts, math.nan)
        found = sums if how == "sum" else np.divide(sums, counts, out=np.full(sums.shape, math.nan), where=counts > 0)
        return np.where(counts > 0, found, math.nan)

    def daily(self, query: str, host_label: str, first_day: int, days: int) -> dict[str, Array]:
        fleet = self.fleet
        self.asked.append(query)
        named = {metrics.filled(each.query, host_label, self.select, self.step): each.name for each in metrics.METRICS}
        steps = {
            "processor time": fleet.cpu, "faults": fleet.faults, "kills": fleet.killed,
        }
        name = named.get(query, "")
        if query == metrics.filled(metrics.SEEN, host_label, self.select, self.step):
            found = self._days(fleet.resident, "count")
        elif query == metrics.filled(metrics.SERVED, host_label, self.select, self.step):
            found = self._days(fleet.served, "mean")
        elif name == "resident memory":
            found = self._days(fleet.resident, "mean")
        elif name == "GiB-seconds":
            found = self._days(fleet.resident / GIB * DAY_S, "mean")
        elif name == "restarts":
            changes = np.diff(fleet.started, axis=1, prepend=fleet.started[:, :1]) != 0
            found = self._days(changes.astype(float), "sum")
        elif name in steps:
            found = self._days(np.maximum(np.diff(steps[name], axis=1, prepend=0.0), 0.0), "sum")
        else:
            return {}
        first = (first_day - fleet.start) // DAY_S
        return {host: row[first : first + days] for host, row in zip(fleet.names, found, strict=True)}


def write(fleets: list[Fleet], path: Path, only_resident: bool = False) -> int:
    with path.open("w", encoding="ascii", buffering=1 << 20) as file:
        return write_openmetrics(fleets, file, only_resident)
