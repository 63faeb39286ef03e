"""Inputs of pages, as the library, `hakmem watch` and the benchmarks write them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

LEDGER = {
    "live": 40 << 20,
    "cached": 1 << 20,
    "free_in_slabs": 12 << 20,
    "frontier_slack": 1 << 20,
    "empty": 2 << 20,
    "huge": 4 << 20,
    "metadata": 1 << 20,
    "not_ours": 3 << 20,
}


def figures(scale: int = 1, exact: bool = True) -> dict[str, Any]:
    """A snapshot with multiplied counters."""
    classes = []
    for place, size in enumerate((16, 64, 512, 4096)):
        row = {"size": size, "spans": 3, "live": 1000 * (place + 1), "cached": 32, "refilled": 5000 * scale}
        row |= {"drained": 4000 * scale, "misses": 150 * scale * (place + 1)}
        if exact:
            row |= {"mallocs": 90000 * scale, "frees": 80000 * scale, "hits": 90000 * scale - row["misses"]}
        classes.append(row)
    ledger = {name: size * scale for name, size in LEDGER.items()}
    ledger |= {"sum": sum(ledger.values()), "rss": sum(ledger.values())}
    return {
        "version": 1,
        "pid": 7,
        "bytes": {"live": 40 << 20, "mapped": 64 << 20},
        "remote": {"frees": 10 * scale, "heaps": 2},
        "ledger": ledger,
        "latency_malloc": {"sum": 100, "buckets": [0, 1, 5, 2]},
        "classes": classes,
        "map": [
            {"kind": "in_slabs", "slabs": 32, "spans": [[0, 1, 64, 500, 1024], [1, 4, 4096, 64, 64]], "dirty": 2},
            {"kind": "huge", "slabs": 32},
            {"kind": "free", "slabs": 32},
        ],
    }


def snapshot() -> str:
    return json.dumps(figures()) + "\n"


def recording(count: int = 5) -> str:
    """Samples one second apart, each with twice the rates of a quarter of its counters."""
    lines = []
    for place in range(1, count + 1):
        now = figures(place)
        look: dict[str, Any] = {"pid": 7, "time": 1000.0 + place, "snapshot": now}
        if place > 1:
            rows = [{"size": row["size"], "misses": row["misses"], "mallocs": row["mallocs"]} for row in now["classes"]]
            look |= {"seconds": 1.0, "rates": {"classes": rows}}
        lines.append(json.dumps(look))
    return "\n".join(lines) + "\n"


def write_bench(path: Path, rounds: int = 5) -> None:
    """A result of bench/run.py --json; hakmem is 1.5 times as fast as the others on `one`, half as fast on `two`."""
    chance = random.Random(5)
    speeds = {("one", "hakmem"): 150.0, ("two", "hakmem"): 50.0}
    with path.open("w", encoding="utf-8") as file:
        print(json.dumps({"type": "environment", "processor": "none"}), file=file)
        for number in range(1, rounds + 1):
            for case in ("one", "two"):
                for name in ("hakmem", "system", "mimalloc", "floor"):
                    speed = speeds.get((case, name), 100.0 if name != "floor" else 900.0) * chance.uniform(0.999, 1.001)
                    row = {"round": number, "case": case, "allocator": name, "ops_per_s": speed, "seconds": 1 / speed}
                    row |= {"peak_rss_kb": 2000 if name == "system" else 3000, "minor_faults": 100, "command": case}
                    print(json.dumps({"type": "result", **row}), file=file)
