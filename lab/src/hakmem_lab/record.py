"""Writes a decision record: question, command, figures, verdict; the raw results go beside it, as one JSON document.

The page is not kept: it is drawn from the results whenever somebody wants to see it, and would weigh two megabytes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from hakmem_lab import library, show
from hakmem_lab.errors import LabError
from hakmem_lab.results import Experiment, document
from hakmem_lab.verdict import Comparison, summarize, values_of

FOLDER = Path("docs") / "decisions"


def folder() -> Path:
    """Where records are kept; a LabError outside of a source tree."""
    found = (library.source_tree() or Path.cwd()) / FOLDER
    if not found.is_dir():
        raise LabError(f"--record: there is no folder {found}", "Records belong to a source tree; run it from there.")
    return found


def check_free(name: str) -> None:
    """A LabError unless a record of this name can be written; called before anything is measured."""
    if not re.fullmatch(r"\d{4}-[a-z0-9]+(-[a-z0-9]+)*", name):
        raise LabError(
            f"--record {name}: not of the form NNNN-title-in-words", "Example: --record 0007-refill-count-of-64"
        )
    number = name[:4]
    taken = sorted(folder().glob(f"{number}-*.md"))
    if taken:
        raise LabError(
            f"--record {name}: the number is taken by {taken[0].name}", f"The next free one is {next_number()}."
        )


def next_number() -> str:
    """The number after the last one."""
    used = [int(path.name[:4]) for path in folder().glob("[0-9][0-9][0-9][0-9]-*.md")]
    return f"{max(used, default=0) + 1:04}"


def _named(experiment: Experiment, label: str) -> str:
    text = experiment.head.find(label).text
    return f"`{text}`" if text else "HAKMEM as it is"


def _figures(experiment: Experiment, found: Comparison) -> list[str]:
    lines = ["| configuration | mean | median | least | most | CV % |", "|---|---:|---:|---:|---:|---:|"]
    for label in [each.label for each in experiment.head.series]:
        row = summarize(label, values_of(experiment, label))
        figures = " | ".join(show.number(each) for each in (row.mean, row.median, row.least, row.most))
        lines.append(f"| {label} | {figures} | {row.cv:.2f} |")
    metric = experiment.head.metric
    lines += [
        "",
        f"{metric.title} ({'higher' if metric.higher_is_better else 'lower'} is better), {found.rounds} rounds. "
        f"Gain of B over A: **{show.gain(found.gain)}**, interval {show.between(found.low, found.high)} "
        f"({found.confidence:.2%} of paired ratios).",
    ]
    for each in show.sentences(found):
        lines += ["", each]
    return lines


def text(name: str, experiment: Experiment, found: Comparison) -> str:
    """The record in Markdown, in the form of TEMPLATE.md."""
    head = experiment.head
    machine, commit = head.machine, head.commit or "unknown"
    title = name[5:].replace("-", " ").capitalize()
    options = [f"- **{each}**: {_named(experiment, each)}; {head.find(each).description}." for each in ("A", "B")]
    predicted = "nothing"
    if found.prediction is not None:
        predicted = "a gain of {:+g} to {:+g} %".format(*found.prediction)
    lines = [
        f"# {name[:4]}: {title}",
        "",
        f"*{head.created:%Y-%m-%d}, commit {commit}, verdict: {found.verdict}.*",
        "",
        "## Context",
        "",
        f"Is {_named(experiment, 'B')} better than {_named(experiment, 'A')} for `{shlex.join(head.plan.command)}`, by "
        f"{head.plan.threshold:g} % or more? Expected before the measurement: {predicted}.",
        "",
        "## Options",
        "",
        *options,
        "",
        "## Measurement",
        "",
        "```",
        head.plan.typed,
        "```",
        "",
        f"{'; '.join(f'{key}: {value}' for key, value in machine.facts.items())}. Seed {head.plan.seed}.",
        "",
        "## Figures",
        "",
        *_figures(experiment, found),
        "",
        f"Every run is in [{name}.json]({name}.json). The page with charts is drawn from it:",
        "",
        "```",
        f"hakmem report {FOLDER}/{name}.json",
        "```",
        "",
        "## Verdict",
        "",
        f"**{found.verdict}**: {found.reason}.",
        "",
    ]
    return "\n".join(lines)


def write(name: str, experiment: Experiment, found: Comparison) -> Path:
    """Writes record and results; returns the record's path."""
    check_free(name)
    record = folder() / f"{name}.md"
    try:
        record.with_suffix(".json").write_text(document(experiment), encoding="utf-8")
        record.write_text(text(name, experiment, found), encoding="utf-8")
    except OSError as error:
        raise LabError(f"cannot write {record}: {error.strerror}", "The results are kept all the same.") from error
    return record
