"""A snapshot of the library's figures, from a file of HAKMEM_STATS=json or from a running process, and advice based on
it. Groups, figures and columns of a newer library that this lab does not know are shown too."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, ValidationError

from hakmem_lab.terminal.amounts import in_bytes
from hakmem_lab.terminal.errors import LabError

if TYPE_CHECKING:
    from hakmem_lab.inspect.core import Dead

VERSION = 1
MEGABYTE = 1 << 20

# The parts of resident memory in the order of the bar; other parts come after them.
PARTS = ("live", "huge", "cached", "free_in_slabs", "frontier_slack", "empty", "metadata", "not_ours")
NOT_PARTS = ("sum", "rss", "unread_spans")


class Latency(BaseModel):
    model_config = ConfigDict(extra="allow")

    sum: int
    buckets: list[int]


class SuperSlab(BaseModel):
    """One row of the map; see slab_map.py."""

    model_config = ConfigDict(extra="allow")

    kind: str
    slabs: int
    spans: list[tuple[int, int, int, int, int]] = []
    dirty: int = 0


class UserHeap(BaseModel):
    """A user heap."""

    model_config = ConfigDict(extra="allow")

    serial: int
    name: str
    used_bytes: int = 0
    peak_bytes: int = 0
    live_bytes: int = 0
    live_blocks: int = 0
    cached_bytes: int = 0
    limit: int = 0
    refused: int = 0


class Snapshot(BaseModel):
    """One JSON object of HAKMEM_STATS=json. Groups are dictionaries of numbers; classes are rows by size."""

    model_config = ConfigDict(extra="allow")

    version: int
    pid: int | None = None
    pins: str | None = None
    classes: list[dict[str, int]] = []
    map: list[SuperSlab] | None = None
    heaps: list[UserHeap] | None = None
    profiled: bool | None = None  # of a running process: whether a heap profile is on

    @property
    def groups(self) -> dict[str, dict[str, int]]:
        """All groups of figures, known or not, in the file's order."""
        extra = self.model_extra or {}
        return {
            name: {key: value for key, value in group.items() if isinstance(value, int)}
            for name, group in extra.items()
            if isinstance(group, dict) and not name.startswith("latency_")
        }

    @property
    def latencies(self) -> dict[str, Latency]:
        extra = self.model_extra or {}
        return {
            name.removeprefix("latency_"): Latency.model_validate(value)
            for name, value in extra.items()
            if name.startswith("latency_")
        }

    def group(self, name: str) -> dict[str, int]:
        return self.groups.get(name, {})

    @property
    def by_books(self) -> bool:
        """Whether the ledger was made from outside, where free blocks are not examined one by one."""
        return (self.model_extra or {}).get("ledger_by") == "books"

    @property
    def parts(self) -> dict[str, int]:
        """The ledger's parts; each resident byte is in exactly one."""
        ledger = self.group("ledger")
        rest = [name for name in ledger if name not in PARTS and name not in NOT_PARTS]
        return {name: ledger[name] for name in (*PARTS, *rest) if name in ledger}


def from_text(content: str, name: str) -> Snapshot:
    if content.startswith(("# TYPE", "# HELP")):
        raise LabError(f"{name} is OpenMetrics, for Prometheus", "Give a file that HAKMEM_STATS=json:FILE wrote.")
    if content.startswith("hakmem: "):
        raise LabError(f"{name} is the text of HAKMEM_STATS=1", "Give a file that HAKMEM_STATS=json:FILE wrote.")
    try:
        return Snapshot.model_validate(json.loads(content))
    except json.JSONDecodeError as error:
        cut = "" if content.strip() else ": it is empty; the program still runs, or was killed"
        where = cut or f" (line {error.lineno}: {error.msg})"
        raise LabError(f"{name} is not a snapshot{where}", "Give a file that HAKMEM_STATS=json:FILE wrote.") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise LabError(
            f"{name} is not a snapshot: {where}: {first['msg']}", "Give a file that HAKMEM_STATS=json:FILE wrote."
        ) from None


def text_of(path: Path) -> str:
    """A file's text. An OSError if it is a device, which may have no end."""
    if path.is_char_device():
        raise OSError(errno.EINVAL, "it is a device")
    return path.read_text(encoding="utf-8", errors="replace")


def from_file(path: Path) -> Snapshot:
    try:
        return from_text(text_of(path), str(path))
    except OSError as error:
        raise LabError(f"{path}: {error.strerror}", "Give a file of HAKMEM_STATS=json:FILE, or a process id.") from None


def from_process(pid: int, with_map: bool = False) -> Snapshot:
    """A running process's current figures, with the ledger and, on request, the map of SuperSlabs."""
    from hakmem_lab.inspect import ledger, slab_map
    from hakmem_lab.inspect.live import Live

    live = Live(pid)
    found = live.snapshot()
    ledger.add(live, found)
    if live.is_profiled:
        found["profiled"] = True
    if with_map:
        found["map"] = slab_map.superslabs(live)
    return Snapshot.model_validate(found)


def from_core(dead: Dead, with_map: bool = False) -> Snapshot:
    """A dead process's last figures, without a ledger: a core does not tell which pages were resident."""
    from hakmem_lab.inspect import slab_map

    found = dead.snapshot()
    if with_map:
        found["map"] = slab_map.superslabs(dead)
    return Snapshot.model_validate(found)


def load(target: str, with_map: bool = False) -> Snapshot:
    """From a file or, if there is none of that name, from a process."""
    path = Path(target)
    if path.exists() or not target.isdigit():
        return from_file(path)
    return from_process(int(target), with_map)


# --- what follows from it ---------------------------------------------------------------------------------------------


def rate(hits: int, misses: int) -> float | None:
    return hits / (hits + misses) if hits + misses > 0 else None


def hit_rate(row: dict[str, int]) -> float | None:
    """A class's share of mallocs that needed no refill; counted only with HAKMEM_STATS=exact."""
    if "mallocs" not in row or row["mallocs"] == 0:
        return None
    return max(row["mallocs"] - row.get("misses", 0), 0) / row["mallocs"]


def pairs(figures: dict[str, int]) -> dict[str, float]:
    """The hit rates of all pairs of counters X_hits and X_misses, or hits and misses."""
    found = {}
    for name, hits in figures.items():
        if name == "hits" or name.endswith("_hits"):
            of = rate(hits, figures.get(name.removesuffix("hits") + "misses", 0))
            if of is not None and name.removesuffix("hits") + "misses" in figures:
                found[name.removesuffix("hits").rstrip("_") or "hit rate"] = of
    return found


def _worst_class(snapshot: Snapshot, column: str) -> dict[str, int] | None:
    rows = [row for row in snapshot.classes if row.get(column)]
    return max(rows, key=lambda row: row[column] * (1 if column == "pinned" else row["size"])) if rows else None


def _cached(snapshot: Snapshot, size: int) -> str:
    worst = _worst_class(snapshot, "cached")
    which = f", most of it in blocks of {worst['size']} bytes" if worst else ""
    return (
        f"{in_bytes(size)} lie ready in the threads' caches{which}; a smaller thread_budget "
        "(HAKMEM_THREAD_BUDGET), or process_budget for all threads together, bounds them."
    )


def _free_in_slabs(snapshot: Snapshot, size: int) -> str:
    worst = _worst_class(snapshot, "pinned")
    if worst and 10 * sum(row.get("pinned", 0) for row in snapshot.classes) < size:
        return (
            f"{in_bytes(size)} are free pages of slabs that stay with their size, as all do in hardened mode; they go "
            "back as HAKMEM_RETURN allows, at once by hak_collect()."
        )
    which = f", most of it between live blocks of {worst['size']} bytes" if worst else ""
    return (
        f"{in_bytes(size)} are free blocks in slabs that other blocks keep in use{which}; no option returns them: "
        "they serve the next requests of their sizes, and are returned once their neighbours are freed."
    )


def _frontier(_: Snapshot, size: int) -> str:
    return (
        f"{in_bytes(size)} are the unused ends of slabs; a smaller refill_count (HAKMEM_REFILL_COUNT) prepares "
        "fewer blocks ahead, and the rest is the price of the size classes in use."
    )


def _empty(_: Snapshot, size: int) -> str:
    return (
        f"{in_bytes(size)} are empty slabs and SuperSlabs that wait for use; a larger "
        "HAKMEM_RETURN returns them sooner, hak_collect() at once."
    )


def _metadata(_: Snapshot, size: int) -> str:
    return f"{in_bytes(size)} are the library's own tables; fewer threads at once need fewer."


PINS = {
    "cached": _cached,
    "free_in_slabs": _free_in_slabs,
    "frontier_slack": _frontier,
    "empty": _empty,
    "metadata": _metadata,
}


def what_pins(snapshot: Snapshot) -> str | None:
    """One sentence: the largest part of resident memory that is not live blocks, and the option that would change it.
    None without a ledger."""
    parts = snapshot.parts
    if not parts:
        return None
    ours = {name: size for name, size in parts.items() if name in PINS}
    total, held = sum(parts.values()), parts.get("live", 0) + parts.get("huge", 0)
    largest = max(ours, key=lambda name: ours[name], default=None)
    if largest is None or ours[largest] == 0 or ours[largest] * 20 < total:
        where = "live blocks" if held >= parts.get("not_ours", 0) else "outside of HAKMEM"
        return (
            f"Nothing to speak of is pinned by the allocator: {in_bytes(max(held, parts.get('not_ours', 0)))} of "
            f"{in_bytes(total)} are {where}; no option changes that."
        )
    return PINS[largest](snapshot, ours[largest])
