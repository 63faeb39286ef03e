"""hakmem leaks: the blocks that a program has lost when it ends, as a gate for CI."""

from __future__ import annotations

import fnmatch
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hakmem_lab.commands import options as opt
from hakmem_lab.commands.profile import of_program
from hakmem_lab.terminal.amounts import counted, in_bytes
from hakmem_lab.terminal.console import err, out
from hakmem_lab.terminal.errors import LabError

if TYPE_CHECKING:
    from hakmem_lab.profile.formats import Stack
    from hakmem_lab.profile.heap_dumps import Estimate

LEAKED = 23  # LeakSanitizer's exit status
HELP = f"""Run a program and report at its end the lost blocks: in use, but with no pointer to them.

Every block is recorded with its stack (--interval 1), so the program is slower. At exit all memory that it can still
read is searched for pointers to blocks, and these blocks in turn; a block that is not found is a leak. A word that only
looks like a pointer can hide a leak, as with LeakSanitizer.

Exit status: the program's own, or {LEAKED} (--status) if that is 0 and there are leaks.

A file of suppressions has lines leak:PATTERN; a leak is left out if the pattern occurs in the name of a function, a
file or a module of its stack. * matches any text, ^ and $ the ends; lines with # are comments.

Examples:

  hakmem leaks -- ./server --once

  hakmem leaks --suppress known.txt --json leaks.json -- make check
"""


@dataclass(frozen=True)
class Suppression:
    """One line of a file in LeakSanitizer's syntax."""

    pattern: str

    def covers(self, stack: Stack) -> bool:
        """LeakSanitizer's patterns, which match anywhere unless anchored with ^ or $."""
        text = self.pattern
        text = text[1:] if text.startswith("^") else f"*{text}"
        text = text[:-1] if text.endswith("$") else f"{text}*"
        glob = text.replace("[", "[[]").replace("?", "[?]")
        return any(
            fnmatch.fnmatchcase(name, glob)
            for frame in stack
            for name in (frame.name, frame.file, frame.module)
            if name
        )


def read_suppressions(path: Path) -> list[Suppression]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise LabError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise LabError(f"{path}: not a text in UTF-8", "Each line is leak:PATTERN.") from None
    found = []
    for number, line in enumerate(lines, 1):
        kind, colon, pattern = line.strip().partition(":")
        if not line.strip() or line.strip().startswith("#"):
            continue
        if not colon or not pattern:
            raise LabError(f"{path}:{number}: not a suppression", "Each line is leak:PATTERN.")
        if kind == "leak":  # the file may also have other sanitizers' lines
            found.append(Suppression(pattern))
    return found


def leaks(
    program: Annotated[list[str], typer.Argument(help="The program and its arguments, after --.", show_default=False)],
    suppress: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Leaks to leave out; LeakSanitizer's syntax; repeatable.")
    ] = None,
    status: Annotated[int, typer.Option(help="The exit status if there are leaks.", min=0, max=255)] = LEAKED,
    as_json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="The leaks as JSON.")] = None,
    interval: Annotated[
        str, typer.Option(help="Mean bytes between samples: a larger value is faster, but may miss small leaks.")
    ] = "1",
    frames: Annotated[int, typer.Option(help="Lines of each stack.", min=1, max=64)] = 10,
    top: Annotated[int, typer.Option(help="The number of leaks to show.", min=1)] = 20,
    library: opt.Found = None,
) -> None:
    from hakmem_lab.commands.profile import parse_bytes
    from hakmem_lab.profile import formats

    rules = [rule for path in suppress or [] for rule in read_suppressions(path)]
    if as_json is not None:
        opt.expect_writable(as_json)
    settings = {"HAKMEM_PROFILE_INTERVAL": str(parse_bytes(interval))}
    profile, ended = of_program(program, settings, mode="leaks", library=library)
    if not profile.leaks_searched:
        raise LabError("the program's memory could not be searched", "Does a seccomp filter forbid process_vm_readv?")
    profile.sites = [site for site in profile.sites if site.counted["leaked"][0]]  # only these are symbolized
    report = formats.named(profile)
    lost = [(values["leaked"], stack) for stack, values in report.stacks.items() if values["leaked"].objects]
    lost.sort(key=lambda each: -each[0].bytes)
    kept = [(value, stack) for value, stack in lost if not any(rule.covers(stack) for rule in rules)]
    show(kept, len(lost) - len(kept), frames, top)
    if as_json is not None:
        as_json.write_text(json.dumps([as_document(value, stack) for value, stack in kept]) + "\n")
    raise typer.Exit(status if kept and ended == 0 else ended)


def show(found: list[tuple[Estimate, Stack]], suppressed: int, frames: int, top: int) -> None:
    for value, stack in found[:top]:
        blocks = counted(round(value.objects), "block")
        err.print(f"leak of {in_bytes(value.bytes)} in {blocks}, allocated by", markup=False)
        for number, frame in enumerate(stack[:frames]):
            err.print(f"    #{number} {frame.name} {frame.place}", soft_wrap=True, markup=False)
    if len(found) > top:
        err.print(f"... and {len(found) - top} more of them")
    total = sum(value.bytes for value, _ in found)
    objects = counted(round(sum(value.objects for value, _ in found)), "block")
    left_out = f"; {counted(suppressed, 'stack')} suppressed" if suppressed else ""
    if found:
        out.print(
            f"{in_bytes(total)} lost in {objects}, at {counted(len(found), 'stack')}{left_out}",
            soft_wrap=True,
        )
    else:
        out.print(f"no leaks{left_out}", soft_wrap=True)


def as_document(value: Estimate, stack: Stack) -> dict[str, Any]:
    return {"bytes": round(value.bytes), "blocks": round(value.objects), "stack": [vars(frame) for frame in stack]}


def register(app: typer.Typer) -> None:
    app.command("leaks", help=HELP)(leaks)
