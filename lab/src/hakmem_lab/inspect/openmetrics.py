"""A snapshot as OpenMetrics, with the names of HAKMEM_STATS=prom (metrics.json, generated from the list of figures).

Figures of a newer library that this lab does not know are left out, since their types cannot be guessed."""

from __future__ import annotations

import functools
import importlib.resources
import json
from collections.abc import Iterator
from dataclasses import dataclass

from hakmem_lab.inspect.snapshots import Latency, Snapshot

OPEN = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PLAIN = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True)
class Metric:
    """One family of samples."""

    group: str
    name: str
    metric: str
    type: str
    unit: str
    help: str

    @property
    def sample(self) -> str:
        return self.metric + ("_total" if self.type == "counter" else "")


@functools.cache
def metrics() -> tuple[Metric, ...]:
    """All figures of the library, in its order."""
    content = importlib.resources.files("hakmem_lab.inspect").joinpath("metrics.json").read_text(encoding="utf-8")
    return tuple(Metric(**each) for each in json.loads(content))


def _label(text: str) -> str:
    """A label's value, in quotes."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _samples(snapshot: Snapshot, metric: Metric) -> list[str]:
    if metric.group == "heap":
        return [
            f'{metric.sample}{{serial="{each.serial}",name={_label(each.name)}}} {getattr(each, metric.name)}'
            for each in snapshot.heaps or []
        ]
    if metric.group != "class":
        value = snapshot.group(metric.group).get(metric.name)
        return [] if value is None else [f"{metric.sample} {value}"]
    return [
        f'{metric.sample}{{size="{row["size"]}"}} {row[metric.name]}'
        for row in snapshot.classes
        if metric.name in row and row.get("refilled")
    ]


def _histogram(name: str, found: Latency) -> Iterator[str]:
    family = f"hakmem_slow_{name}_nanoseconds"
    count = 0
    for place, each in enumerate(found.buckets[:-1]):
        count += each
        yield f'{family}_bucket{{le="{1 << place}.0"}} {count}'
    count = sum(found.buckets)
    yield f'{family}_bucket{{le="+Inf"}} {count}'
    yield f"{family}_count {count}"
    yield f"{family}_sum {found.sum}"


def _family(name: str, type_: str, unit: str, words: str, is_open: bool, sample: str) -> list[str]:
    """The header of a family: in the older format it has the samples' name and no unit."""
    head = name if is_open else sample
    lines = [f"# TYPE {head} {type_}", f"# HELP {head} {words}"]
    return [lines[0], f"# UNIT {head} {unit}", lines[1]] if unit and is_open else lines


def text(snapshot: Snapshot, is_open: bool = True) -> str:
    """The whole page; is_open: OpenMetrics, otherwise Prometheus' older text format."""
    lines: list[str] = []
    for metric in metrics():
        samples = _samples(snapshot, metric)
        if samples:
            head = _family(metric.metric, metric.type, metric.unit, metric.help, is_open, metric.sample)
            lines += [*head, *samples]
    for name, found in snapshot.latencies.items():
        family = f"hakmem_slow_{name}_nanoseconds"
        words = f"How long slow paths of {name} took."
        lines += _family(family, "histogram", "nanoseconds", words, is_open, family)
        lines += _histogram(name, found)
    return "\n".join([*lines, *(["# EOF"] if is_open else [])]) + "\n"
