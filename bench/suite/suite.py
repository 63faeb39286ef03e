"""Run the benchmark suite: HAKMEM, the C library's malloc and every peer that is there.

Rounds are interleaved, the allocators of a case in random order. Benchmarks whose ratio to the best peer is not known
well after them get more. Each run's figures are kept in a file of JSON lines, and an interrupted run goes on with
--resume, also to have more rounds. Exit status: 0 all ran, 1 something failed, 2 nothing could be measured,
130 interrupted.

./dev bench --suite --quick shows in under five minutes that everything works; its figures mean nothing.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

import arguments
import listing
import publish
import session
import tables
import typer
from figures import RESOLUTION, Figures
from hakmem_lab.experiment import interleaved
from hakmem_lab.target import libhakmem
from hakmem_lab.target.allocators import FLOOR, HAKMEM, PEERS, SYSTEM, Allocator, c_library, find_peers, why_not_loaded
from hakmem_lab.terminal import console, errors
from hakmem_lab.terminal.errors import LabError
from listing import Case, Places
from rich.console import Console
from rich.table import Table as Grid
from session import Missing, Plan, Results, Runner, Session

ROUNDS, QUICK_ROUNDS, MORE = 10, 1, 20
PROBE = "bench_tiny_hot"  # the program by which libraries are tried
FORMER = "former"  # another build of HAKMEM, measured as a peer
USAGE = 2


def choose_cases(only: str | None) -> list[Case]:
    """The cases whose name or group matches."""
    try:
        wanted = re.compile(only or "")
    except re.error as error:
        raise LabError(f"--only {only}: not a regular expression: {error}") from error
    found = [case for case in listing.load() if wanted.search(case.name) or wanted.search(case.group)]
    if not found:
        raise LabError("--only matches no benchmark", "./dev bench --suite --list shows their names.")
    return found


def choose_names(text: str | None) -> list[str]:
    known = [HAKMEM, FORMER, SYSTEM, *PEERS, FLOOR]
    names = [name for name in known if name != FORMER] if text in (None, "all") else (text or "").split(",")
    unknown = [name for name in names if name not in known]
    if unknown:
        raise LabError(f"--alloc: unknown {', '.join(unknown)}", f"Known are {', '.join(known)}.")
    return [name for name in known if name in names]


def gather(
    names: list[str], build: Path, lib: Path | None, former: Path | None = None
) -> tuple[list[Allocator], list[Missing]]:
    """The allocators that can take part, and why others can't.  HAKMEM has to."""
    installed, probe = find_peers(), build / PROBE
    if not probe.is_file():
        raise LabError(f"{build} has no benchmarks", "Build first, with ./dev build release.")
    found: list[Allocator] = []
    missing: list[Missing] = []
    for name in names:
        if name == HAKMEM:
            allocator = Allocator(name, "ours", libhakmem.find(lib or build))
        elif name == FORMER:
            if former is None:
                raise LabError("the former build is not known", "Say where it lies: --former PATH.")
            allocator = Allocator(name, "peer", libhakmem.find(former))
        elif name in (SYSTEM, FLOOR):
            allocator = Allocator(name, "floor" if name == FLOOR else "peer", libc=c_library(probe))
        elif installed[name] is None:
            missing.append(Missing(name=name, reason="not there; ./dev setup --peers builds and installs peers"))
            continue
        else:
            allocator = Allocator(name, "peer", installed[name])
        problem = why_not_loaded(allocator, probe)
        if problem is None:
            found.append(allocator)
        elif name == HAKMEM:
            raise LabError(f"{allocator.shared_object} does not serve malloc when preloaded: {problem}")
        else:
            missing.append(Missing(name=name, reason=problem))
    return found, missing


def prepared(cases: list[Case], places: Places, allocators: list[Allocator]) -> tuple[list[Case], list[Missing]]:
    """The cases that can run here, made ready, and why others can't."""
    ready: list[Case] = []
    missing: list[Missing] = []
    for case in cases:
        problem = listing.prepare(case, places) or session.not_loadable(case, places, allocators)
        if problem is None:
            ready.append(case)
        else:
            console.remark(f"{case.name} is left out: {problem}")
            missing.append(Missing(name=case.name, reason=problem))
    return ready, missing


def show_table(table: tables.Table) -> None:
    """One table on standard output."""
    grid = Grid(title=table.title, caption=table.note, title_justify="left", caption_justify="left")
    for place, name in enumerate(table.header):
        left = place == 0 or table.title in ("Left out", "What has to hold")
        grid.add_column(name, justify="left" if left else "right", no_wrap=not left, overflow="fold")
    for row in table.rows:
        grid.add_row(*row)
    # A table that is wider than the screen is of more use than one that is cut.
    widths = [max(len(cells[place]) for cells in [table.header, *table.rows]) + 3 for place in range(len(table.header))]
    Console(width=max(console.out.width, 4 + sum(widths))).print(grid)


def show(kept: Results) -> None:
    """All tables on standard output."""
    figures = Figures(kept)
    for table in [*tables.all_tables(figures), *tables.family(figures), *(tables.beside_system(figures) if figures.on_musl else [])]:
        show_table(table)


def print_list(cases: list[Case]) -> None:
    for case in cases:
        console.out.print(f"{case.group:8} {case.name:16} {case.about}", soft_wrap=True)
        console.out.print(f"{'':25} {' '.join(session.generic(case, quick=False))}", soft_wrap=True, markup=False)


def is_known(kept: Results, case: str) -> bool:
    return Figures(kept).is_known(case)


def begin(
    cases: list[Case], names: list[str], build: Path, libs: tuple[Path | None, Path | None], plan: Plan, path: Path | None
) -> Session:
    """A new run, or the continuation of the one in `path` when that exists."""
    places = Places(build)
    allocators, missing = gather(names, build, *libs)
    ready, left_out = prepared(cases, places, allocators)
    if not ready or not allocators:
        raise LabError("nothing can be measured here", "./dev setup --suite --peers installs what is missing.")
    head = session.head_of(ready, allocators, [*missing, *left_out], plan)
    head.machine.facts["C library"] = c_library(build / PROBE)
    runner = Runner(places, plan.quick)
    if path is not None and path.is_file():
        kept = session.load(path)
        session.require_same(kept.head, head)
        return Session(kept, ready, allocators, runner, path, resumed=True, more=plan.more, known=is_known)
    path = path or interleaved.results_path("suite", None)
    return Session(Results(head=head), ready, allocators, runner, path, more=plan.more, known=is_known)


def resume(path: Path, build: Path, libs: tuple[Path | None, Path | None], more: int | None) -> Session:
    """Goes on with what the file says, whatever else is installed by now."""
    head = session.load(path).head
    listed = {case.name: case for case in listing.load()}
    gone = [each.name for each in head.cases if each.name not in listed]
    if gone:
        raise LabError(f"{path}: the list has no {', '.join(gone)} any more", "Start a new run.")
    cases = [listed[each.name] for each in head.cases]
    plan = head.plan if more is None else head.plan.model_copy(update={"more": more})
    return begin(cases, [each.name for each in head.allocators], build, libs, plan, path)


def print_environment(kept: Results) -> None:
    head = kept.head
    facts = {**head.machine.facts, "commit": head.commit or "unknown", "python": head.machine.versions["python"]}
    for name, value in facts.items():
        console.out.print(f"{name:18} {value}", soft_wrap=True, markup=False)
    for each in head.allocators:
        console.out.print(f"{each.name:18} {each.description}", soft_wrap=True, markup=False)
    for left in head.missing:
        console.out.print(f"{left.name:18} left out: {left.reason}", soft_wrap=True, markup=False)


def main(
    quick: arguments.Quick = False,
    rounds: Annotated[int | None, typer.Option(min=1, metavar="N", help="Measured rounds (10; 1 if quick).")] = None,
    more: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help=f"At most so many rounds besides, of benchmarks whose ratio is not known to {RESOLUTION * 100:g} %"
            f" ({MORE}; 0 with --quick or --rounds).",
        ),
    ] = None,
    only: Annotated[
        str | None, typer.Option(metavar="REGEX", help="Benchmarks whose name or group matches.")
    ] = None,
    alloc: Annotated[str | None, typer.Option(metavar="all|NAME,NAME", help="Which allocators.")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where results go (hakmem-results/suite-….jsonl).")
    ] = None,
    resume_: arguments.Resume = None,
    seed: arguments.Seed = None,
    lib: arguments.Lib = None,
    former: Annotated[
        Path | None, typer.Option(metavar="PATH", help=f"Another build of HAKMEM, measured as the peer {FORMER}.")
    ] = None,
    build: arguments.Build = arguments.BUILD,
    list_: Annotated[bool, typer.Option("--list", help="List the benchmarks and run nothing.")] = False,
    show_: arguments.Show = None,
    publish_: Annotated[
        list[Path] | None,
        typer.Option(
            "--publish",
            metavar="FILE",
            help="Write a file's tables and charts into docs/benchmarks.md; ./dev generate then writes README's. "
            "Given again: a file of other benchmarks, measured under the same allocators.",
        ),
    ] = None,
) -> None:
    if show_ is not None:
        kept = session.load(show_)
        print_environment(kept)
        show(kept)
        return
    if publish_:
        publish.publish([session.load(each) for each in publish_], listing.ROOT)
        return
    if list_:
        print_list(choose_cases(only))
        return
    build = build.absolute()
    if resume_ is not None:
        running = resume(resume_, build, (lib, former), more)
    else:
        plan = Plan(
            quick=quick,
            rounds=rounds or (QUICK_ROUNDS if quick else ROUNDS),
            more=more if more is not None else 0 if quick or rounds else MORE,
            seed=interleaved.seed_or_new(seed),
        )
        if out is not None and out.exists():
            raise LabError(f"{out} is there already", f"Go on with it: --resume {out}; or choose another name.")
        names = choose_names(alloc)
        if former is not None and FORMER not in names:
            names.insert(1, FORMER)
        running = begin(choose_cases(only), names, build, (lib, former), plan, out)
    print_environment(running.results)
    try:
        running.run()
    finally:
        running.close()
        if any(sample.round > 0 for sample in running.results.samples):
            show(running.results)
            console.out.print(f"results: {running.path}", soft_wrap=True, markup=False)
    if running.results.failures:
        raise typer.Exit(errors.ERROR)


def start() -> None:
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    app.command(help=__doc__)(main)
    try:
        app(prog_name="./dev bench --suite")
    except LabError as error:
        console.complain(error.message, error.advice)
        sys.exit(error.status if error.status == errors.INTERRUPTED else USAGE)


if __name__ == "__main__":
    start()
