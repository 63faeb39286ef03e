"""Snapshots on the terminal: tables of classes and of groups, and the ledger as a bar."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from hakmem_lab.inspect.snapshots import NOT_PARTS, Snapshot, hit_rate, pairs, what_pins
from hakmem_lab.terminal import tables
from hakmem_lab.terminal.amounts import in_bytes, number

COLOURS = {
    "live": "green",
    "huge": "bright_green",
    "cached": "cyan",
    "free_in_slabs": "yellow",
    "frontier_slack": "bright_yellow",
    "empty": "magenta",
    "metadata": "blue",
    "not_ours": "bright_black",
}
MEANINGS = {
    "live": "live blocks",
    "huge": "huge blocks (> 1 MiB)",
    "cached": "ready in threads' caches",
    "free_in_slabs": "free blocks in used slabs",
    "frontier_slack": "ends of slabs",
    "empty": "unused slabs and SuperSlabs",
    "metadata": "the library's tables",
    "not_ours": "code, stacks, other mappings",
}
# The columns of classes and the figures of groups that are shown as rates.
CLASS_RATES = ("misses", "refilled", "drained", "collected", "mallocs", "frees")
FIGURE_RATES = {
    "remote": ("frees", "published", "lock_waits"),
    "system": ("mmap", "munmap", "madvise", "mremap"),
    "process": ("minor_faults",),
    "superslabs": ("opened", "closed"),
    "huge": ("allocated", "freed"),
}
BYTE_GROUPS = ("bytes", "ledger")
BAR_WIDTH = 72
MOST_HEAPS = 20
BYTE_COLUMNS = ("pinned",)


EIGHTHS = "▁▂▃▄▅▆▇█"
MARKS = {"free": "free", "huge": "huge", "huge_tail": "huge, goes on", "hole": "not ours"}


def superslab_map(snapshot: Snapshot) -> RenderableType | None:
    """A line per SuperSlab with a character per slab: how full it is; `.` is unused."""
    if not snapshot.map:
        return None
    table = Table(title="SuperSlabs (a character per slab: how full; . unused)", title_justify="left", box=None)
    table.title_style = "bold"
    table.add_column("", justify="right")
    table.add_column("slabs", no_wrap=True)
    table.add_column("")
    for place, each in enumerate(snapshot.map):
        cells = ["."] * each.slabs
        used = held = 0
        for first, slabs, size, taken, blocks in each.spans:
            cells[first : first + slabs] = EIGHTHS[min(7, 8 * taken // max(blocks, 1))] * slabs
            used, held = used + slabs, held + taken * size
        said = MARKS.get(each.kind, f"{used} used, {in_bytes(held)} in blocks handed out")
        table.add_row(str(place), "".join(cells) if each.kind == "in_slabs" else "", said)
    return table


def is_bytes(group: str, name: str) -> bool:
    return (group in BYTE_GROUPS and name not in NOT_PARTS[2:]) or name.endswith("bytes")


def shares(sizes: Iterable[int], width: int) -> list[int]:
    """Integers that add up to width and are closest to the sizes' shares (largest remainders)."""
    values = list(sizes)
    total = sum(values)
    if total == 0:
        return [0] * len(values)
    whole = [value * width // total for value in values]
    by_rest = sorted(range(len(values)), key=lambda i: values[i] * width % total, reverse=True)
    for i in by_rest[: width - sum(whole)]:
        whole[i] += 1
    return whole


def bar(parts: dict[str, int], width: int = BAR_WIDTH) -> Text:
    line = Text()
    for name, cells in zip(parts, shares(parts.values(), width), strict=True):
        line.append("█" * cells, COLOURS.get(name, "white"))
    return line


def ledger(snapshot: Snapshot) -> RenderableType | None:
    """The bar, one line per part, and their sum beside the kernel's figure."""
    parts = snapshot.parts
    if not parts:
        return None
    total = sum(parts.values())
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(justify="left")
    for _ in range(2):
        table.add_column(justify="right")
    table.add_column()
    for name, size in parts.items():
        label = Text("█ ", COLOURS.get(name, "white")).append(name, "default")
        table.add_row(label, in_bytes(size), f"{100 * size / total:5.1f} %" if total else "", MEANINGS.get(name, ""))
    rss = snapshot.group("ledger").get("rss")
    beside = f"the kernel says {in_bytes(rss)}" if rss is not None else ""
    table.add_row("  sum", in_bytes(total), "100.0 %", beside, end_section=True)
    title = Text("Resident memory", "bold")
    if snapshot.by_books:
        title.append("  (from outside: free blocks by the counters, ends of slabs among them)", "dim")
    return Group(title, bar(parts), table)


@dataclass(frozen=True)
class Rates:
    """Rates per second since an earlier snapshot of the same process."""

    former: Snapshot
    seconds: float

    def of_class(self, row: dict[str, int], name: str) -> float:
        before = next((each for each in self.former.classes if each["size"] == row["size"]), {})
        return max(row.get(name, 0) - before.get(name, 0), 0) / self.seconds

    def of_figure(self, snapshot: Snapshot, group: str, name: str) -> float:
        now, before = snapshot.group(group).get(name, 0), self.former.group(group).get(name, 0)
        return max(now - before, 0) / self.seconds

    def document(self, snapshot: Snapshot) -> dict[str, Any]:
        """All rates up to this snapshot, for JSON."""
        found: dict[str, Any] = {
            "classes": [
                {"size": row["size"], **{name: self.of_class(row, name) for name in CLASS_RATES if name in row}}
                for row in snapshot.classes
            ]
        }
        for group, names in FIGURE_RATES.items():
            there = snapshot.group(group)
            found[group] = {name: self.of_figure(snapshot, group, name) for name in names if name in there}
        return found


def percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.2f} %"


def class_columns(snapshot: Snapshot) -> list[str]:
    """The columns of all rows: the first row's in its order, then the others."""
    seen: dict[str, None] = {}
    for row in snapshot.classes:
        seen.update(dict.fromkeys(row))
    return list(seen)


def classes(snapshot: Snapshot) -> RenderableType:
    exact = any(hit_rate(row) is not None for row in snapshot.classes)
    names = [
        name
        for name in class_columns(snapshot)
        if any(row.get(name) for row in snapshot.classes) and not (exact and name == "hits")
    ]
    table = numbers_table("Size classes (blocks; zero columns left out)", [*names, *(["hit rate"] if exact else [])])
    for row in snapshot.classes:
        cells = [in_bytes(row.get(name, 0)) if name in BYTE_COLUMNS else number(row.get(name, 0)) for name in names]
        table.add_row(*cells, *([percent(hit_rate(row))] if exact else []))
    return table


def groups(snapshot: Snapshot) -> RenderableType:
    """One line for every group but the ledger, including groups of a newer library."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for group, figures in snapshot.groups.items():
        if group == "ledger" or not figures:
            continue
        line = Text()
        for name, value in figures.items():
            line.append(f"{name} ", "dim").append(in_bytes(value) if is_bytes(group, name) else number(value))
            line.append("   ")
        for name, share in pairs(figures).items():
            line.append(f"{name} ", "dim").append(percent(share)).append("   ")
        table.add_row(group, line)
    return table


def numbers_table(title: str, names: Iterable[str]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def own_heaps(snapshot: Snapshot, most: int = MOST_HEAPS) -> RenderableType | None:
    """The user heaps, those with the most memory first."""
    if not snapshot.heaps:
        return None
    found = sorted(snapshot.heaps, key=lambda each: (-each.used_bytes, each.serial))
    beyond = f", the largest {most} of {number(len(found))}" if len(found) > most else ""
    names = ["used", "most", "live", "blocks", "cached", "limit", "refused"]
    table = Table(title=f"User heaps{beyond}", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    table.add_column("serial", justify="right", no_wrap=True)
    table.add_column("name")
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for each in found[:most]:
        sizes = [in_bytes(size) for size in (each.used_bytes, each.peak_bytes, each.live_bytes)]
        limit = in_bytes(each.limit) if each.limit else "none"
        rest = [number(each.live_blocks), in_bytes(each.cached_bytes), limit, number(each.refused)]
        table.add_row(number(each.serial), Text(each.name), *sizes, *rest)
    return table


def latencies(snapshot: Snapshot) -> RenderableType | None:
    """The count, the mean and the bounds of the median and of the 99th percentile of each histogram."""
    if not snapshot.latencies:
        return None
    table = Table(title="Slow paths", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for name in ("of", "count", "mean", "half below", "99 % below"):
        table.add_column(name, justify="left" if name == "of" else "right")
    for name, histogram in snapshot.latencies.items():
        count = sum(histogram.buckets)
        mean = f"{histogram.sum / count:.0f} ns" if count else ""
        table.add_row(name, number(count), mean, *(below(histogram.buckets, share) for share in (0.5, 0.99)))
    return table


def below(buckets: list[int], share: float) -> str:
    """The upper bound of the bucket that contains this quantile; bucket i counts latencies below 2^i ns."""
    wanted, seen = share * sum(buckets), 0
    for i, count in enumerate(buckets):
        seen += count
        if seen >= wanted and seen > 0:
            return f"{number(2**i)} ns" if i + 1 < len(buckets) else "longer"
    return ""


def show(console: Console, each: RenderableType) -> None:
    """Prints a table without cutting anything, also if the output is a narrow terminal or not one."""
    if isinstance(each, Table) and each.show_header:
        tables.show(console, each)
    else:
        console.print(each)


def whole(snapshot: Snapshot) -> list[RenderableType]:
    """All that `hakmem stats` shows, from top to bottom."""
    shown: list[RenderableType | None] = [classes(snapshot), groups(snapshot), own_heaps(snapshot), latencies(snapshot)]
    shown.append(ledger(snapshot))
    shown.append(superslab_map(snapshot))
    sentence = what_pins(snapshot)
    if sentence:
        shown.append(Text(sentence))
    return [each for each in shown if each is not None]
