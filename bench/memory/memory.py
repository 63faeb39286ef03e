#!/usr/bin/env python3
"""Memory of HAKMEM beside that of the system's malloc and each installed peer: ./dev bench --memory, --drift.

Each row is a program that a person can run by hand; it prints one line of key=value pairs. Rounds are interleaved. --publish writes the
medians, with one table and one chart for each row, into docs/memory.md, where rows and allocators that were not measured keep their
figures. Rows of Redis are measured once `bench/memory/redis_memory.py build` has built it.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

BENCH = Path(__file__).resolve().parent.parent
sys.path += [str(BENCH), str(BENCH / "suite"), str(BENCH.parent / "tools"), str(BENCH / "memory")]

import drawing
from allocators import HAKMEM, PEERS, SYSTEM, Allocator, describe, environment_facts
from package_common import ENTER, bare_root
from redis_memory import SERVERS
from run import UsageError, gather

ROOT = BENCH.parent
PAGE, CHARTS = Path("docs/memory.md"), Path("docs/memory")
BEGIN, END = "<!-- memory:begin -->", "<!-- memory:end -->"
TIMEOUT_S = 3600
Figures = dict[str, float]


@dataclass(frozen=True)
class Row:
    """One program with arguments; `shown` are the figures of its table, the first of which the chart draws."""

    name: str
    what: str
    command: str
    quick: str
    shown: tuple[str, ...] = field(default_factory=tuple)


def bursts(name: str, mib: int, period_ms: int, count: int) -> Row:
    return Row(name, f"Bursts of {mib} MiB every {period_ms / 1000:g} s: cost of returning and regretting, and memory over time.",
               f"return_memory {mib} {period_ms} {count} 1000 calls 0", f"return_memory {min(mib, 16)} 50 3 1000 calls 0",
               ("gib_seconds", "mean_mib", "cost_percent"))


ROWS = (
    Row("small_process", "A process with a hundred small blocks: memory that it alone has written, and its page tables.", "bench_small 100",
        "bench_small 100", ("dirty_bytes", "table_bytes")),
    Row("sleeping_threads", "What a sleeping thread costs beyond its stack, after 64 sizes of up to 1,280 bytes: at once, and 4 s later.",
        "bench_idle 1000 64 16 1280 4000", "bench_idle 20 64 16 1280 100", ("rested_bytes", "idle_bytes")),
    Row("thread_generations", "What a thread costs beyond its stack in the eighth generation of 500 threads, which use 100 sizes of up to 32 KiB.",
        "bench_idle 500 100 16 32768 4000 1 8", "bench_idle 20 100 16 32768 100 1 3", ("idle_bytes", "rested_bytes")),
    Row("children_all", "A forked child frees all of 200 MiB of small blocks: what it copies, and what stays.", "bench_children all",
        "bench_children all 4", ("copied_kb", "stays_kb")),
    Row("children_second", "The same for every second block.", "bench_children second", "bench_children second 4", ("copied_kb", "stays_kb")),
    Row("redis_save", "Redis' BGSAVE of 100,000 keys while 2,000 values are replaced: what its child and the server copy.",
        "redis_memory.py save 100000 2000", "redis_memory.py save 2000 50", ("copied_kb", "live_mib")),
    Row("redis_defrag", "Redis after two thirds of 300,000 keys are deleted, and after its active defragmentation, where the allocator has a hint "
        "for it: HAKMEM's is `hak_is_sparse`; jemalloc5 is Redis' own jemalloc 5.2.1 here.",
        "redis_memory.py defrag 300000", "redis_memory.py defrag 3000", ("after_mib", "before_mib", "live_mib", "moved")),
    Row("back_calls", "64 MiB are freed: time until a tenth is resident, while the thread still calls; -1: not within five seconds.",
        "return_memory 64 1000 1 1000 calls 5000", "return_memory 16 1000 1 1000 calls 500", ("back_ms", "kept_mib")),
    Row("back_thread", "The same while all threads sleep.", "return_memory 64 1000 1 1000 thread 5000",
        "return_memory 16 1000 1 1000 thread 500", ("back_ms", "kept_mib")),
    bursts("bursts_16", 16, 100, 100),
    bursts("bursts_64", 64, 1000, 20),
    bursts("bursts_512", 512, 10000, 6),
    Row("drift", "Sixty simulated days of a server: resident over live memory, its slope by day with its 95 % interval.",
        "drift 60 60 1", "drift 3 6 1", ("end_ratio", "slope", "slope_low", "slope_high")),
    Row("page_tables", "Page tables of 256 MiB of small blocks, and after all but one in 64 are freed.", "page_tables 256 200 64",
        "page_tables 16 200 64", ("pte_kib", "kept_pte_kib")),
    Row("huge_pages", "A growing heap of small blocks: its part in huge pages, and the time of following a pointer through it.",
        "huge_pages 1024 200 5000000 1", "huge_pages 16 200 10000 1", ("chase_ns", "half_percent", "huge_percent", "resident_mib")),
)


def parse(output: str) -> Figures:
    """The figures of the last line that has some."""
    for line in reversed(output.splitlines()):
        found = dict(re.findall(r"(\w+)=(-?(?:[0-9.]+(?:e[+-]?\d+)?|inf))(?=\s|$)", line))
        if found:
            return {name: float(value) for name, value in found.items()}
    return {}


def curve(output: str) -> list[tuple[float, float]]:
    """The mean ratio of each day of drift, days from 1."""
    days: dict[int, list[float]] = {}
    for hour, ratio in re.findall(r"^hour=(\d+) .*?ratio=([0-9.]+)$", output, re.MULTILINE):
        days.setdefault(int(hour) // 24, []).append(float(ratio))
    return [(day + 1.0, statistics.fmean(ratios)) for day, ratios in sorted(days.items())]


@dataclass(frozen=True)
class Newer(Allocator):
    """The malloc of a newer C library: that of another release of Debian, in a root of which the programs run."""

    root: Path = Path("/")
    def environment(self) -> dict[str, str]:
        return {**super().environment(), "MEMORY_ROOT": str(self.root)}


def newer(release: str) -> Newer:
    root = bare_root(f"memory-{release}", (), release)
    version = subprocess.run(["chroot", str(root), "getconf", "GNU_LIBC_VERSION"], capture_output=True, text=True, check=True).stdout.split()[1]
    return Newer(f"glibc-{version}", "peer", None, root=root)


def program_of(row: Row, options: argparse.Namespace) -> Path:
    """Redis' is a script, which needs its servers."""
    first = row.command.split()[0]
    return options.build / first if not first.endswith(".py") else BENCH / "memory" / first


def is_there(row: Row, options: argparse.Namespace) -> bool:
    program = program_of(row, options)
    return program.is_file() and (program.suffix != ".py" or all(server.is_file() for server in SERVERS.values()))


def command_of(row: Row, allocator: Allocator, options: argparse.Namespace) -> tuple[list[str], dict[str, str]]:
    """The command line and its environment: of a script only the server runs on the allocator."""
    words, program, environment = (row.quick if options.quick else row.command).split(), program_of(row, options), allocator.environment()
    if row.name == "drift" and options.real:
        words.append(str(options.real))
    if program.suffix == ".py":
        environment["SUITE_PRELOAD"] = environment.pop("LD_PRELOAD", "")
        return [sys.executable, "-B", str(program), *words[1:]], environment
    if not isinstance(allocator, Newer):
        return [str(program), *words[1:]], environment
    inside = allocator.root / program.relative_to("/")
    inside.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(program, inside)
    return [*ENTER, str(allocator.root), str(program), *words[1:]], environment


def once(row: Row, allocator: Allocator, options: argparse.Namespace) -> tuple[Figures, list[tuple[float, float]], str]:
    command, environment = command_of(row, allocator, options)
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return {}, [], f"no end after {TIMEOUT_S} s"
    if done.returncode != 0:
        return {}, [], f"exit status {done.returncode}: {done.stderr.strip()[-200:]}"
    return parse(done.stdout), curve(done.stdout), ""


def middle(results: list[Figures], name: str) -> float | None:
    values = [each[name] for each in results if name in each]
    return statistics.median(values) if values else None


Results = dict[str, dict[str, list[Figures]]]


def cell(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def code_of(allocator: Allocator) -> str:
    """What a column measures, without the place where this machine has it."""
    if isinstance(allocator, Newer):
        return f"the C library's malloc, glibc {allocator.name.partition('-')[2]}, in a root of a newer Debian"
    found = re.search(r"\((.*)\)$", describe(allocator))
    return "this tree" if allocator.kind == "ours" else found[1] if found else describe(allocator)


def facts_of_machine() -> dict[str, str]:
    """What a page says of the machine: without its load, and without the name of its own kernel."""
    return {name: re.sub(r"^(Linux \d+\.\d+)\S*", r"\1", value) for name, value in environment_facts().items() if name != "load"}


def lines_of(row: Row, results: dict[str, list[Figures]]) -> list[list[str]]:
    return [[name, *(cell(middle(figures, key)) for key in row.shown)] for name, figures in results.items()]


def chart(row: Row, results: dict[str, list[Figures]], curves: dict[str, list[tuple[float, float]]]) -> str:
    """Drift as a curve; else each allocator's first figure by the system's."""
    if row.name == "drift":
        return "" if not curves else drawing.curves([drawing.Curve("resident / live, by day", curves)], HAKMEM, "Sixty simulated days")
    key, system = row.shown[0], middle(results.get(SYSTEM, []), row.shown[0])
    bars = []
    for name, figures in results.items():
        values = [each[key] for each in figures if each.get(key, 0) > 0]
        if values and system is not None and system > 0:
            bars.append(drawing.Bar(name, statistics.median(values) / system, min(values) / system, max(values) / system))
    return drawing.bars(bars, f"{row.name}: {key}, the system's malloc = 1; less is better") if bars else ""


def picture_of(row: Row, results: dict[str, list[Figures]], curves: dict[str, list[tuple[float, float]]], root: Path, anew: bool) -> list[str]:
    """The link to the row's chart, which is drawn `anew` if all its columns were measured; none if there is no chart."""
    path = root / CHARTS / f"{row.name}.svg"
    whole = row.name != "drift" or {name for name, figures in results.items() if any(figures)} <= set(curves)
    picture = chart(row, results, curves) if anew and whole else ""
    if picture:
        path.write_text(picture, encoding="utf-8")
    return [f"![{row.name}](memory/{row.name}.svg)"] if path.is_file() else []


def page(results: Results, curves: dict[str, list[tuple[float, float]]], facts: list[str], root: Path, drawn: Results | None = None) -> str:
    """The generated part of the page; writes the charts beside it, of `drawn` rows alone if there are some."""
    (root / CHARTS).mkdir(exist_ok=True)
    parts = ["\n".join(f"- {fact}" for fact in facts)]
    for row in ROWS:
        if not results.get(row.name):
            continue
        parts.append(f"### {row.name}\n\n{row.what} `{row.command}`")
        header = ["", *row.shown]
        table = [header, ["---", *("--:" for _ in row.shown)], *lines_of(row, results[row.name])]
        parts.append("\n".join("| " + " | ".join(cells) + " |" for cells in table))
        parts += picture_of(row, results[row.name], curves, root, drawn is None or row.name in drawn)
    return "\n\n".join(parts)


def published(text: str) -> tuple[Results, dict[str, str]]:
    """What the page has: each median as one result, and what the columns are."""
    results: Results = {}
    body = text.partition(BEGIN)[2].partition(END)[0]
    for section in body.split("### ")[1:]:
        table = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("|")]
        results[section.split()[0]] = {name: [{key: float(value.replace(",", "")) for key, value in zip(table[0][1:], values) if value != "-"}]
                                       for name, *values in table[2:]}
    return results, dict(re.findall(r"^- (\S+): (.*)$", body.partition("### ")[0], re.MULTILINE))


def joined(old: Results, new: Results) -> Results:
    """The page's figures, in place of which come the new ones."""
    order = [HAKMEM, SYSTEM, *PEERS]
    result: Results = {}
    for row in ROWS:
        both = {**old.get(row.name, {}), **{name: figures for name, figures in new.get(row.name, {}).items() if figures}}
        names = sorted(both, key=lambda name: (order.index(name) if name in order else order.index(SYSTEM) + 0.5))
        result[row.name] = {name: both[name] for name in names}
    return result


def publish(body: str, root: Path, page: Path = PAGE, name: str = "memory") -> None:
    text, begin, end = (root / page).read_text(encoding="utf-8"), f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise UsageError(f"{page} has no place between {begin} and {end}")
    before, after = text[: text.index(begin)], text[text.index(end):]
    (root / page).write_text(f"{before}{begin}\n\n{body}\n\n{after}", encoding="utf-8")


def read(path: Path, results: Results, curves: dict[str, list[tuple[float, float]]]) -> None:
    """Adds the results of an earlier run, of the rows and allocators that take part."""
    for line in path.read_text(encoding="utf-8").splitlines():
        kept = json.loads(line)
        if kept["allocator"] in results.get(kept["row"], {}):
            results[kept["row"]][kept["allocator"]].append(kept["figures"])
            if kept["days"]:
                curves[kept["allocator"]] = kept["days"]


def measure(rows: list[Row], columns: list[Allocator], options: argparse.Namespace) -> tuple[Results, dict[str, list[tuple[float, float]]], int]:
    results: Results = {row.name: {each.name: [] for each in columns} for row in rows}
    curves: dict[str, list[tuple[float, float]]] = {}
    for path in options.add:
        read(path, results, curves)
    failures, order = 0, random.Random(options.seed)
    for number in range(options.rounds):
        for row in rows:
            for allocator in order.sample(columns, len(columns)):
                figures, days, problem = once(row, allocator, options)
                if problem:
                    failures += 1
                    print(f"{row.name} {allocator.name}: {problem}", file=sys.stderr)
                    continue
                results[row.name][allocator.name].append(figures)
                if days:
                    curves[allocator.name] = days
                if options.json is not None:
                    with options.json.open("a", encoding="utf-8") as file:
                        print(json.dumps({"row": row.name, "allocator": allocator.name, "figures": figures, "days": days}), file=file)
                print(f"round {number + 1} {row.name} {allocator.name} "
                      + " ".join(f"{key}={figures[key]:g}" for key in row.shown if key in figures), flush=True)
    return results, curves, failures


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="memory.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, metavar="N", help="measured rounds (3; 1 with --quick); 0 measures nothing")
    parser.add_argument("--quick", action="store_true", help="small workloads: shows that all runs, no figures")
    parser.add_argument("--only", type=re.compile, metavar="REGEX", help="only rows whose name matches")
    parser.add_argument("--alloc", metavar="NAME[,NAME]", help="only these allocators")
    parser.add_argument("--newer", metavar="RELEASE", help="a column more: the malloc of this newer release of Debian, such as forky; as root")
    parser.add_argument("--lib", type=Path, metavar="PATH", help="HAKMEM's library")
    parser.add_argument("--build", type=Path, default=ROOT / "out" / "release", metavar="FOLDER", help="where the programs are (out/release)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the random order")
    parser.add_argument("--real", type=int, default=0, metavar="S", help="drift: seconds that a simulated hour takes, to check the simulation")
    parser.add_argument("--json", type=Path, metavar="FILE", help="append each result there, a line of JSON each")
    parser.add_argument("--add", type=Path, action="append", default=[], metavar="FILE", help="add the results of an earlier run; repeatable")
    parser.add_argument("--publish", action="store_true", help=f"write {PAGE} and its charts")
    options = parser.parse_args(words)
    if options.rounds is None:
        options.rounds = 1 if options.quick else 3
    options.build = options.build.absolute()
    return options


def main(words: list[str]) -> int:
    options = arguments(words)
    library = (options.lib or options.build / "libhakmem.so").absolute()
    known = [HAKMEM, SYSTEM, *PEERS]
    names = known if options.alloc is None else [name for name in known if name in options.alloc.split(",")]
    rows = [row for row in ROWS if options.only is None or options.only.search(row.name)]
    for row in [row for row in rows if not is_there(row, options)]:
        print(f"{row.name}: {program_of(row, options)} has not been built", file=sys.stderr)
        rows.remove(row)
    try:
        columns = gather(names, {HAKMEM: library}, options.build / "return_memory")
        columns += [newer(options.newer)] if options.newer else []
        if not rows or not columns:
            raise UsageError("there is nothing to measure")
        results, curves, failures = measure(rows, columns, options)
        for row in rows:
            print("\n" + row.what)
            for cells in [["", *row.shown], *lines_of(row, results[row.name])]:
                print("  " + "".join(f"{text:>14}" if i else f"{text:<12}" for i, text in enumerate(cells)))
        if options.publish:
            old, then = published((ROOT / PAGE).read_text(encoding="utf-8"))
            facts = [f"{name}: {value}" for name, value in facts_of_machine().items()]
            now = {each.name: code_of(each) for each in columns}
            everything = joined(old, results)
            facts += [f"{name}: {now.get(name) or then.get(name, '-')}" for name in everything[ROWS[0].name]]
            publish(page(everything, curves, facts, ROOT, results), ROOT)
    except (UsageError, OSError, json.JSONDecodeError, KeyError) as error:
        print(f"memory.py: {error}", file=sys.stderr)
        return 2
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
