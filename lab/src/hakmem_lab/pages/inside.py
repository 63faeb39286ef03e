"""Pages on the allocator in a process: a snapshot, and a recording of many."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import plotly.graph_objects as go

from hakmem_lab.inspect import snapshot_tables
from hakmem_lab.inspect.snapshots import MEGABYTE, Snapshot, hit_rate, pairs, what_pins
from hakmem_lab.pages.inputs import Look, Recording
from hakmem_lab.pages.page import COLOURS, Cell, Page, Verdict
from hakmem_lab.terminal.amounts import counted, in_bytes

PART_COLOURS = dict(zip(snapshot_tables.MEANINGS, COLOURS, strict=False))
STATES = {"free": 0, "unused": 1, "huge": 2, "huge_tail": 2, "hole": 3, "unknown": 3}
STATE_NAMES = ("free SuperSlab", "unused slab", "huge block", "not ours")
BUSIEST = 8
STEADY = 1.1  # the ratio of the largest to the smallest resident memory of a steady part: 5 % around the middle


def in_mib(size: float) -> float:
    return size / MEGABYTE


# --- a snapshot -------------------------------------------------------------------------------------------------------


def ledger_chart(snapshot: Snapshot) -> go.Figure:
    """Resident memory by part, as one bar."""
    figure = go.Figure()
    for name, size in snapshot.parts.items():
        figure.add_bar(
            y=["resident"],
            x=[in_mib(size)],
            name=f"{name}: {snapshot_tables.MEANINGS.get(name, '')}",
            orientation="h",
            marker_color=PART_COLOURS.get(name, COLOURS[-1]),
            hovertemplate=f"{name}: {in_bytes(size)}<extra></extra>",
        )
    figure.update_layout(
        barmode="stack", title="Resident memory", xaxis_title="MiB", height=300, legend={"orientation": "h", "y": -0.4}
    )
    figure.update_yaxes(visible=False)
    return figure


def histogram(snapshot: Snapshot) -> go.Figure:
    """The bytes in the blocks of each size class."""
    rows = snapshot.classes
    figure = go.Figure()
    for name, what in (("live", "live blocks"), ("cached", "in threads' caches")):
        figure.add_bar(
            x=[f"{row['size']:,}" for row in rows],
            y=[in_mib(row.get(name, 0) * row["size"]) for row in rows],
            customdata=[row.get(name, 0) for row in rows],
            hovertemplate="%{x} bytes: %{customdata:,} blocks, %{y:.3f} MiB<extra>" + what + "</extra>",
            name=what,
        )
    figure.update_layout(barmode="stack", title="By size class", yaxis_title="MiB", height=400)
    figure.update_xaxes(type="category", title="block size, bytes")
    return figure


def hits_chart(snapshot: Snapshot) -> tuple[go.Figure, str]:
    """The hit rates of the caches, or misses if calls were not counted, with a sentence on how to read the chart."""
    figure = go.Figure()
    counted = [row for row in snapshot.classes if hit_rate(row) is not None]
    if counted:
        figure.add_bar(
            x=[f"{row['size']:,}" for row in counted],
            y=[100 * (hit_rate(row) or 0.0) for row in counted],
            customdata=[row["mallocs"] for row in counted],
            hovertemplate="%{x} bytes: %{y:.3f} % of %{customdata:,} calls<extra></extra>",
        )
        figure.update_layout(title="Hit rate of the cache by size class", yaxis_title="% of mallocs", height=360)
        note = "The share of mallocs that the thread's cache served."
    else:
        figure.add_bar(
            x=[f"{row['size']:,}" for row in snapshot.classes],
            y=[row.get("misses", 0) for row in snapshot.classes],
            customdata=[row.get("refilled", 0) for row in snapshot.classes],
            hovertemplate="%{x} bytes: %{y:,} misses brought %{customdata:,} blocks<extra></extra>",
        )
        figure.update_layout(title="Misses of the cache by size class", yaxis_title="misses", height=360)
        note = "Calls were not counted, so the hit rate is unknown; HAKMEM_STATS=exact counts them."
    figure.update_xaxes(type="category", title="block size, bytes")
    return figure, note


def map_chart(snapshot: Snapshot) -> go.Figure:
    """A row per SuperSlab with a cell per slab: how full it is; other memory has its own colours."""
    rows = snapshot.map or []
    columns = max((each.slabs for each in rows), default=0)
    full: list[list[float | None]] = []
    states: list[list[int | None]] = []
    words: list[list[str]] = []
    for each in rows:
        share: list[float | None] = [None] * columns
        state: list[int | None] = [STATES["unused"] if each.kind == "in_slabs" else STATES.get(each.kind, 3)] * columns
        word = [STATE_NAMES[state[0] or 0]] * columns
        for first, slabs, size, taken, blocks in each.spans:
            for slab in range(first, min(first + slabs, columns)):
                share[slab], state[slab] = 100.0 * taken / max(blocks, 1), None
                word[slab] = f"{size:,} bytes: {taken:,} of {blocks:,} blocks used"
        full.append(share)
        states.append(state)
        words.append(word)
    figure = go.Figure()
    greys = ["#ffffff", "#dfe3ea", "#9333ea", "#5b6575"]
    scale = [[(place + edge) / 4, colour] for place, colour in enumerate(greys) for edge in (0, 1)]
    hover = {
        "text": words,
        "hovertemplate": "SuperSlab %{y}, slab %{x}<br>%{text}<extra></extra>",
        "xgap": 1,
        "ygap": 1,
    }
    figure.add_heatmap(z=states, zmin=-0.5, zmax=3.5, colorscale=scale, showscale=False, **hover)
    figure.add_heatmap(z=full, zmin=0, zmax=100, colorscale="YlGnBu", colorbar={"title": "used, %"}, **hover)
    figure.update_yaxes(title="SuperSlab", autorange="reversed")
    figure.update_xaxes(title="slab of 64 KiB")
    figure.update_layout(title="Map of SuperSlabs", height=min(2000, 220 + 14 * len(rows)))
    return figure


def latency_chart(snapshot: Snapshot) -> go.Figure:
    """The times of the slow paths."""
    figure = go.Figure()
    for name, found in snapshot.latencies.items():
        figure.add_bar(x=[f"< {2**place:,}" for place in range(len(found.buckets))], y=found.buckets, name=name)
    figure.update_xaxes(type="category", title="ns")
    figure.update_layout(title="Times of slow paths", yaxis_title="calls", height=360)
    return figure


def snapshot_verdict(of: str, snapshot: Snapshot) -> Verdict:
    parts, pinned = snapshot.parts, what_pins(snapshot)
    if parts:
        held = parts.get("live", 0) + parts.get("huge", 0)
        figure = f"{in_bytes(sum(parts.values()))} resident, {in_bytes(held)} in the program's hands"
    else:
        figure = f"{in_bytes(snapshot.group('bytes').get('live', 0))} live, by the counters"
    missing = "There is no ledger of resident memory: HAKMEM_STATS_LEDGER=1 adds it."
    return Verdict(of, "MEMORY", figure, [pinned or missing])


def snapshot_body(page: Page, snapshot: Snapshot) -> None:
    """Charts and tables of one snapshot."""
    if snapshot.parts:
        by_books = " Read from outside: free blocks are known by counters only." if snapshot.by_books else ""
        page.chart(ledger_chart(snapshot), "Every resident byte of the process is in one part." + by_books)
    if snapshot.classes:
        page.chart(histogram(snapshot))
        page.chart(*hits_chart(snapshot))
    if snapshot.map:
        page.chart(map_chart(snapshot), "Dark slabs are full. Slabs that stay pale are the cost of fragmentation.")
    if snapshot.latencies:
        page.chart(latency_chart(snapshot))
    if snapshot.classes:
        names = [
            name for name in snapshot_tables.class_columns(snapshot) if any(row.get(name) for row in snapshot.classes)
        ]
        rows: list[list[Cell]] = []
        for row in snapshot.classes:
            rate = hit_rate(row)
            rows.append([*(row.get(name, 0) for name in names), None if rate is None else 100 * rate])
        page.heading("Size classes")
        page.table([*names, "hit rate %"], rows)
    rates = {f"{group} {name}": each for group, found in snapshot.groups.items() for name, each in pairs(found).items()}
    if rates:
        page.table(["hit rate of", "%"], [[name, 100 * each] for name, each in rates.items()])
    figures: list[list[Cell]] = [
        [g, name, value] for g, found in snapshot.groups.items() for name, value in found.items()
    ]
    if figures:
        page.heading("All figures")
        page.table(["group", "figure", "value"], figures)


# --- a recording ------------------------------------------------------------------------------------------------------


def over_time_chart(looks: Sequence[Look]) -> go.Figure:
    """Resident memory by state over time."""
    began = looks[0].time
    times = [each.time - began for each in looks]
    names = list(dict.fromkeys(name for each in looks for name in each.snapshot.parts))
    figure = go.Figure()
    for name in names:
        figure.add_scatter(
            x=times,
            y=[in_mib(each.snapshot.parts.get(name, 0)) for each in looks],
            name=name,
            mode="lines",
            stackgroup="ledger",
            line={"width": 0.5, "color": PART_COLOURS.get(name, COLOURS[-1])},
        )
    figure.add_scatter(
        x=times,
        y=[in_mib(each.snapshot.group("ledger").get("rss", 0)) for each in looks],
        name="RSS, by the kernel",
        mode="lines",
        line={"color": "#808a9b", "dash": "dot"},
    )
    figure.update_layout(
        title="Resident memory over time", xaxis_title="seconds since the first sample", yaxis_title="MiB", height=420
    )
    return figure


def class_rates(look: Look, name: str) -> dict[int, float]:
    """A column of the classes as rates per second, by size."""
    rows = (look.rates or {}).get("classes", [])
    return {int(row["size"]): float(row[name]) for row in rows if name in row}


def rates_chart(looks: Sequence[Look]) -> go.Figure:
    """Misses per second of the classes with the most misses."""
    began = looks[0].time
    rated = [each for each in looks if each.rates is not None]
    totals: dict[int, float] = {}
    for each in rated:
        for size, value in class_rates(each, "misses").items():
            totals[size] = totals.get(size, 0.0) + value
    busiest = sorted(sorted(totals, key=lambda size: -totals[size])[:BUSIEST])
    figure = go.Figure()
    for size in busiest:
        figure.add_scatter(
            x=[each.time - began for each in rated],
            y=[class_rates(each, "misses").get(size, 0.0) for each in rated],
            name=f"{size:,} bytes",
            mode="lines",
        )
    figure.update_layout(
        title="Misses of the cache over time",
        xaxis_title="seconds since the first sample",
        yaxis_title="per second",
        height=380,
    )
    return figure


def hit_rates_chart(looks: Sequence[Look]) -> go.Figure | None:
    """The hit rate of all caches together over time; None if calls were not counted."""
    began = looks[0].time
    points = []
    for each in looks:
        calls = sum(class_rates(each, "mallocs").values())
        if calls > 0:
            points.append((each.time - began, 100 * max(0.0, 1 - sum(class_rates(each, "misses").values()) / calls)))
    if not points:
        return None
    figure = go.Figure()
    figure.add_scatter(x=[at for at, _ in points], y=[rate for _, rate in points], mode="lines+markers")
    figure.update_layout(
        title="Hit rate over time", xaxis_title="seconds since the first sample", yaxis_title="% of mallocs", height=340
    )
    return figure


def resident(look: Look) -> int:
    return look.snapshot.group("ledger").get("rss", 0)


def steady_part(looks: Sequence[Look]) -> Sequence[Look]:
    """The longest period in which resident memory stays within 5 % of one size; empty if it is shorter than a tenth of
    the recording."""
    first, best = 0, looks[:0]
    least: deque[int] = deque()  # indices in the period, by ascending size
    most: deque[int] = deque()
    for place, look in enumerate(looks):
        size = resident(look)
        while least and resident(looks[least[-1]]) >= size:
            least.pop()
        while most and resident(looks[most[-1]]) <= size:
            most.pop()
        least.append(place)
        most.append(place)
        while resident(looks[most[0]]) > STEADY * resident(looks[least[0]]):
            first += 1
            for ends in (least, most):
                while ends[0] < first:
                    ends.popleft()
        if not best or look.time - looks[first].time > best[-1].time - best[0].time:
            best = looks[first : place + 1]
    long = len(best) > 1 and 10 * (best[-1].time - best[0].time) >= looks[-1].time - looks[0].time
    return best if long else looks[:0]


def of_middling_size(looks: Sequence[Look]) -> Look:
    """The sample with the median of resident memory, which represents all of them."""
    return sorted(looks, key=resident)[len(looks) // 2]


def recording_verdict(of: str, found: Recording) -> Verdict:
    """The parts of resident memory at its peak, and while it was steady."""
    looks = found.looks
    began, peak = looks[0].time, max(looks, key=resident)
    sizes = f"{in_bytes(min(map(resident, looks)))} to {in_bytes(resident(peak))}"
    said = [
        f"{counted(len(looks), 'sample')}. The peak, after {peak.time - began:.1f} s, is {in_bytes(resident(peak))}: "
        f"{what_pins(peak.snapshot) or 'no ledger.'}"
    ]
    steady = steady_part(looks)
    if steady:
        middle = of_middling_size(steady)
        said.append(
            f"Steady from {steady[0].time - began:.1f} to {steady[-1].time - began:.1f} s at "
            f"{in_bytes(resident(middle))}: {what_pins(middle.snapshot) or 'no ledger.'}"
        )
    else:
        said.append("Resident memory is never steady for a tenth of the time.")
    figure = f"{sizes} resident in {looks[-1].time - began:.1f} s"
    return Verdict(of, "OVER TIME", figure, [*said, found.problem] if found.problem else said)


def recording_body(page: Page, found: Recording) -> None:
    """Charts over time, then the peak and the steady period as snapshots."""
    page.chart(over_time_chart(found.looks))
    if any(each.rates for each in found.looks):
        page.chart(rates_chart(found.looks))
    hits = hit_rates_chart(found.looks)
    if hits is not None:
        page.chart(hits)
    began, peak = found.looks[0].time, max(found.looks, key=resident)
    steady = steady_part(found.looks)
    if steady:
        page.heading("While it is steady")
        page.chart(ledger_chart(of_middling_size(steady).snapshot))
    page.heading(f"At the peak, after {peak.time - began:.1f} s")
    snapshot_body(page, peak.snapshot.model_copy(update={"map": None}))
    mapped = [each for each in found.looks if each.snapshot.map]
    if mapped:
        nearest = min(mapped, key=lambda each: abs(each.time - peak.time))
        page.chart(
            map_chart(nearest.snapshot),
            f"After {nearest.time - began:.1f} s, at the sample with a map closest to the peak.",
        )
