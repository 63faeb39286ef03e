"""Options and arguments that several commands share, and what they do with them."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hakmem_lab.terminal.errors import LabError

if TYPE_CHECKING:
    from hakmem_lab.decide.exports import Report

# Everything from the first word that is no option belongs to the program, whether or not -- stands before it.
PASS_ON = {"allow_interspersed_args": False}

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
        metavar="REGEX|time|cpu|rss|mix",
        help="What is compared: wall time, CPU time, peak memory, the geometric mean of time and memory, or a number "
        "that the program prints, given by a regular expression with one group (higher is better).",
    ),
]
LowerIsBetter = Annotated[
    bool, typer.Option("--lower-is-better", help="With a REGEX as metric: smaller numbers are better.")
]
Runs = Annotated[int, typer.Option(min=2, max=100_000, help="Rounds; each configuration runs once in each.")]
Warmup = Annotated[int, typer.Option(min=0, max=1000, help="Rounds before these that are not counted.")]
Threshold = Annotated[
    float, typer.Option(metavar="PERCENT", min=0.0, max=1000.0, help="The least gain that is worth having, in %.")
]
Retries = Annotated[
    int,
    typer.Option(
        min=0,
        max=100,
        help="Make a run in which the program fails again, at most so many times; each is said and counted.",
    ),
]
Anyway = Annotated[
    bool,
    typer.Option("--anyway", help="Measure the program even if the allocator under test does not serve it."),
]
Seed = Annotated[
    int | None,
    typer.Option(min=0, max=2**31 - 1, help="Of the random order; recorded in any case.", show_default=False),
]
Timeout = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", min=0.001, help="End a run that takes longer; an error.", show_default=False),
]
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER|FILE.jsonl", help="Where results are kept (hakmem-results in this folder).", show_default=False
    ),
]
Resume = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.jsonl",
        help="Go on with an interrupted experiment, as it was planned; other options of the plan are not used.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]
PageFile = Annotated[
    Path | None,
    typer.Option(
        "--page", metavar="FILE.html", help="Where the page goes (beside the results, same name).", show_default=False
    ),
]
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
    typer.Option("--input", metavar="FILE", help="The program's input; without it, there is none.", show_default=False),
]
Param = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE,VALUE",
        help="One case for each value, which takes the place of {NAME} in the command; repeatable.",
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
        help="How one sees that the server is ready for the client.",
        show_default=False,
    ),
]
Latency = Annotated[
    str | None,
    typer.Option(
        metavar="REGEX",
        help="Latencies that the client prints, one group for the number: their quantiles are compared, and are "
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
        help="Keep the results as a baseline: a word, or a path that ends with .json. A is then by default "
        "alloc:system, beside which later measurements are taken as well.",
        show_default=False,
    ),
]
Against = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Measure what the baseline has measured, and judge how B has changed since.",
        show_default=False,
    ),
]
OtherMachine = Annotated[
    bool, typer.Option("--other-machine", help="With --against: compare though the baseline is of another machine.")
]
Markdown = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the verdict as Markdown.", show_default=False)
]
Csv = Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write a line per case.", show_default=False)]
Junit = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write a JUnit report, a test per case.", show_default=False)
]
Github = Annotated[
    bool, typer.Option("--github", help="Print annotations for GitHub's actions, and add to the job's summary.")
]


class Forms:
    """Where a verdict goes besides the terminal, and which cases it will be on, as far as that is known yet."""

    def __init__(self, files: dict[str, Path | None], github: bool, json: bool) -> None:
        self.files = {form: path for form, path in files.items() if path is not None}
        self.github = github
        self.json = json
        self.cases: list[str] = []

    def write(self, report: Report) -> dict[str, str]:
        """Writes each form that has a file; returns the files by the forms' names, without those that could not be."""
        from hakmem_lab.decide import exports

        written: dict[str, str] = {}
        for form, place in self.files.items():
            kept(lambda form=form, place=place: written.update(exports.write(report, {form: place})))  # type: ignore[misc]
        return written

    def annotate(self, report: Report) -> None:
        """GitHub's annotations, if they are wanted."""
        from hakmem_lab.decide import exports

        if self.github:
            print_plain(exports.annotate(report), aside=self.json)

    @contextmanager
    def errors_too(self, title: str) -> Iterator[None]:
        """An error that ends the command before its verdict is written into each form as well."""
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


def typed() -> str:
    """The command line as one could type it again."""
    return shlex.join(["hakmem", *sys.argv[1:]])


def print_json(document: dict[str, Any]) -> None:
    """One document on standard output; numbers that JSON has not (infinite bounds) are null."""
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")


def print_plain(text: str, aside: bool) -> None:
    """Text as it is on standard output; aside: on standard error, since a machine reads the other."""
    file = sys.stderr if aside else sys.stdout
    file.write(text)
    file.flush()


def list_files(files: dict[str, str]) -> None:
    """What was written, one to a line."""
    from hakmem_lab.terminal import console

    width = max((len(name) for name in files), default=0) + 2
    for name, path in files.items():
        console.out.print(f"{name + ':':{width}}{path}", markup=False, soft_wrap=True)


def draw_page(target: Path, draw: Callable[[Path], object]) -> dict[str, str]:
    """Draws a page of results that are kept: where that cannot be, says why, and nothing else is lost."""
    from hakmem_lab.terminal import console, extras

    if not extras.has("plotly"):
        console.remark("hakmem: no page: plotly is not installed; pip install 'hakmem[pages]' brings it")
        return {}
    return {"page": str(target)} if kept(lambda: draw(target)) else {}


def tell(files: dict[str, str], json: bool, document: Callable[[], dict[str, Any]]) -> None:
    """The end of a command: what was written, or the whole document for a machine."""
    if json:
        print_json({**document(), "files": files})
    else:
        list_files(files)


def kept(write: Callable[[], object]) -> bool:
    """Writes what goes with a verdict that has been said; says what cannot be written, which costs nothing else."""
    from hakmem_lab.terminal import console

    try:
        write()
    except LabError as error:
        console.complain(error.message, error.advice)
    except OSError as error:
        console.complain(f"cannot write: {error}", "The results are kept; 'hakmem report' makes the page from them.")
    else:
        return True
    return False
