"""What was found in sampled blocks, by the stack that allocated them: each stands for all that were not sampled."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from hakmem_lab.inspect.core import Dead
from hakmem_lab.inspect.live import Allocator
from hakmem_lab.inspect.sampled_blocks import Samples
from hakmem_lab.profile import heap_dumps
from hakmem_lab.profile.formats import Stack
from hakmem_lab.profile.heap_dumps import Estimate
from hakmem_lab.profile.symbols import Frame, Symbols, without_standard
from hakmem_lab.target import process

Stacks = dict[Stack, dict[str, Estimate]]
TITLE = "by stack, of the blocks allocated while a profile was on"


def estimates(allocator: Allocator, samples: Samples, found: dict[str, Any]) -> Stacks:
    """The estimates of each kind by stack; `found` has the bytes of each sample by kind."""
    if isinstance(allocator, Dead):
        mappings = [heap_dumps.Mapping(each.start, each.end, each.offset, each.path) for each in allocator.core.files]
    else:
        mappings = heap_dumps.parse_maps(process.text(allocator.pid, "maps"))
    symbols = Symbols(mappings, pid=allocator.pid)
    symbols.learn(address for frames in samples.frames.values() for address in frames)
    chances = samples.chances()
    stacks: Stacks = defaultdict(dict)
    for i, site in enumerate(samples.sites.tolist()):
        chance = float(chances[i])
        if chance <= 0:  # a block of size 0
            continue
        stack = symbols.stack(samples.frames[site]) or (Frame("(no stack)"),)
        for kind, each in found.items():
            size = float(each[i])
            if size:
                one = Estimate(1 / chance, size / chance, size**2 * (1 - chance) / chance**2)
                stacks[stack][kind] = stacks[stack].get(kind, Estimate()) + one
    return stacks


def total(values: dict[str, Estimate]) -> Estimate:
    return sum(values.values(), Estimate())


def largest(stacks: Stacks, top: int, kind: str = "") -> list[tuple[Stack, dict[str, Estimate]]]:
    """The stacks with most bytes of a kind, or of all together."""
    rows = [each for each in stacks.items() if not kind or kind in each[1]]
    return sorted(rows, key=lambda each: -(each[1][kind] if kind else total(each[1])).bytes)[:top]


def as_json(stacks: Stacks) -> list[dict[str, Any]]:
    return [
        {
            "frames": [vars(frame) for frame in stack],
            **{kind: {"bytes": round(each.bytes), "error": round(each.error)} for kind, each in values.items()},
        }
        for stack, values in stacks.items()
    ]


def mean_age(values: dict[str, Estimate]) -> float:
    """Seconds; `age` has the products of bytes and ages."""
    return values["age"].bytes / values["cold"].bytes if "age" in values else 0.0


def short(stack: Stack, frames: int = 3) -> str:
    """The innermost functions outside of standard libraries."""
    return " < ".join(frame.name for frame in list(without_standard(stack))[:frames])
