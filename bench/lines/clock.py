"""The order of allocators at two threads, by the model and by the clock.

For each pattern with a fixed number of operations, every pair whose times differ by more than 10 % in the median and in
the same direction in every round must be in the same order by the model's time of an operation. Wants a quiet machine of
two cores or more.
"""

from __future__ import annotations

import itertools
import re
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tables
from allocators import Allocator
from patterns import PATTERNS

import guard

ROUNDS = 5
APART = 1.10
OPERATIONS = {"random_mixed": 8_000_000, "mid": 4_000_000, "large": 200_000, "remote": 2_000_000, "exchange": 2_000_000}
GOOD, BAD = 0, 1


def seconds(build: Path, words: Sequence[str], allocator: Allocator) -> float:
    done = subprocess.run([str(build / "bench_lines"), *words], env=guard.plain(allocator.environment()), text=True,
                          stdout=subprocess.PIPE, check=True)
    found = re.search(r"seconds=([0-9.]+)", done.stdout)
    if found is None:
        raise ValueError(f"no time in: {done.stdout}")
    return float(found.group(1))


def apart(one: Sequence[float], other: Sequence[float]) -> int:
    """-1 or 1 where the first is clearly faster or slower, else 0."""
    ratios = [a / b for a, b in zip(one, other)]
    middle = statistics.median(ratios)
    if middle > APART and min(ratios) > 1:
        return 1
    return -1 if middle < 1 / APART and max(ratios) < 1 else 0


def judge(times: Mapping[str, Sequence[float]], predicted: Mapping[str, float]) -> tuple[int, list[str]]:
    """How many pairs are clearly apart by the clock, and those that the model has the other way round."""
    clear, wrong = 0, []
    for one, other in itertools.combinations(times, 2):
        direction = apart(times[one], times[other])
        clear += direction != 0
        if direction * (predicted[one] - predicted[other]) < 0:
            wrong.append(f"{one} and {other}")
    return clear, wrong


def check(rows: Sequence[Mapping[str, Any]], build: Path, allocators: Sequence[Allocator]) -> int:
    runs = tables.Runs(rows)
    status = GOOD
    print("\nThe order at two threads, by the clock and by the model")
    for pattern in PATTERNS:
        taking = [a for a in allocators if (pattern.name, 2, a.name) in runs.report]
        if pattern.name not in OPERATIONS or len(taking) < 2:
            continue
        words = [str(OPERATIONS[pattern.name]) if word == str(1 << 38) else word for word in pattern.arguments(2)]
        times: dict[str, list[float]] = {a.name: [] for a in taking}
        for _ in range(ROUNDS):
            for allocator in taking:
                times[allocator.name].append(seconds(build, words, allocator))
        predicted = {a.name: 1 / tables.predict(runs.report[pattern.name, 2, a.name], 2).rate for a in taking}
        clear, wrong = judge(times, predicted)
        print(f"  {pattern.name:14} {clear} pairs clearly apart, {clear - len(wrong)} in the model's order"
              + (f"; not {'; '.join(wrong)}" if wrong else ""))
        status = BAD if wrong else status
    return status
