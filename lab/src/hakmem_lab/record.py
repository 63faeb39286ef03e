"""Writes a decision record: question, command, figures, verdict; the raw results go beside it, as one JSON document.

A record of several experiments has a part for each: `NNNN-title/part` adds one to NNNN-title.md, and keeps its runs in
the folder NNNN-title. The page is not kept: it is drawn from the results whenever somebody wants to see it, and would
weigh two megabytes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

from hakmem_lab import libhakmem, show
from hakmem_lab.errors import LabError
from hakmem_lab.results import Experiment, document
from hakmem_lab.sweep import Sweep
from hakmem_lab.verdict import Comparison, summarize, values_of

FOLDER = Path("docs") / "decisions"

Finding = Comparison | Sweep


def folder() -> Path:
    """Where records are kept; a LabError outside of a source tree."""
    found = (libhakmem.source_tree() or Path.cwd()) / FOLDER
    if not found.is_dir():
        raise LabError(f"--record: there is no folder {found}", "Records belong to a source tree; run it from there.")
    return found


class Name(NamedTuple):
    """Where a record goes: its title with the number, and the part of it, if it has parts."""

    title: str
    part: str

    @classmethod
    def parse(cls, text: str) -> Name:
        """A LabError unless the text has the form NNNN-title or NNNN-title/part."""
        if not re.fullmatch(r"\d{4}-[a-z0-9]+(-[a-z0-9]+)*(/[a-z0-9]+(-[a-z0-9]+)*)?", text):
            raise LabError(
                f"--record {text}: not of the form NNNN-title-in-words, or NNNN-title-in-words/part",
                "Example: --record 0007-refill-count-of-64",
            )
        title, _, part = text.partition("/")
        return cls(title, part)

    @property
    def text(self) -> Path:
        return folder() / f"{self.title}.md"

    @property
    def runs(self) -> Path:
        return folder() / (f"{self.title}/{self.part}.json" if self.part else f"{self.title}.json")

    @property
    def heading(self) -> str:
        return (self.part or self.title[5:]).replace("-", " ").capitalize()


def check_free(text: str) -> None:
    """A LabError unless a record of this name can be written; called before anything is measured."""
    name = Name.parse(text)
    taken = [path for path in sorted(folder().glob(f"{name.title[:4]}-*.md")) if path != name.text or not name.part]
    if taken:
        raise LabError(
            f"--record {text}: the number is taken by {taken[0].name}", f"The next free one is {next_number()}."
        )
    if name.runs.exists():
        raise LabError(f"--record {text}: this part is written already", "Give the part another name.")


def next_number() -> str:
    """The number after the last one."""
    used = [int(path.name[:4]) for path in folder().glob("[0-9][0-9][0-9][0-9]-*.md")]
    return f"{max(used, default=0) + 1:04}"


def _named(experiment: Experiment, label: str) -> str:
    text = experiment.head.find(label).text
    return f"`{text}`" if text else "HAKMEM as it is"


def _figures(experiment: Experiment, outcome: Finding) -> list[str]:
    lines = ["| configuration | mean | median | least | most | CV % |", "|---|---:|---:|---:|---:|---:|"]
    labels = [each.label for each in experiment.head.series if each.label not in experiment.failed()]
    for label in labels:
        row = summarize(label, values_of(experiment, label))
        figures = " | ".join(show.number(each) for each in (row.mean, row.median, row.least, row.most))
        lines.append(f"| {label} | {figures} | {row.cv:.2f} |")
    metric = experiment.head.metric
    direction = "higher" if metric.higher_is_better else "lower"
    if isinstance(outcome, Sweep):
        return [*lines, "", f"{metric.title} ({direction} is better).", "", *_gains(outcome)]
    lines += [
        "",
        f"{metric.title} ({direction} is better), {outcome.rounds} rounds. "
        f"Gain of B over A: **{show.gain(outcome.gain)}**, interval {show.between(outcome.low, outcome.high)} "
        f"({outcome.confidence:.2%} of paired ratios).",
    ]
    for each in show.sentences(outcome):
        lines += ["", each]
    return lines


def _gains(outcome: Sweep) -> list[str]:
    """Each value of a sweep against the base."""
    lines = [f"| against {outcome.base} | gain | interval | verdict |", "|---|---:|---:|---|"]
    for each in outcome.points:
        if each.comparison is not None:
            against = each.comparison
            interval = show.between(against.low, against.high)
            lines.append(f"| {each.label} | {show.gain(against.gain)} | {interval} | {against.verdict} |")
    return lines


def _question(experiment: Experiment, outcome: Finding) -> list[str]:
    plan = experiment.head.plan
    command = shlex.join(plan.command)
    if isinstance(outcome, Sweep):
        names = " and ".join(f"`{name}`" for name in outcome.points[0].point)
        return [f"Which value of {names} is best for `{command}`, if the difference is {plan.threshold:g} % or more?"]
    predicted = "nothing"
    if outcome.prediction is not None:
        predicted = "a gain of {:+g} to {:+g} %".format(*outcome.prediction)
    return [
        f"Is {_named(experiment, 'B')} better than {_named(experiment, 'A')} for `{command}`, by "
        f"{plan.threshold:g} % or more? Expected before the measurement: {predicted}."
    ]


def _options(experiment: Experiment, outcome: Finding) -> list[str]:
    if isinstance(outcome, Sweep):
        return [f"- {each.label}{' (base)' if each.label == outcome.base else ''}" for each in outcome.points]
    return [f"- **{each}**: {_named(experiment, each)}; {experiment.head.find(each).description}." for each in "AB"]


def _verdict(outcome: Finding) -> str:
    if isinstance(outcome, Sweep):
        return f"Best: **{outcome.best}**. {outcome.sentence}"
    return f"**{outcome.verdict}**: {outcome.reason}."


def _word(outcome: Finding) -> str:
    return f"best: {outcome.best}" if isinstance(outcome, Sweep) else f"verdict: {outcome.verdict}"


def _sections(name: Name, experiment: Experiment, outcome: Finding) -> list[str]:
    """The record's sections in the form of TEMPLATE.md; those of a part stand one level deeper."""
    plan, machine = experiment.head.plan, experiment.head.machine
    level = "###" if name.part else "##"
    runs = name.runs.relative_to(folder())
    return [
        f"{level} Context",
        "",
        *_question(experiment, outcome),
        "",
        f"{level} Options",
        "",
        *_options(experiment, outcome),
        "",
        f"{level} Measurement",
        "",
        "```",
        plan.typed,
        "```",
        "",
        f"{'; '.join(f'{key}: {value}' for key, value in machine.facts.items())}. Seed {plan.seed}.",
        "",
        f"{level} Figures",
        "",
        *_figures(experiment, outcome),
        "",
        f"Every run is in [{runs.name}]({runs}). The page with charts is drawn from it:",
        "",
        "```",
        f"hakmem report {FOLDER}/{runs}",
        "```",
        "",
        f"{level} Verdict",
        "",
        _verdict(outcome),
        "",
    ]


def text(name: Name, experiment: Experiment, outcome: Finding) -> str:
    """The record in Markdown, or a part of it."""
    head = experiment.head
    stamp = f"*{head.created:%Y-%m-%d}, commit {head.commit or 'unknown'}, {_word(outcome)}.*"
    title = f"## {name.heading}" if name.part else f"# {name.title[:4]}: {name.heading}"
    return "\n".join([title, "", stamp, "", *_sections(name, experiment, outcome)])


def write(text_name: str, experiment: Experiment, outcome: Finding) -> Path:
    """Writes record and results, or adds the part; returns the record's path."""
    check_free(text_name)
    name = Name.parse(text_name)
    addition = text(name, experiment, outcome)
    if name.part and name.text.exists():
        addition = name.text.read_text(encoding="utf-8").rstrip("\n") + "\n\n" + addition
    elif name.part:
        addition = f"# {name.title[:4]}: {Name(name.title, '').heading}\n\n{addition}"
    try:
        name.runs.parent.mkdir(exist_ok=True)
        name.runs.write_text(document(experiment), encoding="utf-8")
        name.text.write_text(addition, encoding="utf-8")
    except OSError as error:
        raise LabError(f"cannot write {name.text}: {error.strerror}", "The results are kept all the same.") from error
    return name.text
