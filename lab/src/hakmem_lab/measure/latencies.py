"""Latencies that a client prints: the quantiles of each run."""

from __future__ import annotations

import re

import numpy as np

from hakmem_lab.measure.one_run import last_words
from hakmem_lab.terminal.errors import LabError, UsageError

QUANTILES = {"p10": 0.1, "p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
ENOUGH = 10  # values required beyond a quantile


def check(pattern: str) -> None:
    """Raises a LabError unless it is a regular expression with exactly one group."""
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise LabError(
            f"--latency {pattern}: not a regular expression: {error}", r"Example: 'took ([0-9.]+) ms'"
        ) from error
    if groups != 1:
        raise UsageError(f"--latency {pattern}: needs exactly one group around the number, has {groups}")


def quantiles(pattern: str, output: str) -> dict[str, float]:
    """The quantiles of the values that a client printed, as far as there are enough values, and their count."""
    try:
        values = [float(found.group(1)) for found in re.finditer(pattern, output, re.MULTILINE)]
    except (ValueError, TypeError) as error:
        raise LabError(f"--latency {pattern} matches something that is not a number: {error}") from error
    if len(values) < 2 * ENOUGH or min(values) <= 0:
        problem = f"has {len(values)} matches above 0 of at least {2 * ENOUGH}" if values else "has no match"
        raise LabError(f"the client's output {problem} for --latency {pattern}", last_words(output))
    usable = {name: at for name, at in QUANTILES.items() if len(values) * min(at, 1 - at) >= ENOUGH * 0.999}
    found = np.quantile(values, list(usable.values()))
    return {**dict(zip(usable, found.tolist(), strict=True)), "count": float(len(values))}
