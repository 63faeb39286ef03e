"""A verdict is no accident of placement: each round lays HAKMEM's blocks out anew (HAKMEM_LAYOUT_SEED)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("scipy")

from hakmem_lab.measure import results
from tests.inside import compile_c, hakmem

# Blocks of twenty sizes, used in turn: the more of them share a set of a cache of 64 lines, the more it costs.
# SPARE: one more block of every second size, which nothing uses, is the only difference of the two programs.
SOURCE = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
int main(void)
{
    unsigned sets[64] = { 0 }, pairs = 0;
    for (int i = 1; i <= 20; i++) {
        void *spare = SPARE && i % 2 ? malloc(i * 48) : NULL, *used = malloc(i * 48);
        pairs += sets[(uintptr_t)used / 64 % 64]++;
        if (spare == used && used != NULL)
            return 1;
    }
    return printf("cost=%u\n", 100 + pairs) < 0;
}
"""


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("layout")
    old, new = (
        compile_c(folder, SOURCE.replace("SPARE", spare), name=name) for spare, name in (("0", "old"), ("1", "new"))
    )
    return old, new


def compared(two: tuple[Path, Path], folder: Path, setting: str = "") -> tuple[dict[str, Any], list[results.Run]]:
    """The verdict on the two programs, and its runs."""
    a, b = (f"cmd:{program} alloc:hakmem {setting}" for program in two)
    words = ["--metric", "cost=([0-9]+)", "--lower-is-better", "--runs", "12", "--warmup", "0", "--no-noise-check"]
    done = hakmem("ab", "--a", a, "--b", b, *words, "--seed", "4", "--out", folder, "--json")
    assert done.returncode in (0, 3, 4), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["comparison"]
    return found, results.load(next(folder.glob("*.jsonl"))).runs


def test_an_accident_of_placement_is_no_gain(two: tuple[Path, Path], tmp_path: Path) -> None:
    found, runs = compared(two, tmp_path / "one", "layout_seed=0")  # the first block of each size begins a slab
    assert all(each.layout_seed is None for each in runs)
    assert found["verdict"] == "GO" and found["low"] == found["high"] > 20
    found, runs = compared(two, tmp_path / "each")
    assert found["verdict"] != "GO" and found["low"] < 0 < found["high"] and found["high"] - found["low"] > 0.5
    rounds: dict[int, set[int | None]] = {}
    for each in runs:
        rounds.setdefault(each.round, set()).add(each.layout_seed)
    assert all(len(seeds) == 1 for seeds in rounds.values())
    assert None not in set.union(*rounds.values()) and len(set.union(*rounds.values())) == 12


def test_a_layout_can_be_repeated(two: tuple[Path, Path], tmp_path: Path) -> None:
    first, again = (
        [(each.round, each.label, each.layout_seed, each.value) for each in compared(two, tmp_path / name)[1]]
        for name in ("first", "again")
    )
    assert first == again
