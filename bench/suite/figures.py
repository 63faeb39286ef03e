"""From the suite's runs to what may be said: medians, ratios with intervals, means, own cost, claims.

The ratio to the best peer is honest about the choice: the peer that looks best in some rounds was partly lucky in
them.  So the rounds are split in two halves; each half is compared with the peer that was best in the other one, and
the ratios of both halves, each taken within one round, are one sample.  Its median is shown with the lab's interval:
Student's, of the logarithms of the ratios (hakmem_lab/decide/statistics.py says why, and its tests check the coverage).
Means over benchmarks are geometric; the sample of their interval is the rounds' means.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from hakmem_lab.decide import statistics
from hakmem_lab.target.allocators import FLOOR, HAKMEM, SYSTEM
from listing import FAMILY, MICRO, REAL
from session import Results, Sample

PLAIN, HUGE = "plain", "huge_hot"  # pairs of the family that have bounds of their own
LARGER = ("large_hot", HUGE)
RESOLUTION = 0.05  # a ratio is known when half the width of its interval is no larger part of it
LEAST_COST = 0.05e-9  # seconds: an own cost below what can be measured counts as this

Get = Callable[[Sample], float]


def time_of(sample: Sample) -> float:
    return sample.time


def cpu_of(sample: Sample) -> float:
    return sample.cpu_s


def memory_of(sample: Sample) -> float:
    return sample.peak_rss_bytes


def faults_of(sample: Sample) -> float:
    return sample.minor_faults


@dataclass(frozen=True)
class Ratio:
    """Ours by theirs with its interval; below 1 is ours' favour."""

    value: float
    low: float
    high: float
    other: str
    rounds: int


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(math.log(value) for value in values) / len(values)) if values else math.nan


def interval_of(values: Sequence[float]) -> tuple[float, float]:
    """The lab's 95 % interval of ratios; wider where their median lies outside.  A single one says nothing of its spread."""
    found = statistics.interval(np.log(np.asarray(values, dtype=float)))
    middle = median(values)
    return min(1.0 + found.low / 100.0, middle), max(1.0 + found.high / 100.0, middle)


class Figures:
    """The runs after warm-up, by case and allocator."""

    def __init__(self, kept: Results) -> None:
        self.head = kept.head
        self.failures = kept.failures
        self.bare = kept.bare
        self.names = [each.name for each in kept.head.allocators if each.kind != "floor"]
        self.peers = [each.name for each in kept.head.allocators if each.kind == "peer"]
        self.ours = HAKMEM if HAKMEM in self.names else None
        self.on_musl = kept.head.machine.facts.get("C library", "").startswith("musl")
        self._by: dict[tuple[str, str], dict[int, Sample]] = {}
        broken = kept.broken()
        for sample in kept.samples:
            if sample.round > 0 and (sample.case, sample.allocator) not in broken:
                self._by.setdefault((sample.case, sample.allocator), {})[sample.round] = sample
        measured = [each for each in kept.head.cases if any((each.name, name) in self._by for name in self.names)]
        self.cases = [each for each in measured if each.group != FAMILY]
        self.family = [each for each in measured if each.group == FAMILY]

    def beyond(self, sample: Sample) -> float:
        """The peak without what the program holds before its first request; at least a page."""
        held = self.bare.get(sample.case, 0)
        return max(sample.peak_rss_bytes - held, self.head.machine.page_bytes)

    @property
    def rounds(self) -> str:
        """How many there are, by benchmark; fewer than planned where the run was interrupted."""
        found = [len(self._by[key]) for key in self._by if key[1] == (self.ours or key[1])]
        least, most = min(found, default=0), max(found, default=0)
        return f"{least} rounds" if least == most else f"{least} to {most} rounds"

    def is_known(self, case: str) -> bool:
        """Whether the ratio to the best peer, if there is one, would show a difference of RESOLUTION."""
        ratio = self.to_best(case, self.ours) if self.ours else None
        return ratio is None or (ratio.high - ratio.low) / 2 <= RESOLUTION * ratio.value

    @property
    def fast_peers(self) -> list[str]:
        return [name for name in self.peers if name != SYSTEM]

    def of(self, case: str, name: str) -> dict[int, Sample]:
        return self._by.get((case, name), {})

    def median(self, case: str, name: str, get: Get) -> float | None:
        values = [get(sample) for sample in self.of(case, name).values()]
        return median(values) if values else None

    def best(
        self, case: str, names: Sequence[str], get: Get = time_of, rounds: Sequence[int] | None = None
    ) -> str | None:
        """Whose median is least, in these rounds."""
        found = []
        for name in names:
            values = [get(s) for number, s in self.of(case, name).items() if rounds is None or number in rounds]
            if values:
                found.append((median(values), name))
        return min(found)[1] if found else None

    def paired(self, case: str, ours: str, other: str, get: Get, rounds: Sequence[int]) -> list[float]:
        """The rounds' ratios, where both ran."""
        left, right = self.of(case, ours), self.of(case, other)
        return [get(left[r]) / get(right[r]) for r in rounds if r in left and r in right and get(right[r]) > 0]

    def ratio(self, case: str, ours: str, other: str, get: Get = time_of) -> Ratio | None:
        """To a named allocator, over all rounds."""
        values = self.paired(case, ours, other, get, sorted(self.of(case, ours)))
        return Ratio(median(values), *interval_of(values), other, len(values)) if values else None

    def halves(self, case: str, name: str) -> tuple[list[int], list[int]]:
        """Every other round; with a single one, both halves are that one, and the choice is not honest."""
        rounds = sorted(self.of(case, name))
        return (rounds, rounds) if len(rounds) < 2 else (rounds[::2], rounds[1::2])

    def to_best(self, case: str, ours: str, get: Get = time_of) -> Ratio | None:
        """To the best peer: each half of the rounds against the peer that was best in the other half."""
        first, second = self.halves(case, ours)
        values: list[float] = []
        chosen: list[str] = []
        for choose, compare in ((first, second), (second, first)):
            other = self.best(case, self.peers, get, choose)
            if other is not None:
                values += self.paired(case, ours, other, get, compare)
                chosen.append(other)
        if not values:
            return None
        return Ratio(median(values), *interval_of(values), "/".join(dict.fromkeys(chosen)), len(values))

    # --- over all benchmarks ---------------------------------------------------------------------------------

    def common(self, ours: str, other: str, group: str | None = None) -> list[str]:
        found = [case for case in self.cases if group in (None, case.group)]
        return [case.name for case in found if self.of(case.name, ours) and self.of(case.name, other)]

    def mean_ratio(self, ours: str, other: str, get: Get, group: str | None = None) -> Ratio | None:
        """The geometric mean over the benchmarks, of one group if it is named, that both ran, of the medians of their ratios.

        The interval is that of the means of the rounds in which all of those benchmarks ran."""
        cases = self.common(ours, other, group)
        if not cases:
            return None
        mean = geometric_mean(
            [median(self.paired(case, ours, other, get, sorted(self.of(case, ours)))) for case in cases]
        )
        whole = set.intersection(*({*self.of(case, ours)} & {*self.of(case, other)} for case in cases))
        rounds = [
            geometric_mean([self.paired(case, ours, other, get, [r])[0] for case in cases]) for r in sorted(whole)
        ]
        low, high = interval_of(rounds) if rounds else (0.0, math.inf)
        return Ratio(mean, min(low, mean), max(high, mean), other, len(cases))

    def means(self, ours: str, others: Sequence[str], get: Get, group: str | None = None) -> list[Ratio]:
        """To each of the others, the strongest of them first."""
        found = [ratio for other in others if (ratio := self.mean_ratio(ours, other, get, group)) is not None]
        return sorted(found, key=lambda ratio: -ratio.value)

    def own_cost(self, case: str, name: str) -> float | None:
        """Seconds per operation above the floor's."""
        floor, taken = self.median(case, FLOOR, time_of), self.median(case, name, time_of)
        return None if floor is None or taken is None else taken - floor

    def own_cost_cases(self) -> list[str]:
        return [case.name for case in self.cases if case.group == MICRO and self.of(case.name, FLOOR)]

    def own_cost_mean(self, name: str) -> float | None:
        """The geometric mean over the micro benchmarks, in seconds; None when one of them is missing."""
        costs = [self.own_cost(case, name) for case in self.own_cost_cases()]
        known = [max(cost, LEAST_COST) for cost in costs if cost is not None]
        return geometric_mean(known) if known and len(known) == len(costs) else None


# --- what has to be shown -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Claim:
    """A bound, what was found, and whether that keeps to it; None: not measured."""

    text: str
    found: str
    holds: bool | None


def _bounded(text: str, ratio: Ratio | None, bound: float) -> Claim:
    if ratio is None:
        return Claim(text, "not measured", None)
    found = f"{ratio.value:.3f} ({ratio.low:.3f}..{ratio.high:.3f}), {ratio.other}, {ratio.rounds} benchmarks"
    return Claim(text, found, ratio.value <= bound)


def _real(figures: Figures, ours: str) -> list[Claim]:
    """Real programs, by the strongest peer: first only where the whole interval says so."""
    found = []
    for what, get in (("time", time_of), ("peak memory", memory_of)):
        strongest = figures.means(ours, figures.fast_peers, get, REAL)
        if strongest:
            claim = _bounded(f"real programs, {what}, geometric mean, wholly below every fast peer's", strongest[0], 1.0)
            found.append(Claim(claim.text, claim.found, max(each.high for each in strongest) < 1.0))
    return found


def _worst(figures: Figures, ours: str) -> list[Claim]:
    found = [(case.name, ratio) for case in figures.cases if (ratio := figures.to_best(case.name, ours)) is not None]
    slower = [f"{name} {ratio.value:.2f}" for name, ratio in found if ratio.value > 1.03]
    first = [name for name, ratio in found if ratio.value <= 1.01]
    unknown = [name for name, _ in found if not figures.is_known(name)]
    if not found:
        return [Claim("no median above 1.03 x the best peer", "not measured", None)]
    return [
        Claim("no median above 1.03 x the best peer", ", ".join(slower) or "none", not slower),
        Claim(
            "first or within 1 % of the first on 30 of 44",
            f"{len(first)} of {len(found)}",
            44 * len(first) >= 30 * len(found),
        ),
        Claim(
            f"each ratio known to {RESOLUTION * 100:g} %",
            f"{len(found) - len(unknown)} of {len(found)}" + (f"; not {', '.join(unknown)}" if unknown else ""),
            not unknown,
        ),
    ]


def _memory(figures: Figures, ours: str, get: Get, what: str) -> list[Claim]:
    """The bounds of memory, once for all that is resident and once without what is the program's own."""
    leanest = figures.means(ours, figures.fast_peers, get)
    above = []
    for case in figures.cases:
        other = figures.best(case.name, figures.fast_peers, get)
        ratio = figures.ratio(case.name, ours, other, get) if other else None
        if ratio is not None and ratio.value > 1.10:
            above.append(f"{case.name} {ratio.value:.2f}")
    return [
        _bounded(f"{what}, geometric mean, <= 0.85 of the leanest fast peer", leanest[0] if leanest else None, 0.85),
        _bounded(
            f"{what}, geometric mean, <= 1.08 of the system's malloc", figures.mean_ratio(ours, SYSTEM, get), 1.08
        ),
        Claim(
            f"{what}: on no benchmark more than 1.10 x the leanest fast peer",
            ", ".join(above) or "none",
            not above if leanest else None,
        ),
    ]


def _cost(figures: Figures, ours: str) -> list[Claim]:
    mine = figures.own_cost_mean(ours)
    peers = [(cost, name) for name in figures.peers if (cost := figures.own_cost_mean(name)) is not None]
    text = "own cost above the floor, geometric mean, <= 0.7 of the best peer's"
    claims = [Claim(text, "not measured", None)]
    if mine is not None and peers:
        best, name = min(peers)
        claims = [
            Claim(text, f"{mine / best:.3f}: {mine * 1e9:.2f} ns, {name} {best * 1e9:.2f} ns", mine <= 0.7 * best)
        ]
    for case, bound in (("tiny_hot", 1.6), ("random_mixed", 1.25)):
        ratio = figures.ratio(case, ours, FLOOR)
        text = f"{case}: time <= {bound} x the floor's"
        said = f"{ratio.value:.3f} ({ratio.low:.3f}..{ratio.high:.3f})" if ratio else "not measured"
        claims.append(Claim(text, said, ratio.value <= bound if ratio else None))
    return claims


def by_plain(figures: Figures, case: str) -> float | None:
    """Our time of a member of the family by that of our malloc and free; None for these and for larger blocks."""
    if case in (PLAIN, *LARGER):
        return None
    plain = figures.of(PLAIN, HAKMEM)
    ratios = [sample.time / plain[number].time for number, sample in figures.of(case, HAKMEM).items() if number in plain]
    return median(ratios) if ratios else None


def family_claims(figures: Figures) -> list[Claim]:
    slow, dear = [], []
    for case in figures.family:
        ratio, plain = figures.to_best(case.name, HAKMEM), by_plain(figures, case.name)
        if ratio is not None and ratio.value > (3.0 if case.name == HUGE else 1.15):
            slow.append(f"{case.name} {ratio.value:.2f}")
        if plain is not None and plain > 1.5:
            dear.append(f"{case.name} {plain:.2f}")
    return [
        Claim("each member <= 1.15 x the best peer's time, 2 MB <= 3 x", ", ".join(slow) or "all", not slow),
        Claim("none above 1.5 x malloc and free", ", ".join(dear) or "none", not dear),
    ]


def system_claims(figures: Figures) -> list[Claim]:
    """The bound of memory that real programs have on musl."""
    names = [case.name for case in figures.cases if case.group == REAL]
    found = {name: ratio.value for name in names if (ratio := figures.ratio(name, HAKMEM, SYSTEM, memory_of)) is not None}
    said = ", ".join(f"{name} {value:.2f}" for name, value in found.items() if value > 1.2) or "all"
    text = "peak memory of each real program <= 1.20 x the system's malloc"
    return [Claim(text, said, max(found.values()) <= 1.2) if found else Claim(text, "not measured", None)]


def claims(figures: Figures) -> list[Claim]:
    """What the project says of itself, each with what this run has to say about it."""
    ours = figures.ours
    if ours is None:
        return []
    fastest = figures.means(ours, figures.peers, time_of)
    return [
        *_real(figures, ours),
        _bounded("time, geometric mean, <= 0.76 of the best peer's", fastest[0] if fastest else None, 0.76),
        _bounded(
            "time, geometric mean, <= 0.75 of the system's malloc", figures.mean_ratio(ours, SYSTEM, time_of), 0.75
        ),
        *_worst(figures, ours),
        *_memory(figures, ours, memory_of, "peak memory"),
        *(_memory(figures, ours, figures.beyond, "beyond the program's own") if figures.bare else []),
        *_cost(figures, ours),
    ]
