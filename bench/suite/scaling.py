"""Scaling: throughput over the number of threads, memory of sleeping threads, and how often shared words are touched.

Patterns run with 1, 2, 4, ... 256 threads, the total work being the same. Rounds are interleaved: each runs every
pattern with every number of threads under every allocator once, all in random order. Beside that, threads that have
used a little memory sleep, and HAKMEM's own counters are read in runs of their own. Every run is kept in a file of JSON
lines; an interrupted run goes on with --resume. Exit status as of ./dev bench --suite.

--publish writes a file's tables into docs/scaling.md, where the model that they belong to is explained.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import arguments
import listing
import model
import publish
import session
import suite
import typer
from hakmem_lab.experiment import interleaved
from hakmem_lab.measure.one_run import Outcome
from hakmem_lab.target.allocators import FLOOR, HAKMEM, SYSTEM
from hakmem_lab.terminal import console, errors
from hakmem_lab.terminal.errors import LabError
from listing import Case, Places
from session import Plan, Results, Runner, Session

THREADS = (1, 2, 4, 8, 16, 64, 256)
QUICK_THREADS = (1, 2, 4)
THREADS_MOST = 256  # of the programs
ROUNDS, QUICK_ROUNDS = 5, 1
IDLE_ROUNDS = 1  # memory hardly varies, and each of these runs sleeps for seconds
GROUP, IDLE, COUNTS = model.GROUP, model.IDLE, model.COUNTS
DEFAULT = f"{HAKMEM},{SYSTEM},mimalloc2,gtcmalloc,{FLOOR}"


@dataclass(frozen=True)
class Pattern:
    """A program whose total work is divided among threads, and its memory too where it has slots.

    In `words` T stands for the number of threads, P of pairs, N for each thread's operations, S for its slots."""

    name: str
    about: str
    program: str
    total: int  # operations
    words: str
    slots: int = 0  # of all threads together
    floor: str = ""
    least: int = 1  # threads
    sending: int = 1  # one of so many threads allocates

    def arguments(self, threads: int, quick: bool) -> tuple[str, ...]:
        parts = max(1, threads // self.sending)
        values = {
            "T": threads,
            "P": threads // 2,
            "N": max(1, (self.total // 200 if quick else self.total) // parts),
            "S": max(1, self.slots // threads),
        }
        return tuple(str(values.get(word, word)) for word in self.words.split())


PATTERNS = (
    Pattern(
        "random_mixed",
        "16..1040 B in 6400 random slots",
        "bench_mid_large_mt",
        80_000_000,
        "T N S 1 16 1040",
        6400,
        "mid_large_mt",
    ),
    Pattern("mid", "8..32 KiB in 1024 random slots", "bench_mid_large_mt", 40_000_000, "T N S", 1024, "mid_large_mt"),
    Pattern("large", "64 KiB..1 MiB in 256 random slots", "bench_large_mt", 2_000_000, "T N S", 256, "large_mt"),
    Pattern(
        "remote",
        "16..1040 B, half of the threads allocate, the other half free; 1024 blocks per ring",
        "bench_remote",
        12_000_000,
        "oneway P N 16 1040",
        least=2,
        sending=2,
    ),
    Pattern(
        "exchange",
        "16..1040 B, each thread frees what the one before it has allocated; 1024 blocks per ring",
        "bench_remote",
        16_000_000,
        "exchange P N 16 1040",
        floor="remote",
        least=2,
    ),
)

# name, what each thread does before it sleeps, arguments after the number of threads
IDLE_CASES = (
    ("least", "one block of 64 B", "1 64 64"),
    ("few", "10 blocks of 16..256 B", "10 16 256"),
    ("hundred", "100 blocks of 16..1040 B, all at once", "100 16 1040"),
)
BACKGROUND = (("", {}), ("background", {"HAKMEM_BACKGROUND": "1"}), ("alone", {"HAKMEM_BACKGROUND": "0"}))


def throughput_cases(threads: Sequence[int]) -> list[Case]:
    return [
        Case(
            model.name_of(pattern.name, count),
            GROUP,
            pattern.about,
            pattern.program,
            pattern.arguments(count, False),
            pattern.arguments(count, True),
            floor=pattern.floor,
        )
        for pattern in PATTERNS
        for count in threads
        if count >= pattern.least
    ]


def counted_cases(cases: Sequence[Case]) -> list[Case]:
    """The same programs once more under HAKMEM, its statistics written at exit."""
    return [
        Case(
            model.COUNTS_PREFIX + each.name,
            COUNTS,
            f"counters: {each.about}",
            each.program,
            each.args,
            each.quick,
            env={"HAKMEM_STATS": "json:{fresh}/counts.json"},
        )
        for each in cases
    ]


def idle_cases(threads: int) -> list[Case]:
    return [
        Case(
            f"{model.IDLE_PREFIX}{name}{'+' * bool(how)}{how}",
            IDLE,
            about,
            "bench_idle",
            (str(threads), *arguments.split()),
            (str(min(threads, 20)), *arguments.split(), "100"),
            env=dict(env),
        )
        for name, about, arguments in IDLE_CASES
        for how, env in BACKGROUND
    ]


def all_cases(threads: Sequence[int], idle: int) -> list[Case]:
    throughput = throughput_cases(threads)
    return [*throughput, *counted_cases(throughput), *(idle_cases(idle) if idle else [])]


def parse_threads(text: str | None, quick: bool) -> list[int]:
    """The numbers of threads, ascending; 2 is always among them, because the others are compared with it."""
    if text is None:
        return list(QUICK_THREADS if quick else THREADS)
    if not re.fullmatch(r"\d+(,\d+)*", text):
        raise LabError(f"--threads {text}: not numbers with commas between them", "Example: --threads 1,2,4,16")
    found = sorted({int(each) for each in text.split(",")} | {2})
    if found[0] < 1 or found[-1] > THREADS_MOST:
        raise LabError(f"--threads {text}: each must be from 1 to {THREADS_MOST}")
    odd = [each for each in found if each > 1 and each % 2]
    if odd:
        raise LabError(f"--threads {text}: {odd[0]} is odd", "Some patterns run in pairs of threads.")
    return found


class ScalingRunner(Runner):
    """Reads the memory that bench_idle prints, and the counters that a library leaves in its file."""

    def bare(self, case: Case) -> int | None:
        return None

    def extra(self, case: Case, outcome: Outcome, fresh: Path) -> dict[str, float]:
        if case.group == IDLE:
            numbers = session.printed_numbers(outcome.output)
            return {name: numbers[name] for name in ("idle_bytes", "rested_bytes")}
        if case.group == COUNTS:
            counted = model.flatten(json.loads((fresh / "counts.json").read_text(encoding="utf-8")))
            numbers = session.printed_numbers(outcome.output)
            return {**counted, "operations": round(numbers["ops_per_s"] * numbers["seconds"])}
        return {}


class ScalingSession(Session):
    """All pairs of a round in one random order, so that thread counts are interleaved like allocators."""

    typed = "./dev bench --scaling"

    @staticmethod
    def takes_part(number: int, case: Case, name: str) -> bool:
        """Whether a pair is run in this round; 0 is the warm-up."""
        if case.group == COUNTS:
            return number == 1 and name == HAKMEM
        if case.group == IDLE:
            return 1 <= number <= IDLE_ROUNDS and name != FLOOR and (name == HAKMEM or not case.env)
        return name != FLOOR or bool(case.floor)

    def steps(self) -> Iterator[tuple[int, int, Case, str]]:
        done = {(each.round, each.case, each.allocator) for each in self.results.samples}
        plan = self.results.head.plan
        for number in range(1 if plan.quick else 0, plan.rounds + 1):
            pairs = [(c, name) for c in self._cases for name in self._allocators if self.takes_part(number, c, name)]
            random.Random(f"{plan.seed}:{number}").shuffle(pairs)
            for position, (case, name) in enumerate(pairs):
                if (number, case.name, name) not in done:
                    yield number, position, case, name


def begin(cases: list[Case], names: list[str], build: Path, lib: Path | None, plan: Plan, path: Path | None) -> Session:
    """A new run, or the continuation of the one in `path` when that exists."""
    places = Places(build)
    allocators, missing = suite.gather(names, build, lib)
    if HAKMEM not in {each.name for each in allocators}:
        cases = [case for case in cases if case.group != COUNTS]
    ready, left_out = suite.prepared(cases, places, allocators)
    if not ready or not allocators:
        raise LabError("nothing can be measured here", "Build first, with ./dev build release.")
    head = session.head_of(ready, allocators, [*missing, *left_out], plan)
    runner = ScalingRunner(places, plan.quick)
    if path is not None and path.is_file():
        kept = load(path)
        session.require_same(kept.head, head)
        return ScalingSession(kept, ready, allocators, runner, path, resumed=True)
    return ScalingSession(
        Results(head=head), ready, allocators, runner, path or interleaved.results_path("scaling", None)
    )


def load(path: Path) -> Results:
    kept = session.load(path)
    if not any(case.group == GROUP for case in kept.head.cases):
        raise LabError(f"{path} is a result of the suite", "Give a file that './dev bench --scaling' has written.")
    return kept


def resume(path: Path, build: Path, lib: Path | None) -> Session:
    """Goes on with what the file says."""
    head = load(path).head
    threads = sorted({model.split_name(case.name)[1] for case in head.cases if case.group == GROUP})
    idle = {int(case.command[1]) for case in head.cases if case.group == IDLE}
    return begin(
        all_cases(threads, max(idle, default=0)), [each.name for each in head.allocators], build, lib, head.plan, path
    )


def print_list(cases: Sequence[Case]) -> None:
    for case in cases:
        command = " ".join([case.program, *case.args])
        console.out.print(f"{case.name:28} {command:44} {case.about}", soft_wrap=True, markup=False)


def main(
    quick: arguments.Quick = False,
    rounds: Annotated[int | None, typer.Option(min=1, metavar="N", help="Measured rounds (5; 1 if quick).")] = None,
    threads: Annotated[
        str | None, typer.Option(metavar="N,N", help="Numbers of threads (1,2,4,8,16,64,256; 1,2,4 if quick).")
    ] = None,
    idle: Annotated[
        int, typer.Option(min=0, max=10000, metavar="N", help="Threads that sleep; 0: leave that out.")
    ] = 1000,
    alloc: Annotated[
        str, typer.Option(metavar="all|NAME,NAME", help="Which allocators; those that are missing are left out.")
    ] = DEFAULT,
    only: Annotated[str, typer.Option(metavar="REGEX", help="Cases whose name matches, e.g. ^large.")] = "",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where results go (hakmem-results/scaling-….jsonl).")
    ] = None,
    resume_: arguments.Resume = None,
    seed: arguments.Seed = None,
    lib: arguments.Lib = None,
    build: arguments.Build = arguments.BUILD,
    list_: Annotated[bool, typer.Option("--list", help="List the cases and run nothing.")] = False,
    show_: arguments.Show = None,
    publish_: Annotated[
        Path | None, typer.Option("--publish", metavar="FILE", help="Write a file's tables into docs/scaling.md.")
    ] = None,
) -> None:
    if show_ is not None or publish_ is not None:
        kept = load(show_ or publish_)  # type: ignore[arg-type]
        if publish_ is not None:
            publish_file(kept, listing.ROOT)
        else:
            suite.print_environment(kept)
            show(kept)
        return
    chosen = select(all_cases(parse_threads(threads, quick), idle), only)
    if list_:
        print_list(chosen)
        return
    build = build.absolute()
    if resume_ is not None:
        running = resume(resume_, build, lib)
    else:
        plan = Plan(
            quick=quick,
            rounds=rounds or (QUICK_ROUNDS if quick else ROUNDS),
            seed=interleaved.seed_or_new(seed),
        )
        if out is not None and out.exists():
            raise LabError(f"{out} is there already", f"Go on with it: --resume {out}; or choose another name.")
        running = begin(chosen, suite.choose_names(alloc), build, lib, plan, out)
    suite.print_environment(running.results)
    try:
        running.run()
    finally:
        running.close()
        if any(sample.round > 0 for sample in running.results.samples):
            show(running.results)
            console.out.print(f"results: {running.path}", soft_wrap=True, markup=False)
    if running.results.failures:
        raise typer.Exit(errors.ERROR)


def select(cases: list[Case], only: str) -> list[Case]:
    try:
        found = [case for case in cases if re.search(only, case.name)]
    except re.error as error:
        raise LabError(f"--only {only}: not a regular expression: {error}") from error
    if not found:
        raise LabError("--only matches no case", "./dev bench --scaling --list shows their names.")
    return found


def show(kept: Results) -> None:
    for table in model.all_tables(kept):
        suite.show_table(table)


def publish_file(kept: Results, root: Path) -> None:
    """Replaces what stands between the markers of docs/scaling.md."""
    if kept.head.plan.quick:
        raise LabError("a quick run's figures mean nothing", "Publish a full one.")
    parts = [publish.environment(kept.head, f"{kept.head.plan.rounds} rounds"), *(publish.markdown(table) for table in model.page_tables(kept))]
    beside = root / "docs" / "scaling" / "throughput.csv"
    beside.parent.mkdir(exist_ok=True)
    header, *rows = model.throughput_rows(kept)
    beside.write_text(publish.comma_separated(header, rows), encoding="utf-8")
    where = root / "docs" / "scaling.md"
    text = publish.replace(where.read_text(encoding="utf-8"), "scaling", "\n\n".join(parts), "docs/scaling.md")
    where.write_text(text, encoding="utf-8")


def start() -> None:
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    app.command(help=__doc__)(main)
    try:
        app(prog_name="./dev bench --scaling")
    except LabError as error:
        console.complain(error.message, error.advice)
        sys.exit(error.status if error.status == errors.INTERRUPTED else suite.USAGE)


if __name__ == "__main__":
    start()
