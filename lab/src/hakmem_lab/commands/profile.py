"""hakmem profile: which code holds memory, and which requests it."""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hakmem_lab.children import foreground, shutdown
from hakmem_lab.commands import options as opt
from hakmem_lab.target import process
from hakmem_lab.terminal.amounts import counted, in_bytes
from hakmem_lab.terminal.console import out, remark
from hakmem_lab.terminal.errors import LabError, UsageError
from hakmem_lab.terminal.files import write_whole

if TYPE_CHECKING:
    from hakmem_lab.profile.formats import Report
    from hakmem_lab.profile.heap_dumps import Estimate, Profile
    from hakmem_lab.profile.memory_over_time import MemoryOverTime
    from hakmem_lab.profile.remote_control import Profiler

HELP = """Profile the heap of a program or of a running process, or show an earlier profile.

The profile samples by bytes, one block in 512 KiB on average (--interval), so it costs little; each figure has its
standard error. A running process is profiled for --seconds and then switched off, however this command ends. It must
run on HAKMEM, but needs no special start; it answers at once if it was started with HAKMEM_PROFILE=ready
HAKMEM_STATS_SIGNAL=N. Blocks from before the profile are not in it.

The ending of a file selects its format: .html (a flame graph), .pb.gz (for go tool pprof), .collapsed,
.speedscope.json, .heap (for jeprof), .json.

Examples:

  hakmem profile -o heap.html -- python3 job.py

  hakmem profile $(pgrep -n redis-server) --seconds 30 -o heap.pb.gz

  hakmem profile --off $(pgrep -n redis-server)

  hakmem profile --diff before.heap after.heap -o grown.html

  hakmem profile --by tenant $(pgrep -n server) -o tenants.html
"""
SUMMARY = 3
ENDINGS = (".pb.gz", ".speedscope.json", ".json", ".collapsed", ".folded", ".heap", ".html")
SUFFIXES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def profile(
    targets: Annotated[
        list[str], typer.Argument(metavar="PID | FILE... | -- PROGRAM...", help="What to profile, or dumps to show.")
    ],
    output: Annotated[
        list[Path] | None,
        typer.Option("-o", "--output", metavar="FILE", help="Write the profile to a file; repeatable."),
    ] = None,
    interval: Annotated[str, typer.Option(help="Mean bytes between samples; 1 samples every block.")] = "512K",
    kind: Annotated[
        str | None,
        typer.Option(
            help="The kind in the table and in files with one kind: live, allocated, peak, short, or, for a process, "
            "pinned; by default peak for a program that is run, otherwise live.",
            show_default=False,
        ),
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY",
            help="Bytes by the value of a label, and a root frame for each; repeatable. heap: the user heap, below its "
            "parents.",
        ),
    ] = None,
    heap: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only the blocks of user heaps of this name, and of heaps below; or malloc."),
    ] = None,
    top: opt.Top = 15,
    seconds: Annotated[float, typer.Option(help="For a process: how long to profile it.", min=0, max=86400)] = 10.0,
    leave_on: Annotated[bool, typer.Option("--leave-on", help="For a process: leave the profile on.")] = False,
    off: Annotated[bool, typer.Option("--off", help="For a process: only switch the profile off.")] = False,
    diff: Annotated[
        bool, typer.Option("--diff", help="For two files: the growth of live memory from the first to the second.")
    ] = False,
    library: opt.Found = None,
) -> None:
    from hakmem_lab.inspect.core import is_core
    from hakmem_lab.profile import formats, heap_dumps, in_memory

    status, standard, by = 0, "live", by or []
    for path in output or []:
        ending_of(path)
        opt.expect_writable(path)

    def named(found: Profile) -> Report:
        return formats.named(only_heap(found, heap), by)

    if off:
        if len(targets) != 1 or not targets[0].isdigit():
            raise UsageError("--off takes a process id", "Example: hakmem profile --off $(pgrep -n redis-server)")
        end_profile(int(targets[0]))
        return
    if diff:
        if len(targets) != 2:
            raise UsageError("--diff takes two files", "Example: hakmem profile --diff before.heap after.heap")
        reports = [named(heap_dumps.read(Path(each))) for each in targets]
        report, kind = formats.difference(*reports), "growth"
    elif len(targets) == 1 and targets[0].isdigit() and not Path(targets[0]).exists():
        expect_kind(kind, (*heap_dumps.OF_PROGRAM, "pinned"))
        report = named(of_process(int(targets[0]), parse_bytes(interval), seconds, leave_on))
    elif len(targets) == 1 and is_dump(Path(targets[0])):
        report = named(heap_dumps.read(Path(targets[0])))
    elif len(targets) == 1 and is_core(Path(targets[0])):
        report = named(in_memory.of_core(Path(targets[0]), library))
    else:
        expect_program(targets)
        expect_kind(kind, heap_dumps.OF_PROGRAM)
        found, status = of_program(targets, {"HAKMEM_PROFILE_INTERVAL": str(parse_bytes(interval))}, library=library)
        report, standard = named(found), "peak"
    kind = kind or standard
    expect_kind(kind, report.kinds)
    for key in by:
        table_by(report, key, kind, top)
    table(report, kind, top)
    for key in report.keys if not by else []:
        summary_by(report, key, kind)
    for path in output or []:
        write(report, path, kind, titled(report, " ".join(targets)))
        remark(f"hakmem: wrote {path}")
    raise typer.Exit(status)


def expect_kind(kind: str | None, known: tuple[str, ...]) -> None:
    if kind is not None and kind not in known:
        raise UsageError(f"--kind {kind}: this profile has {', '.join(known)}")


def only_heap(found: Profile, name: str | None) -> Profile:
    """Implements --heap."""
    from hakmem_lab.profile import formats
    from hakmem_lab.profile.heap_dumps import HEAP

    if name is None:
        return found
    names = {formats.value_of(site.labels, HEAP) for site in found.sites}
    wanted = {each for each in names if f"/{name}/" in f"/{each}/"}
    if not wanted:
        known = formats.one_line(", ".join(sorted(names)[:20])) or "none"
        raise LabError(f"--heap {name}: no sample is of a heap of this name", f"The profile has {known}.")
    found.sites = [site for site in found.sites if formats.value_of(site.labels, HEAP) in wanted]
    return found


def titled(report: Report, targets: str) -> str:
    """What was asked for, behind the program's name: that of the first file that is mapped."""
    program = next((Path(each.path).name for each in report.profile.mappings if each.path.startswith("/")), "")
    return f"{program} ({targets})" if program and program not in targets else targets


def ending_of(path: Path) -> str:
    """What names the format of a file."""
    ending = next((each for each in ENDINGS if path.name.endswith(each)), None)
    if ending is None:
        raise UsageError(f"{path}: no format has this ending", f"Known are {', '.join(ENDINGS)}.")
    return ending


def write(report: Report, path: Path, kind: str, title: str) -> None:
    """Writes a report in the format that the file's ending names."""
    from hakmem_lab.pages import flame
    from hakmem_lab.profile import formats

    make: dict[str, Callable[[], bytes]] = {
        ".pb.gz": lambda: formats.pprof(report),
        ".speedscope.json": lambda: formats.speedscope(report, title).encode(),
        ".json": lambda: json.dumps(formats.as_document(report)).encode(),
        ".collapsed": lambda: formats.collapsed(report, kind).encode(),
        ".folded": lambda: formats.collapsed(report, kind).encode(),
        ".heap": lambda: formats.heap_v2(report).encode(),
        ".html": lambda: flame.page(report, kind, title).encode(errors="replace"),
    }
    try:
        write_whole(path, make[ending_of(path)]())
    except OSError as error:
        raise LabError(f"{path}: {error.strerror}") from None


def is_dump(path: Path) -> bool:
    """Whether a file is a dump rather than a program."""
    try:
        with path.open("rb") as file:
            head = file.read(24)
    except OSError:
        return False
    return head.startswith((b"heap_v2/", b'{"hakmem_profile"'))


def expect_program(targets: list[str]) -> None:
    """Against files of -o that cannot be read again."""
    from hakmem_lab.profile.heap_dumps import DUMPS

    path = Path(targets[0])
    if len(targets) == 1 and path.name.endswith(ENDINGS) and path.is_file() and not os.access(path, os.X_OK):
        raise LabError(f"{path} is not a profile that can be read again", f"Give {DUMPS}.")


def parse_bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+)([KMG]?)(i?B)?", text, re.IGNORECASE)
    value = int(match[1]) * SUFFIXES.get(match[2].upper(), 1) if match else 0
    if not 1 <= value <= 1 << 40:
        raise UsageError(f"--interval {text}: not a size", "Examples: 512K, 2M, 1.")
    return value


def of_process(pid: int, interval: int, seconds: float, leave_on: bool) -> Profile:
    from hakmem_lab.profile.memory_over_time import MemoryOverTime
    from hakmem_lab.profile.remote_control import Profiler, how_to_switch_off

    profiler = Profiler(pid)
    begun = not profiler.counts
    again = profiler.started and (not begun or profiler.interval == interval)
    said = "it includes the samples of earlier profiles" if again else "blocks from before are not in it"
    passing = begun and not leave_on
    with (
        MemoryOverTime(pid) as memory,
        shutdown.otherwise({"command": how_to_switch_off(pid)}) if passing else nullcontext(),
    ):
        try:
            if begun:
                profiler.start(interval)
                time_s = f"{seconds:g} second{'' if seconds == 1 else 's'}"
                line = f"hakmem: process {pid} is profiled for {time_s} (Ctrl-C: until now); {said}"
                wait(pid, seconds, line, memory)
            else:
                remark(f"hakmem: a profile is already on in process {pid}; these are its samples so far")
            found = profiler.dump()
        finally:
            if passing:
                switch_off(profiler)
    found.memory = memory.points
    found.about = said
    return found


def switch_off(profiler: Profiler) -> None:
    """Switches the profile off; it stays on only if the process does not answer."""
    try:
        with shutdown.undisturbed():
            if profiler.counts:
                profiler.request("stop")
    except LabError as error:
        if process.exists(profiler.pid):
            remark(f"hakmem: the profile is still on: {error}; hakmem profile {profiler.pid} --off stops it")


def end_profile(pid: int) -> None:
    """Implements --off."""
    from hakmem_lab.profile.remote_control import Profiler

    profiler = Profiler(pid)
    if not profiler.counts:
        remark(f"hakmem: no profile is on in process {pid}")
        return
    profiler.request("stop")
    remark(f"hakmem: the profile of process {pid} is off")


def wait(pid: int, seconds: float, said: str, memory: MemoryOverTime) -> None:
    began = time.monotonic()
    with suppress(KeyboardInterrupt):
        remark(said)
        if not process.runs_until(pid, began + seconds):
            last = f"; it last had {in_bytes(memory.points[-1][1])} resident" if memory.points else ""
            raise LabError(
                f"process {pid} has ended after {time.monotonic() - began:.1f} of {seconds:g} seconds, and its "
                f"profile with it{last}",
                "'hakmem profile -- PROGRAM' has the program write its profile when it ends.",
            )


def of_program(
    program: list[str], settings: dict[str, str], mode: str = "1", library: Path | None = None
) -> tuple[Profile, int]:
    """The profile of a program's main process, which it writes at its end, and its exit status."""
    from hakmem_lab.commands.run import prepare
    from hakmem_lab.profile import heap_dumps
    from hakmem_lab.profile.memory_over_time import MemoryOverTime

    target, environment = prepare(program, None, [], None, None, [], False, library)
    with tempfile.TemporaryDirectory(prefix="hakmem-") as folder:
        environment |= settings | {"HAKMEM_PROFILE": f"{mode}:{folder}/profile.json"}
        watched: list[MemoryOverTime] = []

        def watch(pid: int) -> MemoryOverTime:
            watched.append(MemoryOverTime(pid))
            return watched[-1]

        pid, status = foreground.run(*target.execution(program), environment, watch)
        dumps = sorted(Path(folder).glob("profile.*.f.json"))
        own = [path for path in dumps if path.name.startswith(f"profile.{pid}.")]
        if not own:
            how = f"signal {-status}" if status < 0 else f"status {status}"
            raise LabError(
                f"{program[0]} wrote no profile; it ended with {how}",
                "A process that ends by a signal or _exit() writes none. Profile it by its id while it runs.",
            )
        if len(dumps) > 1:
            others = counted(len(dumps) - 1, "child process")
            remark(f"hakmem: {others} profiled too; only the program's own profile is shown")
        found = heap_dumps.read(own[-1])
        found.memory = watched[0].points
        return found, 128 - status if status < 0 else status


# --- the table --------------------------------------------------------------------------------------------------------


def table(report: Report, kind: str, rows: int) -> None:
    """Prints the largest stacks by the innermost function of the program, with its callers."""
    from hakmem_lab.profile.formats import one_line
    from hakmem_lab.profile.heap_dumps import ABOUT, Estimate
    from hakmem_lab.profile.symbols import without_standard

    total = report.total(kind)
    found = sorted(
        ((values[kind], stack) for stack, values in report.stacks.items() if values.get(kind, Estimate()).objects),
        key=lambda each: -abs(each[0].bytes),
    )
    out.print(
        f"{total.says} {ABOUT[kind]}, in {counted(total.objects, 'block')}",
        soft_wrap=True,
    )
    if report.profile.missed:
        out.print(f"{counted(report.profile.missed, 'sample')} missing for lack of room")
    out.print(f"{'bytes':>10} {'±':>10} {'share':>8} {'blocks':>10}  function, and its callers")
    for value, stack in found[:rows]:
        share = f"{100 * value.bytes / total.bytes:.1f} %" if total.bytes else ""
        shown = without_standard(stack)
        said = " < ".join([shown[0].says, *(frame.name for frame in shown[1:4])])
        line = f"{in_bytes(value.bytes):>10} {in_bytes(value.error):>10} {share:>8} {value.objects:>10.0f}  {said}"
        out.print(one_line(line), soft_wrap=True, markup=False)
    if len(found) > rows:
        out.print(f"... and {len(found) - rows} more")
    if not report.samples:
        remark("hakmem: no block was sampled; a smaller --interval samples more")
    elif not found and kind == "live":
        remark("hakmem: all sampled blocks had been freed by then; --kind peak shows the peak")
    elif kind == "peak" and report.total("live").bytes < total.bytes:
        remark(
            f"hakmem: {in_bytes(report.total('live').bytes)} of these were in use at the end; --kind live shows them"
        )


def largest(report: Report, key: str, kind: str) -> list[tuple[str, Estimate]]:
    """The values of a label by their bytes."""
    from hakmem_lab.profile.heap_dumps import Estimate

    found = [(value, kinds.get(kind, Estimate())) for value, kinds in report.by_label(key).items()]
    return sorted((each for each in found if each[1].objects), key=lambda each: (-abs(each[1].bytes), each[0]))


def table_by(report: Report, key: str, kind: str, rows: int) -> None:
    """Prints the bytes of each value of a label, with the 95 % interval."""
    from hakmem_lab.profile.formats import one_line
    from hakmem_lab.profile.heap_dumps import ABOUT

    found, total = largest(report, key, kind), report.total(kind).bytes
    out.print(f"By {key}, {ABOUT[kind]}:", soft_wrap=True, markup=False)
    out.print(f"{'bytes':>10} {'95 % interval':>23} {'share':>8} {'blocks':>10}  {key}", soft_wrap=True, markup=False)
    for value, estimate in found[:rows]:
        share = f"{100 * estimate.bytes / total:.1f} %" if total else ""
        between = " to ".join(in_bytes(bound) for bound in estimate.interval)
        line = f"{in_bytes(estimate.bytes):>10} {between:>23} {share:>8} {estimate.objects:>10.0f}  {value}"
        out.print(one_line(line), soft_wrap=True, markup=False)
    if len(found) > rows:
        out.print(f"... and {len(found) - rows} more")
    out.print()


def summary_by(report: Report, key: str, kind: str) -> None:
    """One line on a label that the samples have."""
    from hakmem_lab.profile.formats import one_line

    found = largest(report, key, kind)
    if not found:
        return
    parts = [f"{value} {in_bytes(each.bytes)} ± {in_bytes(1.96 * each.error)}" for value, each in found[:SUMMARY]]
    more = f", and {len(found) - SUMMARY} more" if len(found) > SUMMARY else ""
    out.print(one_line(f"by {key}: {', '.join(parts)}{more} (± 95 %; --by {key})"), soft_wrap=True, markup=False)


def register(app: typer.Typer) -> None:
    app.command("profile", help=HELP)(profile)
