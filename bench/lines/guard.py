"""Keeps transfers as few as they are: three patterns at 16 threads against golden.json, one list per compiler.

Messages per operation may grow by a quarter and 0.005; what the compiler, the C library and the kernel's layout change is
far below that, a word that all threads begin to share far above.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tables
from allocators import HAKMEM, Allocator
from patterns import PATTERNS, Pattern

GOLDEN = Path(__file__).resolve().parent / "golden.json"
GUARDED = ("random_mixed", "mid", "exchange")
THREADS = 16
FACTOR, MARGIN = 1.25, 0.005
GOOD, BAD, SKIPPED = 0, 1, 77
TUNING = re.compile(r"HAKMEM_(?!PEERS)|MIMALLOC_|MALLOC_|TCMALLOC_|GLIBC_TUNABLES$|_RJEM_|JE_")


def plain(environment: Mapping[str, str]) -> dict[str, str]:
    """Without the variables that tune an allocator."""
    return {name: value for name, value in environment.items() if not TUNING.match(name)}


def compiler(build: Path) -> str:
    """The compiler with its major version, and the architecture."""
    found = re.search(r"^CMAKE_C_COMPILER:\w+=(.+)$", (build / "CMakeCache.txt").read_text(), re.M)
    said = subprocess.run([found.group(1) if found else "cc", "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout
    version = re.search(r"(\d+)\.\d+", said)
    return f"{'clang' if 'clang' in said else 'gcc'} {version.group(1) if version else '?'} {platform.machine()}"


def wrong(found: Mapping[str, float], kept: Mapping[str, float]) -> list[str]:
    """What is worse than kept, a line each."""
    lines = []
    for name, figure in found.items():
        if name not in kept:
            lines.append(f"{name}: no figure is kept; --guard --update adds it")
        elif figure > kept[name] * FACTOR + MARGIN:
            lines.append(f"{name}: {figure:.4f} messages per operation, {kept[name]:.4f} kept")
    return lines


def check(options: argparse.Namespace, library: Path, count: Callable[[Pattern, int, Allocator], Mapping[str, Any]]) -> int:
    which = compiler(options.build)
    golden = json.loads(GOLDEN.read_text(encoding="utf-8")) if GOLDEN.is_file() else {}
    if which not in golden and not options.update:
        print(f"lines: skipped: {GOLDEN.name} has no figures for {which}; --guard --update adds them")
        return SKIPPED
    reports = {each.name: count(each, THREADS, Allocator(HAKMEM, "ours", library)) for each in PATTERNS if each.name in GUARDED}
    found = {name: round(tables.messages(report), 4) for name, report in reports.items()}
    if options.update:
        golden[which] = found
        GOLDEN.write_text(json.dumps(golden, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    for name, figure in found.items():
        print(f"  {name:14} {figure:.4f} messages per operation at {THREADS} threads, {golden[which].get(name, 'none')} kept")
    bad = wrong(found, golden[which])
    for name in {line.partition(":")[0] for line in bad}:
        for each in tables.structures(reports[name], 3):
            print(f"lines: {name}: most are about {each}")
    for line in bad:
        print(f"lines: {line}")
    return BAD if bad else GOOD
