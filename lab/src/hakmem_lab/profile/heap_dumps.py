"""Reads the dumps of the library's heap profiler, in both of their formats, and estimates blocks and bytes from
samples.

A block of n bytes is sampled with probability p = 1 - exp(-n / interval). A site's samples have about the same length,
so their mean is used for each: `count` samples stand for count / p blocks, with a variance of count (1 - p) / p**2."""

from __future__ import annotations

import bisect
import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path

from hakmem_lab.profile.limits import LIFETIMES
from hakmem_lab.terminal.amounts import in_bytes
from hakmem_lab.terminal.errors import LabError

KINDS = ("live", "allocated", "peak", "leaked", "short", "pinned", "growth")
OF_PROGRAM = ("live", "allocated", "peak", "short")
ABOUT = {
    "live": "in use at the time of the dump",
    "allocated": "allocated since the profile began",
    "peak": "in use at the peak",
    "leaked": "in use, and no pointer leads to it",
    "short": "allocated and freed again within 16 ms",
    "pinned": "free but resident, in spans that live blocks keep",
    "growth": "more, or less, in use than in the earlier profile",
}
HEAP = "heap"  # the library's label: the user heap's name
LABELS = "# labels "  # begins a line of a text dump, between a stack and its samples
SHORT_BUCKETS = 3  # below 1 ms, 4 ms, 16 ms
LIFETIMES_MS = [0, *(4**i for i in range(LIFETIMES - 1))]  # the lower bound of each bucket of lifetimes
Counted = tuple[int, int]  # samples, and the bytes requested by them
Labels = tuple[tuple[str, str], ...]  # keys and values, sorted
Z95 = 1.959964


@dataclass(frozen=True)
class Estimate:
    """An estimate of blocks and bytes; `error` is the standard error of the bytes."""

    objects: float = 0.0
    bytes: float = 0.0
    variance: float = 0.0
    is_difference: bool = False

    @property
    def error(self) -> float:
        return math.sqrt(self.variance)

    @property
    def says(self) -> str:
        return f"{in_bytes(self.bytes)} ± {in_bytes(self.error)}"

    @property
    def interval(self) -> tuple[float, float]:
        """The bytes' 95 % interval. It covers as often as it says from a few samples on: it has the values at which
        these samples would be no surprise (Wilson's score), each sample standing for variance / bytes. A difference has
        the normal distribution's."""
        if self.bytes <= 0 or self.is_difference:
            return self.bytes - Z95 * self.error, self.bytes + Z95 * self.error
        each = self.variance / self.bytes
        middle, half = self.bytes + each * Z95**2 / 2, Z95 * math.sqrt(self.variance + (each * Z95 / 2) ** 2)
        return middle - half, middle + half

    def __add__(self, other: Estimate) -> Estimate:
        both = self.is_difference or other.is_difference
        return Estimate(self.objects + other.objects, self.bytes + other.bytes, self.variance + other.variance, both)

    def __sub__(self, other: Estimate) -> Estimate:
        return Estimate(self.objects - other.objects, self.bytes - other.bytes, self.variance + other.variance, True)


def estimate(counted: Counted, interval: int) -> Estimate:
    """The estimate from these samples."""
    count, total = counted
    if count <= 0:
        return Estimate()
    mean = total / count
    chance = 1.0 if interval <= 1 else -math.expm1(-mean / interval)
    if chance <= 0:  # blocks of size 0
        return Estimate(float(count), 0.0, 0.0)
    return Estimate(count / chance, total / chance, count * mean**2 * (1 - chance) / chance**2)


@dataclass(frozen=True)
class Spans:
    """The spans of a size class: blocks in use, and resident bytes that are free but cannot be returned."""

    size: int
    live: int
    pinned: int


@dataclass(frozen=True)
class Site:
    """One stack, innermost return address first, for blocks of about the same size."""

    frames: tuple[int, ...]
    counted: dict[str, Counted]
    lifetimes: tuple[int, ...] = ()
    labels: Labels = ()


@dataclass(frozen=True)
class Mapping:
    start: int
    end: int
    offset: int
    path: str


@dataclass
class Profile:
    interval: int
    sites: list[Site]
    mappings: list[Mapping]
    pid: int = 0
    missed: int = 0
    leaks_searched: bool = False
    time_ms: int = 0
    peak_ms: int = 0
    path: Path | None = None
    text: str = ""  # of the mappings, as the kernel prints it
    about: str = ""  # what the profile includes and what it does not
    kinds: tuple[str, ...] = field(default=("live", "allocated"))
    memory: list[tuple[int, int]] = field(default_factory=list)  # milliseconds of time_ms' clock, resident bytes
    spans: list[Spans] = field(default_factory=list)  # by size

    def with_spans(self, spans: list[Spans]) -> None:
        """Adds the state of the size classes at the time of the dump, from which the kind `pinned` is estimated."""
        self.spans = sorted(spans, key=lambda each: each.size)
        self.kinds = (*self.kinds, "pinned")

    def of(self, site: Site, kind: str) -> Estimate:
        if kind == "pinned":
            return self._pinned(site)
        return estimate(site.counted.get(kind, (0, 0)), self.interval)

    def lifetimes(self, site: Site) -> list[float]:
        """The freed blocks, by lifetime."""
        blocks, samples = self.of(site, "allocated").objects, site.counted.get("allocated", (0, 0))[0]
        return [count * blocks / samples if samples else 0.0 for count in site.lifetimes]

    def _pinned(self, site: Site) -> Estimate:
        """A site's share of what is pinned in the spans of its class: the same as its share of their live blocks. A
        profile knows how many blocks each site has, not where they lie."""
        counted = site.counted.get("live", (0, 0))
        if counted[0] <= 0:
            return Estimate()
        place = bisect.bisect_left(self.spans, counted[1] / counted[0], key=lambda each: each.size)
        spans = self.spans[place] if place < len(self.spans) else Spans(0, 0, 0)
        if not spans.pinned or not spans.live:
            return Estimate()
        blocks, each = estimate(counted, self.interval), spans.pinned / spans.live
        mean = blocks.bytes / blocks.objects
        return Estimate(blocks.objects, blocks.objects * each, blocks.variance * (each / mean) ** 2 if mean else 0.0)

    def total(self, kind: str) -> Estimate:
        return sum((self.of(site, kind) for site in self.sites), Estimate())


def parse_maps(text: str) -> list[Mapping]:
    """The executable mappings of files in /proc/PID/maps."""
    found = []
    for line in text.splitlines():
        match = re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+) ([0-9a-f]+) \S+ \d+ *(.*)", line)
        if match and "x" in match[3] and match[5].startswith("/"):
            found.append(Mapping(int(match[1], 16), int(match[2], 16), int(match[4], 16), match[5]))
    return found


def pair(values: list[int]) -> Counted:
    return values[0], values[1]


def minus(first: Counted, second: Counted) -> Counted:
    return first[0] - second[0], first[1] - second[1]


def short_lived(freed: Counted, lifetimes: list[int]) -> Counted:
    """The freed samples with short lifetimes, in the form of other samples."""
    count = sum(lifetimes[:SHORT_BUCKETS])
    return (count, freed[1] * count // freed[0]) if freed[0] else (0, 0)


def labels_of(found: dict[str, str]) -> Labels:
    return tuple(sorted(found.items()))


def from_json(text: str) -> Profile:
    data = json.loads(text)
    sites = []
    for each in data["sites"]:
        allocated, freed = pair(each["allocated"]), pair(each["freed"])
        counted = {
            "live": minus(allocated, freed),
            "allocated": allocated,
            "peak": pair(each["peak"]),
            "leaked": pair(each["unreachable"]),
            "short": short_lived(freed, each["lifetimes"]),
        }
        frames, labels = tuple(int(frame) for frame in each["frames"]), labels_of(each.get("labels", {}))
        sites.append(Site(frames, counted, tuple(each["lifetimes"]), labels))
    kinds = (*OF_PROGRAM, *(["leaked"] if data["leaks_searched"] else []))
    return Profile(
        interval=int(data["interval"]),
        sites=sites,
        mappings=parse_maps(data["maps"]),
        pid=data["pid"],
        missed=data["missed"],
        leaks_searched=data["leaks_searched"],
        time_ms=data["time_ms"],
        peak_ms=data["peak_ms"],
        text=data["maps"],
        kinds=kinds,
    )


def from_heap_v2(text: str) -> Profile:
    """Reads jemalloc's text format, which the library writes too; of threads' lines only the sum."""
    head, after, maps = text.partition("\nMAPPED_LIBRARIES:\n")
    lines = head.splitlines()
    interval = int(lines[0].partition("/")[2])
    sites: list[Site] = []
    frames: tuple[int, ...] | None = None
    labels: Labels = ()
    for line in lines[1:]:
        if line.startswith("@"):
            frames, labels = tuple(int(word, 16) for word in line.split()[1:]), ()
        elif line.startswith(LABELS):
            labels = labels_of(json.loads(line.removeprefix(LABELS)))
        elif frames is not None and line.strip().startswith("t*:"):
            live, total, count, bytes_ = (int(word) for word in re.findall(r"\d+", line.partition(":")[2]))
            sites.append(Site(frames, {"live": (live, total), "allocated": (count, bytes_)}, labels=labels))
    sums = [sum(each.counted[kind][i] for each in sites) for kind in ("live", "allocated") for i in (0, 1)]
    if not after and sums != [int(word) for word in re.findall(r"\d+", "".join(lines[1:2]).partition(":")[2])]:
        raise EOFError
    return Profile(interval, sites, parse_maps(maps), text=maps)


DUMPS = "a file of HAKMEM_PROFILE=1, or a .heap of hakmem profile"


def read(path: Path) -> Profile:
    """Reads a dump in either format; a LabError if the file is neither."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
        profile = from_heap_v2(text) if text.startswith("heap_v2/") else from_json(text)
    except OSError as error:
        raise LabError(f"{path}: {error.strerror}") from None
    except EOFError:
        raise LabError(f"{path} is truncated: it lacks the list of mappings", "Copy it whole.") from None
    except (ValueError, KeyError, IndexError, TypeError):
        raise LabError(f"{path} is not a heap profile", f"Give {DUMPS}.") from None
    profile.path = path
    return profile
