"""Numbers and sizes as the terminal and the pages show them."""

from __future__ import annotations

import math


def number(value: float) -> str:
    """An integer in full, anything else with four significant digits; thousands are separated."""
    if not math.isfinite(value):
        return "∞" if value > 0 else "-∞"
    return f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 1000 else f"{value:,.4g}"


def counted(count: float, what: str) -> str:
    """A number with its noun: 1 block, 2 blocks."""
    plural = f"{what}es" if what.endswith("s") else f"{what[:-1]}ies" if what.endswith("y") else f"{what}s"
    return f"{round(count):,} {what if round(count) == 1 else plural}"


def in_bytes(value: float) -> str:
    """A size in the largest unit that leaves at least 1."""
    if abs(value) < 1 << 10:
        return f"{value:.0f} B"
    if abs(value) < 1 << 20:
        return f"{value / (1 << 10):.0f} KiB"
    return f"{value / (1 << 20):.1f} MiB" if abs(value) < 1 << 30 else f"{value / (1 << 30):.2f} GiB"
