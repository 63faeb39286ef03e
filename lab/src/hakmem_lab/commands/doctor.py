"""hakmem doctor: is HAKMEM at work, with which options, and does the system let it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hakmem_lab.terminal.console import out
from hakmem_lab.terminal.errors import ERROR

HELP = """Say whether HAKMEM is at work and what it works with: one finding per line.

With a process id, of that process, from outside. Without one, of a child that is started with the present environment
as 'hakmem run' starts programs.

Examples:

  hakmem doctor

  HAKMEM_PRESET=hot_512 hakmem doctor

  hakmem doctor $(pgrep -n redis-server)

Exit status: 0 when nothing failed, 1 when something did; with --strict also when there is a warning.
"""
COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(
    pid: Annotated[int | None, typer.Argument(metavar="[PID]", help="A process id.", min=1)] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as failures.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The findings as JSON.")] = False,
    hakmem: Annotated[Path | None, typer.Option("--library", help="libhakmem.so, if not the one found.")] = None,
) -> None:
    from rich.markup import escape

    from hakmem_lab.inspect import doctor_checks as look

    findings = (
        look.examine(look.of_process(pid))
        if pid is not None
        else look.examine_environment(look.environment_to_try(hakmem))
    )
    if as_json:
        out.file.write(look.as_json(findings) + "\n")
    else:
        for each in findings:
            out.print(
                f"[{COLOURS[each.level]}]{each.level:4}[/] [bold]{each.about}:[/] {escape(each.text)}", soft_wrap=True
            )
            if each.advice:
                out.print(f"     {escape(each.advice)}", soft_wrap=True, style="dim")
    worst = look.worst(findings)
    if worst == "fail" or (strict and worst == "warn"):
        raise typer.Exit(ERROR)


def register(app: typer.Typer) -> None:
    app.command("doctor", help=HELP)(doctor)
