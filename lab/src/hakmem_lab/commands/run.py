"""hakmem run: any program on HAKMEM. The program replaces this process, so that its exit status, signals, terminal and
process id are its own."""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from hakmem_lab.children import foreground
from hakmem_lab.commands import options as opt
from hakmem_lab.target import libhakmem, preload
from hakmem_lab.target.configuration import nearest, parse
from hakmem_lab.terminal.console import complain, remark
from hakmem_lab.terminal.errors import ERROR, USAGE, LabError

HELP = """Run a program on HAKMEM. Its exit status and signals are the program's.

Examples:

  hakmem run -- python3 server.py

  hakmem run --preset hot_512 --stats text -- ./program --its-own options

  hakmem run --set refill_count=64 --set purge_delay=5s --stats json -- make -j4

  hakmem run --sample run.jsonl -- python3 job.py; hakmem report run.jsonl

Other exit statuses: 125 if it was not started (a message says why) or an option is wrong, 126 if it cannot be executed,
127 if it is not found.
"""
STATS = ("text", "json", "prom")


def stats_value(stats: str, file: Path | None) -> str:
    """The value of HAKMEM_STATS."""
    if stats not in STATS:
        raise LabError(f"--stats {stats}: unknown{nearest(stats, STATS)}", f"Known are {', '.join(STATS)}.")
    # Absolute, because the program may change its folder.
    path = opt.absolute(Path(file or f"hakmem-stats.%p.{stats}"))
    remark(
        f"hakmem: statistics go to {path} when a process ends (%p is its id)"
        if "%p" in path.name
        else f"hakmem: statistics go to {path} when the program ends"
    )
    return f"{stats}:{path}"


MODES = {"harden": "harden=1", "canary": "misuse=report"}


def settings_of(preset: str | None, given: list[str], modes: list[str], found: Path) -> dict[str, str]:
    """The variables that the options stand for; the library checks each."""
    tokens = ([f"preset={preset}"] if preset else []) + given
    for token in tokens:
        if "=" not in token:
            raise LabError(f"--set {token}: not key=value", "Example: --set refill_count=64; docs/options.md has all.")
    for mode in modes:
        option = MODES[mode].partition("=")[0]
        if option not in libhakmem.options(found):
            raise LabError(f"--{mode}: {found} has no option {option}", "It is of an earlier version; build it again.")
        tokens.append(MODES[mode])
    return parse(shlex.join(tokens), "run", found).settings if tokens else {}


def run(
    program: Annotated[list[str], typer.Argument(help="The program and its arguments, after --.", show_default=False)],
    preset: Annotated[str | None, typer.Option(help="A set of cache capacities: HAKMEM_PRESET.")] = None,
    given: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="An option; repeatable.")
    ] = None,
    stats: Annotated[
        str | None, typer.Option(help="Statistics at the end: text (printed on stderr), json or prom.")
    ] = None,
    stats_file: Annotated[Path | None, typer.Option(help="The file of --stats; %p in it is the process id.")] = None,
    harden: Annotated[bool, typer.Option("--harden", help="Hardened mode: HAKMEM_HARDEN=1.")] = False,
    canary: Annotated[
        bool, typer.Option("--canary", help="Report misuse instead of ending the program: HAKMEM_MISUSE=report.")
    ] = False,
    python: Annotated[
        bool, typer.Option("--python", help="Serve Python's objects by malloc too: PYTHONMALLOC=malloc.")
    ] = False,
    anyway: Annotated[bool, typer.Option("--anyway", help="Start it even if it would not run on HAKMEM.")] = False,
    hakmem: opt.Found = None,
    sample: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Record memory and caches over time in this file, for 'hakmem report'."),
    ] = None,
    sample_interval: Annotated[float, typer.Option(help="Seconds between samples.", min=0.01, max=3600)] = 0.5,
) -> None:
    try:
        modes = ["harden"] * harden + ["canary"] * canary
        target, environment = prepare(program, preset, given or [], stats, stats_file, modes, anyway, hakmem)
        if sample is not None:
            from hakmem_lab.inspect import background_recorder

            background_recorder.prepare(sample)
    except LabError as error:
        error.status = preload.CANNOT_LOAD if error.status == ERROR else error.status
        raise
    if python:
        environment.setdefault("PYTHONMALLOC", "malloc")
    watch: foreground.Watcher = lambda _: nullcontext()  # noqa: E731
    if sample is not None:
        if to_print(stats, stats_file):
            watch = partial(background_recorder.beside, path=sample, interval=sample_interval)
        else:
            background_recorder.start(sample, sample_interval)
    try:
        if to_print(stats, stats_file):
            raise typer.Exit(foreground.end_as(with_text(target, program, environment, watch)))
        foreground.restore_signals()
        os.execve(*target.execution(program), environment)
    except OSError as error:
        complain(f"{program[0]}: {error.strerror}", "Try it without hakmem run.")
        raise typer.Exit(preload.CANNOT_RUN) from None


def to_print(stats: str | None, file: Path | None) -> bool:
    """Whether this command prints the statistics."""
    return stats == "text" and file is None


def with_text(
    target: preload.Program, program: list[str], environment: dict[str, str], watch: foreground.Watcher
) -> int:
    """Runs the program, then prints the statistics of its processes in the order of their ends; returns its status.
    The text goes through files, because many programs close standard error before they exit."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="hakmem-") as name:
        folder = Path(name)
        folder.chmod(0o1777)  # the program may become another user
        environment["HAKMEM_STATS"] = f"text:{folder}/%p"
        pid, status = foreground.run(*target.execution(program), environment, watch)
        sys.stdout.flush()
        # Of two that ended within one tick of the clock, the child was first, and has the higher id.
        written = sorted(folder.iterdir(), key=lambda each: (each.stat().st_mtime_ns, -int(each.name)))
        for each in written:
            sys.stderr.write(each.read_text(errors="replace"))
        if folder / str(pid) not in written:
            remark(f"hakmem: {program[0]} wrote no statistics: it ended by a signal, by _exit(), or as another program")
    return status


def prepare(
    program: list[str],
    preset: str | None,
    given: list[str],
    stats: str | None,
    stats_file: Path | None,
    modes: list[str],
    anyway: bool,
    hakmem: Path | None,
) -> tuple[preload.Program, dict[str, str]]:
    """The program's file and environment for running on HAKMEM."""
    found = libhakmem.find(hakmem)
    if any(character in str(found) for character in " :"):
        raise LabError(
            f"{found}: the dynamic linker cannot preload a path with a space or a colon",
            "Copy the library to a folder without them, and give it with --library PATH.",
        )
    environment = {name: value for name, value in os.environ.items() if name not in libhakmem.OWN_VARIABLES}
    environment |= settings_of(preset, given, modes, found)
    if stats is not None and not to_print(stats, stats_file):
        environment["HAKMEM_STATS"] = stats_value(stats, stats_file)
    elif stats_file is not None:
        raise LabError("--stats-file needs --stats", "Example: --stats json --stats-file out.json")
    target = preload.look(program[0], environment)
    if not anyway:
        preload.check(target, found)
        if preload.own_malloc(target):
            remark(
                f"hakmem: {target.file.path} has a malloc of its own, which serves at least itself; "
                "'hakmem doctor PID' checks it while it runs"
            )
    others = [each for each in environment.get("LD_PRELOAD", "").replace(":", " ").split() if each != str(found)]
    sanitizer = next((each for each in others if preload.SANITIZERS.match(Path(each).name)), None)
    if sanitizer is not None and not anyway:
        raise LabError(
            f"not started: LD_PRELOAD brings a sanitizer ({sanitizer}), which needs its own malloc",
            "Take it out of LD_PRELOAD; --anyway starts the program with both.",
        )
    environment["LD_PRELOAD"] = " ".join([str(found), *others])
    return target, environment


class Run(TyperCommand):
    """The command, for which a wrong command line is one of the reasons not to start the program."""

    def make_context(self, *arguments: Any, **more: Any) -> Any:
        try:
            return super().make_context(*arguments, **more)
        except Exception as error:  # click's, or that of typer's own copy of click
            if getattr(error, "exit_code", None) == USAGE:
                error.exit_code = preload.CANNOT_LOAD  # type: ignore[attr-defined]
            raise


def register(app: typer.Typer) -> None:
    app.command("run", cls=Run, help=HELP, context_settings={"ignore_unknown_options": False})(run)
