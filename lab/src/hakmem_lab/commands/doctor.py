"""hakmem doctor: whether HAKMEM works, with which options, and what the system restricts."""

from __future__ import annotations

from typing import Annotated

import typer

from hakmem_lab.commands import options as opt
from hakmem_lab.terminal.console import out
from hakmem_lab.terminal.errors import ERROR

HELP = """Check whether HAKMEM works here, and with which settings: one finding per line.

With a process id it checks that process, from outside. Without one it checks a child that it starts in the current
environment, as 'hakmem run' starts programs.

Examples:

  hakmem doctor

  HAKMEM_PRESET=hot_512 hakmem doctor

  hakmem doctor $(pgrep -n redis-server)

Exit status: 0 if nothing failed, 1 if something did; with --strict also if there is a warning.
"""
COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(
    pid: Annotated[int | None, typer.Argument(metavar="[PID]", help="A process id.", min=1)] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as failures.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The findings as JSON.")] = False,
    hakmem: opt.Found = None,
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
