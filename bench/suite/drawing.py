"""Three charts as SVG text: small, without scripts, readable on light and dark ground."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

INK, GRID, OURS, THEIRS, GOOD, BAD = "#808080", "#80808055", "#d1495b", "#4a7fb5", "#4c9f70", "#d1495b"
FONT = 'font-family="sans-serif" font-size="13"'


@dataclass(frozen=True)
class Point:
    label: str
    x: float
    y: float
    ours: bool


@dataclass(frozen=True)
class Bar:
    label: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Curve:
    """One small chart: by name, points from left to right."""

    label: str
    points: Mapping[str, Sequence[tuple[float, float]]]


def text(x: float, y: float, said: str, anchor: str = "start", colour: str = INK, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" {more}>{escape(said)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, colour: str = GRID, width: float = 1) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"/>'


def document(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" {FONT}>'
    return "\n".join([opening, f"<title>{escape(title)}</title>", *parts, "</svg>"]) + "\n"


def steps(low: float, high: float, wanted: int = 6) -> list[float]:
    """Round numbers from at most `low` to at least `high`."""
    rough = (high - low) / wanted or 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    first, last = math.floor(low / step), max(math.ceil(high / step), math.floor(low / step) + 1)
    return [number * step for number in range(first, last + 1)]


def label_place(x: float, y: float, label: str, taken: Sequence[tuple[float, float, float, float]]) -> tuple[float, float, str]:
    """Where a point's name meets no other name and no point: right of it if that is free, else left, above, below, further away."""
    width = 7.2 * len(label)
    for distance in range(0, 60, 6):
        for to_x, to_y, anchor in (
            (9 + distance, 4, "start"),
            (-9 - distance, 4, "end"),
            (0, -9 - distance, "middle"),
            (0, 18 + distance, "middle"),
            (9, -5 - distance, "start"),
            (9, 14 + distance, "start"),
            (-9, 14 + distance, "end"),
            (-9, -5 - distance, "end"),
        ):
            left = x + to_x - {"start": 0, "middle": width / 2, "end": width}[anchor]
            box = (left, y + to_y - 10, left + width, y + to_y + 3)
            if not any(box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3] for other in taken):
                return x + to_x, y + to_y, anchor
    return x + 9, y + 4, "start"


def scatter(points: Sequence[Point], title: str, x_title: str, y_title: str) -> str:
    """One point per allocator."""
    width, height, left, right, top, bottom = 720, 440, 60, 60, 56, 50
    xs, ys = (
        steps(min(p.x for p in points), max(p.x for p in points)),
        steps(min(p.y for p in points), max(p.y for p in points)),
    )

    def at_x(value: float) -> float:
        return left + (value - xs[0]) / (xs[-1] - xs[0]) * (width - left - right)

    def at_y(value: float) -> float:
        return height - bottom - (value - ys[0]) / (ys[-1] - ys[0]) * (height - top - bottom)

    parts = [text(8, 20, title, more='font-weight="600"')]
    for value in xs:
        parts += [
            line(at_x(value), top, at_x(value), height - bottom),
            text(at_x(value), height - bottom + 18, f"{value:.3g}", "middle"),
        ]
    for value in ys:
        parts += [
            line(left, at_y(value), width - right, at_y(value)),
            text(left - 8, at_y(value) + 4, f"{value:.3g}", "end"),
        ]
    parts += [text((left + width - right) / 2, height - 10, x_title, "middle"), text(8, top - 14, y_title)]
    places = {point.label: (at_x(point.x), at_y(point.y)) for point in points}
    taken = [(x - 6, y - 6, x + 6, y + 6) for x, y in places.values()]
    for point in sorted(points, key=lambda p: not p.ours):
        x, y = places[point.label]
        at, below, anchor = label_place(x, y, point.label, taken)
        begin = at - {"start": 0.0, "middle": 3.6, "end": 7.2}[anchor] * len(point.label)
        taken.append((begin, below - 10, begin + 7.2 * len(point.label), below + 3))
        colour = OURS if point.ours else THEIRS
        parts += [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{6 if point.ours else 4.5}" fill="{colour}"/>',
            text(at, below, point.label, anchor, colour, 'font-weight="600"' if point.ours else ""),
        ]
    return document(width, height, title, parts)


def bars(rows: Sequence[Bar], title: str) -> str:
    """A ratio per row on a logarithmic scale, with its interval; 1 is the middle line."""
    width, left, right, top, pitch = 720, 140, 60, 50, 18
    height = top + pitch * len(rows) + 20
    reach = max([0.2, *(abs(math.log(value)) for row in rows for value in (row.value, row.low, row.high))])

    def at(value: float) -> float:
        return left + (math.log(value) / reach + 1) / 2 * (width - left - right)

    marks = [1.0]
    for mark in (0.05, 0.1, 0.2, 0.5, 2, 5, 10, 20, 0.7, 1.5, 0.85, 1.2):
        if abs(math.log(mark)) <= reach and all(abs(at(mark) - at(other)) > 32 for other in marks):
            marks.append(mark)
    parts = [text(8, 20, title)]
    for mark in marks:
        parts += [
            line(at(mark), top - 6, at(mark), height - 14, INK if mark == 1 else GRID),
            text(at(mark), top - 10, f"{mark:g}", "middle"),
        ]
    for place, row in enumerate(rows):
        y = top + pitch * place + pitch / 2
        first, last = sorted((at(1), at(row.value)))
        colour = BAD if row.low > 1 else GOOD if row.high < 1 else INK
        parts += [
            text(left - 8, y + 4, row.label, "end"),
            f'<rect x="{first:.1f}" y="{y - 5:.1f}" width="{max(last - first, 1):.1f}" height="10" fill="{colour}" fill-opacity="0.6"/>',
            line(at(row.low), y, at(row.high), y, colour, 2),
            text(width - right + 8, y + 4, f"{row.value:.2f}"),
        ]
    return document(width, height, title, parts)


TONES = ("#4a7fb5", "#4c9f70", "#c98a2b", "#8a63b5", "#3aa6a6", "#b0568f", "#6d7f35", "#7a6a5a", "#5b5fc7", "#a04040")
LOWEST = 0.001


def curves(charts: Sequence[Curve], ours: str, title: str) -> str:
    """Small charts in rows of two, both axes logarithmic; what is less than a thousandth lies on the ground line."""
    width, tall, wide, top = 760, 240, 380, 70
    names = list(dict.fromkeys(name for chart in charts for name in chart.points))
    others = [name for name in names if name != ours]
    colour = {name: OURS if name == ours else TONES[others.index(name) % len(TONES)] for name in names}
    parts = [text(8, 20, title)]
    for place, name in enumerate(names):
        x, y = 8 + place % 6 * 124, 40 + place // 6 * 16
        parts += [line(x, y - 4, x + 16, y - 4, colour[name], 3), text(x + 20, y, name, colour=colour[name])]
    for place, chart in enumerate(charts):
        parts += small(chart, colour, ours, 50 + place % 2 * wide, top + place // 2 * tall, wide - 70, tall - 60)
    return document(width, top + (len(charts) + 1) // 2 * tall, title, parts)


def small(chart: Curve, colour: Mapping[str, str], ours: str, left: float, top: float, width: float, height: float) -> list[str]:
    values = [point for points in chart.points.values() for point in points]
    highest = max([1.0, *(y for _, y in values)])
    first, last = min(x for x, _ in values), max(x for x, _ in values)
    decades = math.ceil(math.log10(highest) - 1e-9) - math.log10(LOWEST)

    def at(x: float, y: float) -> tuple[float, float]:
        across = math.log(x / first) / math.log(last / first) if last > first else 0.0
        up = (math.log10(max(y, LOWEST)) - math.log10(LOWEST)) / decades
        return left + across * width, top + 14 + (1 - up) * height

    parts = [text(left, top + 4, chart.label)]
    for power in range(round(decades) + 1):
        _, y = at(first, LOWEST * 10**power)
        parts += [line(left, y, left + width, y), text(left - 6, y + 4, f"{LOWEST * 10**power:g}", "end")]
    for x in sorted({x for x, _ in values}):
        across, ground = at(x, LOWEST)
        parts.append(text(across, ground + 16, f"{x:g}", "middle"))
    for name, points in sorted(chart.points.items(), key=lambda each: each[0] == ours):
        joined = " ".join(f"{a:.1f},{b:.1f}" for a, b in (at(x, y) for x, y in points))
        parts.append(f'<polyline points="{joined}" fill="none" stroke="{colour[name]}" stroke-width="{3 if name == ours else 1.5}"/>')
    return parts
