"""Options and arguments that several commands share, and their use."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hakmem_lab.terminal.errors import LabError, UsageError

if TYPE_CHECKING:
    from hakmem_lab.decide.exports import Report
    from hakmem_lab.measure.results import Plan

# Everything from the first word that is not an option belongs to the program, with or without a -- before it.
PASS_ON = {"allow_interspersed_args": False}
LONGEST_S = 366 * 86400.0

Program = Annotated[
    list[str] | None,
    typer.Argument(metavar="-- PROGRAM [ARGUMENTS]", help="What to run.", show_default=False),
]
Library = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="libhakmem.so, or its folder; by default HAKMEM_LIBRARY, the build tree, the system's folders.",
        show_default=False,
    ),
]
MetricText = Annotated[
    str,
    typer.Option(
        "--metric",
        metavar="REGEX|time|cpu|rss|mix|gib_seconds|instructions",
        help="What to compare: wall time, CPU time, peak memory, the geometric mean of time and memory, memory over "
        "time, instructions (by perf or valgrind), or a number that the program prints, given by a regular expression "
        "with one group (higher is better).",
    ),
]
LowerIsBetter = Annotated[bool, typer.Option("--lower-is-better", help="With a REGEX: smaller numbers are better.")]
Runs = Annotated[int, typer.Option(min=2, max=100_000, help="Rounds; each configuration runs once in each.")]
Warmup = Annotated[int, typer.Option(min=0, max=1000, help="Uncounted rounds before these.")]
Threshold = Annotated[
    float, typer.Option(metavar="PERCENT", min=0.0, max=1000.0, help="The least gain worth having, in %.")
]
LeastGain = Annotated[
    float,
    typer.Option(
        metavar="PERCENT", min=-50.0, max=1000.0, help="The least gain worth having, in %; -1 accepts a loss of 1 %."
    ),
]
Retries = Annotated[
    int,
    typer.Option(
        min=0,
        max=100,
        help="Repeat a run in which the program fails, up to this many times; each repetition is reported and counted.",
    ),
]
Anyway = Annotated[
    bool,
    typer.Option("--anyway", help="Measure the program even if the allocator under test does not serve it."),
]
Seed = Annotated[
    int | None,
    typer.Option(min=0, max=2**31 - 1, help="Seed of the random order; always recorded.", show_default=False),
]
Timeout = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", min=0.001, help="End a run that takes longer, with an error.", show_default=False),
]
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER|FILE.jsonl",
        help="Where results go (by default hakmem-results in this folder).",
        show_default=False,
    ),
]
Resume = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.jsonl",
        help="Go on with an interrupted experiment as planned; other options of the plan are ignored.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]
PageFile = Annotated[
    Path | None,
    typer.Option(
        "--page", metavar="FILE.html", help="Where the page goes (by default beside the results).", show_default=False
    ),
]
Top = Annotated[int, typer.Option(help="Rows of a table.", min=1, max=1000)]
WritePage = Annotated[
    Path | None, typer.Option("--page", metavar="FILE.html", help="Write a page.", show_default=False)
]
Pid = Annotated[int, typer.Argument(metavar="PID", help="A process id.", min=1)]
OfCore = Annotated[
    Path | None,
    typer.Option("--file", metavar="PATH", help="For a core: the library that ran, or the program linked with it."),
]
Found = Annotated[Path | None, typer.Option("--library", help="libhakmem.so, instead of the one found.")]
WatchTime = Annotated[str, typer.Option("--for", metavar="TIME", help="How long to watch; Ctrl-C: until now.")]
Record = Annotated[
    str | None,
    typer.Option(
        metavar="NNNN-title[/part]",
        help="Write the decision record docs/decisions/NNNN-title.md and every run into bench/runs/NNNN-title.json, "
        "or add a part to the record.",
        show_default=False,
    ),
]
Prepare = Annotated[
    str | None,
    typer.Option(metavar="COMMAND", help="A shell command before each run; not measured.", show_default=False),
]
Cleanup = Annotated[
    str | None,
    typer.Option(metavar="COMMAND", help="A shell command after each run; not measured.", show_default=False),
]
Input = Annotated[
    str | None,
    typer.Option("--input", metavar="FILE", help="The program's input, which is empty by default.", show_default=False),
]
Param = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE,VALUE",
        help="One case for each value, which replaces {NAME} in the command; repeatable.",
        show_default=False,
    ),
]
Client = Annotated[
    str | None,
    typer.Option(
        metavar="COMMAND",
        help="The program is a server, and this shell command its client: time, exit status and numbers are the "
        "client's, memory and CPU time those of the server with its children.",
        show_default=False,
    ),
]
Ready = Annotated[
    str | None,
    typer.Option(
        metavar="port:N|output:REGEX|file:PATH|TIMEs",
        help="How to tell that the server is ready for the client.",
        show_default=False,
    ),
]
Latency = Annotated[
    str | None,
    typer.Option(
        metavar="REGEX",
        help="Latencies that the client prints, with one group for the number; their quantiles are compared, and are "
        "metrics (p50, p99, p99.9).",
        show_default=False,
    ),
]
Cases = Annotated[
    Path | None,
    typer.Option(metavar="FILE.toml", help="Several programs in one experiment, with one verdict.", show_default=False),
]
Save = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Save the results as a baseline: a word, or a path that ends with .json. A is then by default "
        "alloc:system, with which later measurements are compared too.",
        show_default=False,
    ),
]
Against = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Measure the baseline's cases again, and judge how B has changed since.",
        show_default=False,
    ),
]
OtherMachine = Annotated[
    bool, typer.Option("--other-machine", help="With --against: accept a baseline from another machine.")
]
Markdown = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the verdict as Markdown.", show_default=False)
]
Csv = Annotated[
    Path | None, typer.Option("--csv", metavar="FILE", help="Write CSV, a line per case.", show_default=False)
]
Junit = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write a JUnit report, a test per case.", show_default=False)
]
Github = Annotated[
    bool, typer.Option("--github", help="Print annotations for GitHub Actions, and add to the job's summary.")
]
GithubComment = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the verdict for a comment on a pull request.", show_default=False),
]


class Forms:
    """The exports of a verdict, and the cases that it will cover, as far as they are known yet."""

    def __init__(self, files: dict[str, Path | None], github: bool, json: bool) -> None:
        self.files = {form: path for form, path in files.items() if path is not None}
        self.github = github
        self.json = json
        self.cases: list[str] = []

    def write(self, report: Report) -> dict[str, str]:
        """Writes each format that has a file; returns the written files by format."""
        from hakmem_lab.decide import exports

        written: dict[str, str] = {}
        for form, place in self.files.items():
            kept(lambda form=form, place=place: written.update(exports.write(report, {form: place})))  # type: ignore[misc]
        return written

    def annotate(self, report: Report) -> None:
        """Prints GitHub's annotations, if requested."""
        from hakmem_lab.decide import exports

        if self.github:
            print_plain(exports.annotate(report), aside=self.json)

    @contextmanager
    def errors_too(self, title: str) -> Iterator[None]:
        """Writes an error that ends the command before its verdict into each export as well."""
        try:
            yield
        except LabError as error:
            from hakmem_lab.decide import exports

            report = exports.of_error(error, title, self.cases)
            files = self.write(report)
            if self.json:
                said = {"message": error.message, "advice": error.advice, "status": error.status}
                print_json({"error": said, "files": files})
            self.annotate(report)
            raise


def plan(
    command: Sequence[str] | None,
    runs: int,
    warmup: int,
    seed: int,
    timeout: float | None,
    retries: int,
    anyway: bool,
    **more: Any,
) -> Plan:
    """The plan of an experiment; options that were not given stay None."""
    from hakmem_lab.measure.results import Plan

    common = {"runs": runs, "warmup": warmup, "seed": seed, "timeout_s": timeout}
    asked = {"retries": retries or None, "anyway": anyway or None, "typed": typed()}
    return Plan(command=list(command or []), **{**common, **asked, **more})


def absolute(path: Path) -> Path:
    """A path from the root; a LabError if it is of a folder that is gone."""
    try:
        return path.absolute()
    except FileNotFoundError:
        raise LabError(f"{path}: the working folder has been removed", "Change into another one.") from None


def expect_writable(path: Path) -> None:
    """For a file that is written when all else is done: a LabError now, if it could not be."""
    folder = absolute(path).parent
    if not folder.is_dir():
        raise LabError(f"{path}: there is no folder {folder}", "Make it, or give another file.")
    if path.is_dir():
        raise LabError(f"{path} is a folder", "Give a file.")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise LabError(f"{path} may not be written", "Give another file.")


def typed() -> str:
    """The command line, quoted for a shell. Results are UTF-8, so it must be, too."""
    found = shlex.join(["hakmem", *sys.argv[1:]])
    if any("\udc80" <= each <= "\udcff" for each in found):
        raise LabError(f"{found}: results cannot hold names that are not UTF-8", "Give a script that has it.")
    return found


def print_json(document: dict[str, Any]) -> None:
    """Prints one document; numbers that JSON lacks (infinite bounds) are null."""
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")


def seconds(text: str, option: str) -> float:
    """'90s', '15m', '2h' in seconds; a bare number is seconds."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|)\s*", text)
    value = float(found[1]) * {"ms": 0.001, "s": 1, "": 1, "m": 60, "h": 3600}[found[2]] if found else 0.0
    if not 0 < value <= LONGEST_S:
        raise UsageError(f"{option} {text}: not a time above 0", "Examples: 90s, 15m, 2h.")
    return value


def told(
    said: Sequence[str],
    document: Callable[[], dict[str, Any]],
    as_json: bool,
    page: Path | None = None,
    draw: Callable[[Path], object] | None = None,
) -> bool:
    """Draws the page, if one is wanted, and prints the document or the sentences, which tables may follow."""
    from hakmem_lab.terminal import console

    if page is not None and draw is not None:
        draw(page)
        console.remark(f"hakmem: wrote {page}")
    if as_json:
        console.out.file.write(json.dumps(document()) + "\n")
    for line in [] if as_json else said:
        console.out.print(line, soft_wrap=True, markup=False)
    return not as_json


def print_plain(text: str, aside: bool) -> None:
    """Prints text unchanged; aside: on standard error, since standard output has JSON."""
    file = sys.stderr if aside else sys.stdout
    file.write(text)
    file.flush()


def list_files(files: dict[str, str]) -> None:
    """Lists the written files, one per line."""
    from hakmem_lab.terminal import console

    width = max((len(name) for name in files), default=0) + 2
    for name, path in files.items():
        console.out.print(f"{name + ':':{width}}{path}", markup=False, soft_wrap=True)


def draw_page(target: Path, draw: Callable[[Path], object]) -> dict[str, str]:
    """Draws the page of saved results; a failure is reported and affects nothing else."""
    from hakmem_lab.terminal import console, extras

    if not extras.has("plotly"):
        console.remark("hakmem: no page: plotly is not installed; pip install 'hakmem-lab[pages]' installs it")
        return {}
    return {"page": str(target)} if kept(lambda: draw(target)) else {}


def tell(files: dict[str, str], json: bool, document: Callable[[], dict[str, Any]]) -> None:
    """The end of a command: the list of written files, or the whole document as JSON."""
    if json:
        print_json({**document(), "files": files})
    else:
        list_files(files)


def kept(write: Callable[[], object]) -> bool:
    """Writes something that accompanies a printed verdict; a failure is reported and affects nothing else."""
    from hakmem_lab.terminal import console

    try:
        write()
    except LabError as error:
        console.complain(error.message, error.advice)
    except OSError as error:
        console.complain(f"cannot write: {error}", "The results are saved; 'hakmem report' makes the page from them.")
    else:
        return True
    return False
