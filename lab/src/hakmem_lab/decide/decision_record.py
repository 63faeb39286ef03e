"""Writes a decision record: question, answer, figures, command. Every run goes into bench/runs, as one JSON document.

A record of several experiments has a part for each: `NNNN-title/part` writes part.md and part.json into the folder
bench/runs/NNNN-title, and a link into NNNN-title.md, which replaces one to an earlier run of the part. The page of two
megabytes is not kept: `hakmem report` draws it from the JSON document."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import NamedTuple

from hakmem_lab.decide import noise, result_tables
from hakmem_lab.decide.sweep import Sweep
from hakmem_lab.decide.verdict import Comparison, judged, summarize, values_of
from hakmem_lab.measure.results import Experiment, document
from hakmem_lab.target import libhakmem
from hakmem_lab.terminal import amounts
from hakmem_lab.terminal.amounts import counted
from hakmem_lab.terminal.errors import LabError, UsageError

FOLDER = Path("docs") / "decisions"
RUNS = Path("bench") / "runs"

Finding = Comparison | Sweep


def tree() -> Path:
    """The source tree with the records; a LabError outside of one."""
    found = libhakmem.source_tree() or Path.cwd()
    if not (found / FOLDER).is_dir():
        raise LabError(
            f"--record: there is no folder {found / FOLDER}", "Records belong to a source tree; run it from there."
        )
    return found


class Name(NamedTuple):
    """The name of a record: its title with the number, and the part, if it has parts."""

    title: str
    part: str

    @classmethod
    def parse(cls, text: str) -> Name:
        """Parses NNNN-title or NNNN-title/part; a LabError for anything else."""
        if not re.fullmatch(r"\d{4}-[a-z0-9]+(-[a-z0-9]+)*(/[a-z0-9]+(-[a-z0-9]+)*)?", text):
            raise UsageError(
                f"--record {text}: not of the form NNNN-title-in-words, or NNNN-title-in-words/part",
                "Example: --record 0007-refill-count-of-64",
            )
        title, _, part = text.partition("/")
        return cls(title, part)

    @property
    def record(self) -> Path:
        """The record's path from the root of the tree."""
        return FOLDER / f"{self.title}.md"

    @property
    def text(self) -> Path:
        """The file that describes the experiment: the record, or for a part a file beside its runs."""
        return self.runs.with_suffix(".md") if self.part else self.record

    @property
    def runs(self) -> Path:
        return RUNS / (f"{self.title}/{self.part}.json" if self.part else f"{self.title}.json")

    @property
    def heading(self) -> str:
        """The title in words; a letter with digits is a name: c5-and-c6 is "C5 and C6"."""
        words = re.sub(r"\b[a-z]\d+\b", lambda found: found[0].upper(), (self.part or self.title[5:]).replace("-", " "))
        return words[0].upper() + words[1:]

    @property
    def first_line(self) -> str:
        return f"# {self.title[:4]}: {self.heading}"


def check_free(text: str) -> None:
    """Raises a LabError unless a record of this name can be written; called before anything is measured."""
    name = Name.parse(text)
    record, records = tree() / name.record, sorted((tree() / FOLDER).glob(f"{name.title[:4]}-*.md"))
    taken = [path for path in records if path != record or not name.part]
    if taken:
        raise LabError(
            f"--record {text}: the number is taken by {taken[0].name}", f"The next free one is {next_number()}."
        )
    if (tree() / name.runs).exists():
        raise LabError(f"--record {text}: this part exists already", "Give the part another name.")


def next_number() -> str:
    """The number after the highest one in use."""
    used = [int(path.name[:4]) for path in (tree() / FOLDER).glob("[0-9][0-9][0-9][0-9]-*.md")]
    return f"{max(used, default=0) + 1:04}"


def _named(experiment: Experiment, label: str) -> str:
    text = experiment.head.find(label).text
    return f"`{text}`" if text else "HAKMEM as it is"


def _figures(experiment: Experiment, outcome: Finding) -> list[str]:
    if isinstance(outcome, Comparison):
        experiment = judged(experiment, outcome)
    elif outcome.metric != experiment.head.metric.name:
        experiment = noise.processor_time(experiment) or experiment
    lines = ["| configuration | mean | median | least | most | CV % |", "|---|---:|---:|---:|---:|---:|"]
    labels = [each.label for each in experiment.head.series if each.label not in experiment.failed()]
    for label in labels:
        row = summarize(label, values_of(experiment, label))
        figures = " | ".join(amounts.number(each) for each in (row.mean, row.median, row.least, row.most))
        lines.append(f"| {label} | {figures} | {row.cv:.2f} |")
    metric = experiment.head.metric
    direction = "higher" if metric.higher_is_better else "lower"
    if isinstance(outcome, Sweep):
        return [*lines, "", f"{metric.title} ({direction} is better).", "", *_gains(outcome)]
    lines += [
        "",
        f"{metric.title} ({direction} is better), {counted(outcome.rounds, 'round')}. "
        f"Gain of B over A: **{result_tables.gain(outcome.gain)}**, "
        f"interval {result_tables.between(outcome.low, outcome.high)} ({outcome.confidence:.2%} of paired ratios).",
    ]
    for each in [*result_tables.sentences(outcome), *filter(None, [experiment.retried()])]:
        lines += ["", each]
    return lines


def _gains(outcome: Sweep) -> list[str]:
    """A table of each value of a sweep against the base."""
    lines = [f"| against {outcome.base} | gain | interval | verdict |", "|---|---:|---:|---|"]
    for each in outcome.points:
        if each.comparison is not None and each.gain is not None:
            against, word = each.gain, each.comparison.verdict
            interval = result_tables.between(against.low, against.high)
            lines.append(f"| {each.label} | {result_tables.gain(against.gain)} | {interval} | {word} |")
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


def _stamp(experiment: Experiment, outcome: Finding) -> str:
    """The record's first line of facts, including that the machine was busy."""
    head, reasons = experiment.head, noise.look(experiment).reasons
    load = f" Measured under load: {', '.join(reasons)}." if reasons else ""
    return f"*{head.created:%Y-%m-%d}, commit {head.commit or 'unknown'}, {_word(outcome)}.{load}*"


def text(name: Name, experiment: Experiment, outcome: Finding) -> str:
    """The experiment in Markdown, in the form of TEMPLATE.md."""
    plan, machine = experiment.head.plan, experiment.head.machine
    link = Path(os.path.relpath(name.runs, name.text.parent)).as_posix()
    question = " ".join(_question(experiment, outcome))
    lines = [
        name.first_line,
        "",
        _stamp(experiment, outcome),
        "",
        f"**Question.** {question}",
        "",
        *_options(experiment, outcome),
        "",
        f"**Answer.** {_verdict(outcome)}",
        "",
        *_figures(experiment, outcome),
        "",
        "```",
        plan.typed,
        f"hakmem report {name.runs}",
        "```",
        "",
        f"{'; '.join(f'{key}: {value}' for key, value in machine.facts.items())}. Seed {plan.seed}. "
        f"Every run is in [{name.runs.name}]({link}).",
        "",
    ]
    return "\n".join(lines)


def _with_part(before: str, name: Name, outcome: Finding) -> str:
    """The record with the part's line, a link and its outcome, which replaces the line of an earlier run."""
    link = Path(os.path.relpath(name.text, FOLDER)).as_posix()
    line = f"- [{name.heading}]({link}): {_word(outcome)}.\n"
    former = re.compile(rf"^- \[[^\]\n]*\]\({re.escape(link)}\).*\n?", re.MULTILINE)
    if former.search(before):
        return former.sub(lambda _: line, before, count=1)
    end = "\n" if before.splitlines()[-1].startswith("- [") else "\n\n"
    return f"{before.rstrip()}{end}{line}"


def _to_repeat(experiment: Experiment) -> Experiment:
    """The experiment without the folder of its results, which is particular to one machine."""
    plan = experiment.head.plan
    words = iter(shlex.split(plan.typed))
    kept = []
    for word in words:
        if word == "--":
            kept += [word, *words]
        elif word == "--out":
            next(words, None)
        elif not word.startswith("--out="):
            kept.append(word)
    changed = plan.model_copy(update={"typed": shlex.join(kept)})
    return experiment.model_copy(update={"head": experiment.head.model_copy(update={"plan": changed})})


def write(text_name: str, experiment: Experiment, outcome: Finding) -> Path:
    """Writes the record and the runs, or a part of it and its line in the record; returns the record's path."""
    check_free(text_name)
    name, root, experiment = Name.parse(text_name), tree(), _to_repeat(experiment)
    record = root / name.record
    try:
        (root / name.runs).parent.mkdir(parents=True, exist_ok=True)
        (root / name.runs).write_text(document(experiment), encoding="utf-8")
        (root / name.text).write_text(text(name, experiment, outcome), encoding="utf-8")
        if name.part:
            before = record.read_text(encoding="utf-8") if record.exists() else Name(name.title, "").first_line
            record.write_text(_with_part(before, name, outcome), encoding="utf-8")
    except OSError as error:
        raise LabError(f"cannot write {record}: {error.strerror}", "The results themselves are saved.") from error
    return record
