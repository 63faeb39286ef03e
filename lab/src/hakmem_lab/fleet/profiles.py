"""Heap profiles of many hosts as one: the mean of their pprof files."""

from __future__ import annotations

import gzip
from collections import defaultdict
from pathlib import Path
from typing import Any

from hakmem_lab.profile import formats
from hakmem_lab.profile.formats import Estimates, Report, Stack
from hakmem_lab.profile.heap_dumps import Estimate, Labels, Profile, labels_of
from hakmem_lab.profile.symbols import Frame
from hakmem_lab.terminal.errors import LabError

KINDS = ("live", "allocated")
Samples = dict[tuple[Stack, Labels], Estimates]


def folder(path: Path) -> Report:
    """The mean of all profiles in a folder."""
    files = sorted(each for each in path.rglob("*") if each.is_file() and each.suffix in (".gz", ".pb", ".pprof"))
    if not files:
        raise LabError(f"{path}: no pprof files (*.pb.gz, *.pb, *.pprof)", "Fetch /debug/pprof/heap of each host.")
    samples: Samples = defaultdict(dict)
    interval = 0
    for file in files:
        interval = read(file, 1 / len(files), samples) or interval
    return Report(dict(samples), KINDS, interval, Profile(interval, [], []))


def read(path: Path, share: float, into: Samples) -> int:
    """Adds a part of one file's samples; returns its interval."""
    found = formats.messages()["Profile"]()
    try:
        content = path.read_bytes()
    except OSError as error:
        raise LabError(f"{path}: {error.strerror}") from None
    try:
        found.ParseFromString(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
        return add(found, share, into)
    except Exception:  # of gzip, of the parser, or of numbers that lead nowhere
        raise LabError(f"{path} is not a heap profile in pprof's format") from None


def place(types: list[str], name: str) -> int:
    """Which value of a sample this is; -1: a server's answer has bytes alone."""
    return types.index(name) if name in types else -1


def add(profile: Any, share: float, into: Samples) -> int:
    text = list(profile.string_table)
    types = [text[each.type] for each in profile.sample_type]
    names = {kind: [f"{formats.PPROF_TYPES[kind]}_{what}" for what in ("objects", "space")] for kind in KINDS}
    columns = {kind: [place(types, name) for name in both] for kind, both in names.items() if both[1] in types}
    if not columns:
        raise ValueError("a profile of something else")
    functions = {each.id: (text[each.name], text[each.filename]) for each in profile.function}
    frames = {
        each.id: [Frame(*functions[line.function_id], line.line) for line in each.line] or [Frame("(unknown)")]
        for each in profile.location
    }
    for sample in profile.sample:
        stack = tuple(frame for each in sample.location_id for frame in frames[each])
        values = into[stack, labels_of({text[each.key]: text[each.str] for each in sample.label})]
        for kind, (objects, size) in columns.items():
            one = Estimate(sample.value[objects] * share if objects >= 0 else 0.0, sample.value[size] * share)
            values[kind] = values.get(kind, Estimate()) + one
    return int(profile.period)
