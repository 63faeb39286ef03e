"""hakmem block: what an address belongs to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hakmem_lab.commands import options as opt
from hakmem_lab.terminal.console import remark
from hakmem_lab.terminal.errors import LabError

if TYPE_CHECKING:
    from hakmem_lab.inspect.address_ranges import AddressRange
    from hakmem_lab.inspect.blocks import Blocks
    from hakmem_lab.inspect.live import Allocator

HELP = """Describe an address: a live or a free block, its size, its heap and its neighbours.

The address is in a core dump or in a running process, which may change meanwhile: stop it (kill -STOP PID) if that
matters.

Examples:

  hakmem block 0x1b5801000040 core.1234

  hakmem block 0x1b5801000040 $(pgrep -n redis-server)

  hakmem block --json 0x1b5801000040 core.1234
"""


def block(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="A number, as a debugger prints pointers: 0x...")],
    target: Annotated[str, typer.Argument(metavar="CORE|PID", help="A core dump, or a process id.")],
    as_json: opt.Json = False,
    file: opt.OfCore = None,
) -> None:
    from hakmem_lab.inspect.blocks import Blocks

    wanted = parse(address)
    blocks = Blocks(open_target(target, file))
    area = blocks.at(wanted)
    before, behind = blocks.neighbours(area)
    looked = (blocks, wanted, area, before, behind)
    opt.told(lines(*looked), lambda: as_document(*looked), as_json)


def parse(address: str) -> int:
    try:
        found = int(address, 0)
    except ValueError:
        found = -1
    if not 0 <= found < 1 << 64:
        raise LabError(f"{address} is not an address", "Give a number, such as 0x1b5801000040.")
    return found


def open_target(target: str, file: Path | None = None) -> Allocator:
    """A core dump or, if there is no file of that name, a process."""
    from hakmem_lab.inspect.core import Dead
    from hakmem_lab.inspect.live import Live
    from hakmem_lab.target.elf import is_elf

    path = Path(target)
    if not path.exists() and target.isdigit():
        return Live(int(target))
    if path.exists() and not is_elf(path):
        raise LabError(f"{path} is not a core dump", "Give a core dump, or a process id.")
    dead = Dead(path, file)
    for each in dead.core.remarks():
        remark(f"hakmem: {each}")
    return dead


# --- what is printed --------------------------------------------------------------------------------------------------


def headline(address: int, area: AddressRange) -> str:
    if not area.is_block:
        return f"{address:#x} is {area.says()}"
    offset = address - area.start
    where = "is the start of a" if offset == 0 else "lies in a"
    return f"{address:#x} {where} {area.says()}" + (f": at offset {offset}" if offset else "")


def lines(
    blocks: Blocks, address: int, area: AddressRange, before: AddressRange | None, behind: AddressRange | None
) -> list[str]:
    found = [headline(address, area)]

    def add(name: str, text: str) -> None:
        found.append(f"  {name:<8} {text}")

    if area.state != "foreign":
        add("range", f"{area.start:#x} .. {area.end:#x}")
    if area.asked is not None:
        add("asked", f"{area.asked} bytes")
    if area.span and area.class_index is not None:
        s = area.span
        add("class", f"{area.class_index}, blocks of {blocks.sizes[area.class_index]} bytes")
        add(
            "span",
            f"{s['start']:#x}, {s['bytes'] >> 10} KiB: this is block {s['place']} of {s['blocks']}, "
            f"of which {s['frontier']} have been taken so far",
        )
    for name, heap in (("of", area.heap), ("held by", area.holder)):
        whose = None if heap is None else blocks.heaps.heap(heap)
        if whose:
            add(name, whose.says())
    for note in area.notes:
        add("note", note)
    for name, each in (("before", before), ("behind", behind)):
        if each:
            add(name, f"{each.start:#x} .. {each.end:#x}: {each.says()}")
            for note in each.notes:
                add("", note)
    return found


def as_document(
    blocks: Blocks, address: int, area: AddressRange, before: AddressRange | None, behind: AddressRange | None
) -> dict[str, Any]:
    heaps = {
        name: vars(heap)
        for name, number in (("heap", area.heap), ("holder", area.holder))
        if number is not None and (heap := blocks.heaps.heap(number))
    }
    return {
        "address": hex(address),
        "target": blocks.allocator.name,
        "says": headline(address, area),
        "offset": address - area.start,
        "piece": area.as_json() | heaps,
        "before": before.as_json() if before else None,
        "behind": behind.as_json() if behind else None,
    }


def register(app: typer.Typer) -> None:
    app.command("block", help=HELP)(block)
