"""Profiles in other tools' formats (pprof, collapsed stacks, speedscope, jemalloc) and as JSON of the lab."""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, TypeVar

from hakmem_lab.profile.heap_dumps import HEAP, LABELS, Estimate, Labels, Profile
from hakmem_lab.profile.limits import FRAMES
from hakmem_lab.profile.symbols import Frame, Symbols

Stack = tuple[Frame, ...]  # innermost function first
Key = TypeVar("Key")

Estimates = dict[str, Estimate]  # by kind


@dataclass
class Report:
    """A profile with names: the estimates of each stack, and of each stack with its labels."""

    samples: dict[tuple[Stack, Labels], Estimates]
    kinds: tuple[str, ...]
    interval: int
    profile: Profile
    lifetimes: dict[Stack, list[float]] = dataclasses.field(default_factory=dict)  # freed blocks, by LIFETIMES_MS

    def _summed(self, key: Callable[[Stack, Labels], Key]) -> dict[Key, Estimates]:
        sums: dict[Key, Estimates] = {}
        for (stack, labels), values in self.samples.items():
            added = sums.setdefault(key(stack, labels), {})
            for kind, value in values.items():
                added[kind] = added.get(kind, Estimate()) + value
        return sums

    @cached_property
    def stacks(self) -> dict[Stack, Estimates]:
        return self._summed(lambda stack, _: stack)

    def by_label(self, key: str) -> dict[str, Estimates]:
        """The estimates of each value of a label."""
        return self._summed(lambda _, labels: value_of(labels, key))

    @property
    def keys(self) -> list[str]:
        return sorted({key for _, labels in self.samples for key, _ in labels})

    def total(self, kind: str) -> Estimate:
        return sum((values.get(kind, Estimate()) for values in self.samples.values()), Estimate())


def value_of(labels: Labels, key: str) -> str:
    return dict(labels).get(key, "malloc" if key == HEAP else "(none)")


def roots_of(value: str, key: str) -> list[str]:
    """A heap stands below those above it: server/request below server. The last comes first, as in a stack."""
    parts = value.split("/") if key == HEAP else [value]
    return ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]


def named(profile: Profile, by: Sequence[str] = (), symbols: Symbols | None = None) -> Report:
    """The profile's sites by the stacks of their functions, below a frame for each label of `by`."""
    symbols = symbols or Symbols(profile.mappings, pid=profile.pid)
    symbols.learn(address for site in profile.sites for address in site.frames)
    samples: dict[tuple[Stack, Labels], Estimates] = defaultdict(dict)
    lifetimes: dict[Stack, list[float]] = {}
    for site in profile.sites:
        deeper = (Frame(f"({FRAMES} frames or more)"),) if len(site.frames) >= FRAMES else ()
        roots = deeper + tuple(
            Frame(f"{key}: {value}") for key in reversed(by) for value in roots_of(value_of(site.labels, key), key)
        )
        stack = (symbols.stack(site.frames) or (Frame("(no stack)"),)) + roots
        values = samples[stack, site.labels]
        for kind in profile.kinds:
            values[kind] = values.get(kind, Estimate()) + profile.of(site, kind)
        if any(site.lifetimes):
            former = lifetimes.get(stack) or [0.0] * len(site.lifetimes)
            lifetimes[stack] = [a + b for a, b in zip(former, profile.lifetimes(site), strict=True)]
    return Report(dict(samples), profile.kinds, profile.interval, profile, lifetimes)


def difference(before: Report, after: Report) -> Report:
    """The growth of live memory from `before` to `after`, by stack and labels."""
    samples: dict[tuple[Stack, Labels], Estimates] = {}
    for each in before.samples.keys() | after.samples.keys():
        then, now = (report.samples.get(each, {}) for report in (before, after))
        samples[each] = now | {"growth": now.get("live", Estimate()) - then.get("live", Estimate())}
    return Report(samples, ("growth", *after.kinds), after.interval, after.profile, after.lifetimes)


# --- profile.proto ----------------------------------------------------------------------------------------------------

# The part of pprof's schema that is written: message: (field, number, type, repeated).
SCHEMA: dict[str, tuple[tuple[str, int, str, bool], ...]] = {
    "ValueType": (("type", 1, "int64", False), ("unit", 2, "int64", False)),
    "Sample": (("location_id", 1, "uint64", True), ("value", 2, "int64", True), ("label", 3, "Label", True)),
    "Label": (("key", 1, "int64", False), ("str", 2, "int64", False)),
    "Mapping": (
        ("id", 1, "uint64", False),
        ("memory_start", 2, "uint64", False),
        ("memory_limit", 3, "uint64", False),
        ("file_offset", 4, "uint64", False),
        ("filename", 5, "int64", False),
        ("has_functions", 7, "bool", False),
        ("has_filenames", 8, "bool", False),
        ("has_line_numbers", 9, "bool", False),
    ),
    "Line": (("function_id", 1, "uint64", False), ("line", 2, "int64", False)),
    "Location": (("id", 1, "uint64", False), ("mapping_id", 2, "uint64", False), ("line", 4, "Line", True)),
    "Function": (
        ("id", 1, "uint64", False),
        ("name", 2, "int64", False),
        ("system_name", 3, "int64", False),
        ("filename", 4, "int64", False),
    ),
    "Profile": (
        ("sample_type", 1, "ValueType", True),
        ("sample", 2, "Sample", True),
        ("mapping", 3, "Mapping", True),
        ("location", 4, "Location", True),
        ("function", 5, "Function", True),
        ("string_table", 6, "string", True),
        ("period_type", 11, "ValueType", False),
        ("period", 12, "int64", False),
        ("default_sample_type", 14, "int64", False),
    ),
}
PPROF_TYPES = {
    "live": "inuse",
    "allocated": "alloc",
    "peak": "peak",
    "leaked": "leaked",
    "short": "short",
    "pinned": "pinned",
    "growth": "growth",
}


@cache
def messages() -> dict[str, Any]:
    """The classes of the messages of SCHEMA."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    types = {
        "int64": kinds.TYPE_INT64,
        "uint64": kinds.TYPE_UINT64,
        "bool": kinds.TYPE_BOOL,
        "string": kinds.TYPE_STRING,
    }
    file = descriptor_pb2.FileDescriptorProto(
        name="hakmem/profile.proto", package="perftools.profiles", syntax="proto3"
    )
    for name, fields in SCHEMA.items():
        message = file.message_type.add(name=name)
        for field, number, kind, repeated in fields:
            row = message.field.add(name=field, number=number)
            row.label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            row.type = types.get(kind, kinds.TYPE_MESSAGE)
            if kind not in types:
                row.type_name = f".perftools.profiles.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"perftools.profiles.{name}"))
        for name in SCHEMA
    }


class Numbers:
    """Numbers things in the order in which they first appear."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.of: dict[Any, int] = {}

    def __call__(self, thing: Any) -> int:
        return self.of.setdefault(thing, len(self.of) + self.first)


def pprof(report: Report) -> bytes:
    """profile.proto, gzipped: objects and bytes of each kind, a location for each frame, and the labels."""
    profile = messages()["Profile"]()
    strings, locations, functions, modules = Numbers(0), Numbers(1), Numbers(1), Numbers(1)
    strings("")
    for kind in report.kinds:
        for what, unit in (("objects", "count"), ("space", "bytes")):
            profile.sample_type.add(type=strings(f"{PPROF_TYPES[kind]}_{what}"), unit=strings(unit))
    for (stack, labels), values in report.samples.items():
        found = [values.get(kind, Estimate()) for kind in report.kinds]
        sample = profile.sample.add(
            location_id=[locations(frame) for frame in stack],
            value=[round(each) for value in found for each in (value.objects, value.bytes)],
        )
        for key, text in labels:
            sample.label.add(key=strings(key), str=strings(text))
    for frame, number in locations.of.items():
        function = functions((frame.name, frame.file))
        location = profile.location.add(id=number, mapping_id=modules(frame.module) if frame.module else 0)
        location.line.add(function_id=function, line=frame.line)
    for (name, file), number in functions.of.items():
        profile.function.add(id=number, name=strings(name), system_name=strings(name), filename=strings(file))
    for module, number in modules.of.items():
        profile.mapping.add(
            id=number, filename=strings(module), has_functions=True, has_filenames=True, has_line_numbers=True
        )
    profile.period_type.type, profile.period_type.unit = strings("space"), strings("bytes")
    profile.period = report.interval
    profile.default_sample_type = strings(f"{PPROF_TYPES[report.kinds[0]]}_space")
    profile.string_table.extend(strings.of)
    return gzip.compress(profile.SerializeToString(deterministic=True), mtime=0)


# --- texts ------------------------------------------------------------------------------------------------------------


def one_line(text: str) -> str:
    """A name as part of a line: programs choose those of heaps and labels."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def collapsed(report: Report, kind: str) -> str:
    """One stack per line, outermost function first, then its bytes."""
    lines = []
    for stack, values in report.stacks.items():
        size = round(values.get(kind, Estimate()).bytes)
        if size > 0:
            names = (one_line(frame.name).replace(";", ":") for frame in reversed(stack))
            lines.append(f"{';'.join(names)} {size}")
    return "".join(f"{line}\n" for line in sorted(lines))


def speedscope(report: Report, name: str) -> str:
    """https://www.speedscope.app/file-format-schema.json: a sampled profile for each kind."""
    frames = Numbers(0)
    profiles = []
    for kind in report.kinds:
        samples, weights = [], []
        for stack, values in report.stacks.items():
            size = round(values.get(kind, Estimate()).bytes)
            if size > 0:
                samples.append([frames(frame) for frame in reversed(stack)])
                weights.append(size)
        profiles.append(
            {
                "type": "sampled",
                "name": kind,
                "unit": "bytes",
                "startValue": 0,
                "endValue": sum(weights),
                "samples": samples,
                "weights": weights,
            }
        )
    shared = [
        {"name": frame.name} | ({"file": frame.file, "line": frame.line} if frame.file else {}) for frame in frames.of
    ]
    document = {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "name": name,
        "exporter": "hakmem",
        "activeProfileIndex": 0,
        "shared": {"frames": shared},
        "profiles": profiles,
    }
    return json.dumps(document)


def as_document(report: Report) -> dict[str, Any]:
    """The lab's JSON: stacks with names, objects, bytes and standard errors."""

    def one(value: Estimate) -> dict[str, float]:
        return {"objects": round(value.objects, 1), "bytes": round(value.bytes), "error": round(value.error)}

    stacks = [
        {
            "frames": [vars(frame) for frame in stack],
            **({"labels": dict(labels)} if labels else {}),
            **{kind: one(values.get(kind, Estimate())) for kind in report.kinds},
        }
        for (stack, labels), values in report.samples.items()
    ]
    totals = {kind: one(report.total(kind)) for kind in report.kinds}
    return {"interval": report.interval, "missed": report.profile.missed, "totals": totals, "stacks": stacks}


def heap_v2(report: Report) -> str:
    """jemalloc's text, with addresses, for tools that look up names themselves."""
    profile = report.profile

    def line(live: Sequence[int], allocated: Sequence[int]) -> str:
        return f"  t*: {live[0]}: {live[1]} [{allocated[0]}: {allocated[1]}]\n"

    def summed(kind: str) -> list[int]:
        return [sum(site.counted[kind][place] for site in profile.sites) for place in (0, 1)]

    text = f"heap_v2/{profile.interval}\n" + line(summed("live"), summed("allocated"))
    for site in profile.sites:
        text += "@" + "".join(f" {address:#x}" for address in site.frames) + "\n"
        text += LABELS + json.dumps(dict(site.labels)) + "\n" if site.labels else ""
        text += line(site.counted["live"], site.counted["allocated"])
    return text + "\nMAPPED_LIBRARIES:\n" + profile.text
