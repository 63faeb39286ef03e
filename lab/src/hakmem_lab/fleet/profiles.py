"""Heap profiles of many hosts as one, and the difference of two groups, per host."""

from __future__ import annotations

import gzip
from collections import defaultdict
from pathlib import Path

from hakmem_lab.profile import formats
from hakmem_lab.profile.formats import Report, Stack
from hakmem_lab.profile.heap_dumps import Estimate, Profile
from hakmem_lab.profile.symbols import Frame
from hakmem_lab.terminal.errors import LabError

KINDS = {"inuse_objects": "live", "inuse_space": "live", "alloc_objects": "allocated", "alloc_space": "allocated"}


def folder(path: Path) -> Report:
    """The mean of all profiles in a folder."""
    files = sorted(each for each in path.rglob("*") if each.is_file() and each.suffix in (".gz", ".pb", ".pprof"))
    if not files:
        raise LabError(f"{path}: no pprof files (*.pb.gz, *.pb, *.pprof)", "Fetch /debug/pprof/heap of each host.")
    stacks: dict[Stack, dict[str, Estimate]] = defaultdict(dict)
    interval = 0
    for file in files:
        one = read(file)
        interval = interval or one.interval
        for stack, values in one.stacks.items():
            into = stacks[stack]
            for kind, value in values.items():
                share = Estimate(value.objects / len(files), value.bytes / len(files), value.variance / len(files) ** 2)
                into[kind] = into.get(kind, Estimate()) + share
    return Report(
        {(stack, ()): values for stack, values in stacks.items()},
        ("live", "allocated"),
        interval,
        Profile(interval, [], []),
    )


def read(path: Path) -> Report:
    """One file of pprof's format."""
    content = path.read_bytes()
    found = formats.messages()["Profile"]()
    try:
        found.ParseFromString(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
    except Exception:
        raise LabError(f"{path} is not a profile in pprof's format") from None
    text = list(found.string_table)
    types = [text[each.type] for each in found.sample_type]
    if not set(types) & set(KINDS):
        raise LabError(f"{path} is not a heap profile: it has {', '.join(types) or 'no values'}")
    functions = {each.id: (text[each.name], text[each.filename]) for each in found.function}
    frames = {
        each.id: [
            Frame(functions[line.function_id][0], functions[line.function_id][1], line.line) for line in each.line
        ]
        or [Frame("(unknown)")]
        for each in found.location
    }
    stacks: dict[Stack, dict[str, Estimate]] = defaultdict(dict)
    for sample in found.sample:
        stack = tuple(frame for each in sample.location_id for frame in frames[each])
        for kind in ("live", "allocated"):
            values = dict(zip(types, sample.value, strict=True))
            name = "inuse" if kind == "live" else "alloc"
            one = Estimate(values.get(f"{name}_objects", 0), values.get(f"{name}_space", 0), 0.0)
            stacks[stack][kind] = stacks[stack].get(kind, Estimate()) + one
    return Report(
        {(stack, ()): values for stack, values in stacks.items()},
        ("live", "allocated"),
        found.period,
        Profile(found.period, [], []),
    )


def difference(before: Report, after: Report) -> Report:
    return formats.difference(before, after)
