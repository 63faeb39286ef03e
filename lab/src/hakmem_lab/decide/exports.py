"""Verdicts in other formats: Markdown, CSV, JUnit, and annotations of GitHub Actions.

An experiment that ended without a verdict is in each of them too, as an error: without a file, a job would not know
why."""

from __future__ import annotations

import csv
import io
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from hakmem_lab.terminal import errors
from hakmem_lab.terminal.amounts import counted
from hakmem_lab.terminal.errors import LabError

STATUS = {
    "GO": errors.GO,
    "BETTER": errors.GO,
    "LEVEL": errors.GO,
    "NO-GO": errors.NO_GO,
    "WORSE": errors.NO_GO,
    "INCONCLUSIVE": errors.INCONCLUSIVE,
    "REFUSED": errors.ERROR,
    "ERROR": errors.ERROR,
}
COMMENT_MOST = 60_000  # characters, of GitHub's 65,536
FAILED = ("NO-GO", "WORSE")
OPEN = ("INCONCLUSIVE",)
BROKEN = ("REFUSED", "ERROR")  # there is no verdict
COLUMNS = ("case", "metric", "gain_percent", "low_percent", "high_percent", "confidence", "rounds", "verdict", "reason")


@dataclass(frozen=True)
class Row:
    """One case's verdict."""

    case: str
    metric: str
    gain: float
    low: float
    high: float
    confidence: float
    rounds: int
    verdict: str
    reason: str
    said: str = ""  # of an error: what to do, and the end of the program's output

    @property
    def figures(self) -> str:
        """Gain and interval; empty if there are none."""
        return "" if math.isnan(self.gain) else f"gain {_gain(self.gain)} ({_gain(self.low)} .. {_gain(self.high)})"

    @classmethod
    def without(cls, case: str, verdict: str, reason: str, metric: str = "", said: str = "") -> Row:
        """A row without a gain."""
        return cls(case, metric, math.nan, math.nan, math.nan, 0.0, 0, verdict, reason, said)


@dataclass(frozen=True)
class Report:
    """A verdict and its cases; with a single case both say the same."""

    title: str  # what is compared
    verdict: str
    reason: str
    rows: Sequence[Row]
    remarks: Sequence[str] = ()


def of_error(error: LabError, title: str, cases: Sequence[str]) -> Report:
    """The report of an experiment that ended before a verdict: an error of one case, or of all."""
    rows = []
    for case in cases or [title]:
        if error.case in ("", case):
            rows.append(Row.without(case, "ERROR", error.message, said=error.advice))
        else:
            rows.append(Row.without(case, "INCONCLUSIVE", f"ended before a verdict, with {error.case}"))
    return Report(title, "ERROR", error.message, rows)


def _gain(value: float) -> str:
    return f"{value:+.2f} %" if math.isfinite(value) else ("∞" if value > 0 else "-∞")


def _cell(text: str) -> str:
    """Text as a cell of a Markdown table, without borders, line ends and tags."""
    return re.sub(r"([|\\`*_\[\]])", r"\\\1", " ".join(text.split())).replace("<", "&lt;")


def markdown(report: Report) -> str:
    """A heading, the verdict, and a table."""
    lines = [
        f"### {report.verdict}: {_cell(report.title)}",
        "",
        f"{_cell(report.reason)}.",
        "",
        "| case | metric | gain | interval | rounds | verdict |",
        "|---|---|--:|--:|--:|---|",
    ]
    lines += [
        f"| {_cell(each.case)} | {_cell(each.metric)} "
        + (f"| {_gain(each.gain)} | {_gain(each.low)} .. {_gain(each.high)} " if each.figures else "| | ")
        + f"| {each.rounds or ''} | {each.verdict} |"
        for each in report.rows
    ]
    for each in report.rows:
        lines += ["", *(f"    {line}" for line in each.said.splitlines())] if each.said else []
    lines += ["", *(f"- {_cell(each)}" for each in report.remarks)]
    return "\n".join(lines).rstrip() + "\n"


def as_csv(report: Report) -> str:
    """A header, then a line per case; an infinite bound is an empty field."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for each in report.rows:
        bounds = [f"{value:.6g}" if math.isfinite(value) else "" for value in (each.gain, each.low, each.high)]
        figures = [*bounds, *((f"{each.confidence:.6g}", each.rounds) if each.figures else ("", ""))]
        writer.writerow([each.case, each.metric, *figures, each.verdict, each.reason])
    return file.getvalue()


def _xml(text: str) -> str:
    """Text without the characters that XML forbids."""
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "�", text)


def junit(report: Report) -> str:
    """A test per case: a verdict against the change is a failure, an undecided one is skipped."""
    failures = sum(each.verdict in FAILED for each in report.rows)
    skipped = sum(each.verdict in OPEN for each in report.rows)
    broken = sum(each.verdict in BROKEN for each in report.rows)
    numbers = {"tests": len(report.rows), "failures": failures, "skipped": skipped, "errors": broken}
    counts = {name: str(number) for name, number in numbers.items()}
    suites = ElementTree.Element("testsuites", {"name": "hakmem", **counts})
    suite = ElementTree.SubElement(suites, "testsuite", {"name": _xml(report.title), **counts, "time": "0"})
    for each in report.rows:
        test = ElementTree.SubElement(
            suite, "testcase", {"classname": _xml(each.metric), "name": _xml(each.case), "time": "0"}
        )
        said = _xml(f"{each.verdict}: {'; '.join(filter(None, (each.figures, each.reason)))}")
        if each.verdict in BROKEN:
            error = ElementTree.SubElement(test, "error", {"message": said, "type": each.verdict})
            error.text = _xml(each.said)
        elif each.verdict in FAILED:
            ElementTree.SubElement(test, "failure", {"message": said, "type": each.verdict})
        elif each.verdict in OPEN:
            ElementTree.SubElement(test, "skipped", {"message": said})
        else:
            ElementTree.SubElement(test, "system-out").text = said
    ElementTree.indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"


def _escaped(text: str, more: str = "") -> str:
    """Text for GitHub's workflow commands: characters that end a line or a property are in hexadecimal."""
    found = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    for letter in more:
        found = found.replace(letter, f"%{ord(letter):02X}")
    return found


def github(report: Report) -> str:
    """An annotation per case, except for the base of a comparison."""
    lines = []
    for each in report.rows:
        if each.verdict == "BASE":
            continue
        level = "error" if each.verdict in FAILED + BROKEN else "warning" if each.verdict in OPEN else "notice"
        said = f"{each.figures}, {counted(each.rounds, 'round')}: {each.reason}" if each.figures else each.reason
        lines.append(f"::{level} title={_escaped(f'{each.verdict}: {each.case}', ':,')}::{_escaped(said)}")
    return "\n".join(lines) + "\n"


def comment(report: Report) -> str:
    """The table for a comment on a pull request, with a link to the job; cut to the length that GitHub takes."""
    text = markdown(report)
    if len(text) > COMMENT_MOST:
        text = text[:COMMENT_MOST].rpartition("\n")[0] + "\n\nThe rest is in the job's summary.\n"
    server, repository, run = (os.environ.get(f"GITHUB_{name}") for name in ("SERVER_URL", "REPOSITORY", "RUN_ID"))
    return f"{text}\n[The job]({server}/{repository}/actions/runs/{run})\n" if server and repository and run else text


def write(report: Report, targets: dict[str, Path]) -> dict[str, str]:
    """Writes the formats that have a file; returns the files by format."""
    makers = {"markdown": markdown, "csv": as_csv, "junit": junit, "github-comment": comment}
    for form, path in targets.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(makers[form](report), encoding="utf-8")
        except OSError as error:
            raise LabError(f"cannot write {path}: {error.strerror}", f"Choose another place for --{form}.") from error
    return {form: str(path) for form, path in targets.items()}


def annotate(report: Report) -> str:
    """GitHub's annotations; the table also goes to the job's summary, if GitHub names its file."""
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        try:
            with open(summary, "a", encoding="utf-8") as file:
                file.write(markdown(report) + "\n")
        except OSError as error:
            raise LabError(f"cannot write the job's summary {summary}: {error.strerror}", "Is it a file?") from error
    return github(report)
