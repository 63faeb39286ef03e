"""Verdicts in other formats, and the escaping that each needs."""

from __future__ import annotations

import csv
import io
import math
import shlex
from pathlib import Path
from xml.etree import ElementTree

import pytest
import typer

from hakmem_lab.commands import ab
from hakmem_lab.decide import exports
from hakmem_lab.decide.exports import Report, Row
from hakmem_lab.terminal.errors import LabError


def row(case: str, verdict: str, high: float = 2.0) -> Row:
    return Row(case, 'ops="(.*)" | x', 1.0, -0.5, high, 0.95, 10, verdict, "why, 100 %\nof it")


REPORT = Report(
    "B <against> A",
    "NO-GO",
    "shown to be worse",
    [row("good", "GO"), row("bad|:,", "NO-GO"), row("open", "INCONCLUSIVE", math.inf), row("then", "WORSE")],
    ["The machine was busy"],
)


def test_markdown_keeps_to_its_table() -> None:
    lines = exports.markdown(REPORT).splitlines()
    assert lines[0] == "### NO-GO: B &lt;against> A"
    table = [line for line in lines if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in table} == {7}
    assert "| +1.00 % | -0.50 % .. +2.00 % | 10 | GO |" in table[2]
    assert lines[-1] == "- The machine was busy"


def test_csv_is_read_back() -> None:
    rows = list(csv.DictReader(io.StringIO(exports.as_csv(REPORT))))
    assert tuple(rows[0]) == exports.COLUMNS
    assert rows[0]["reason"] == "why, 100 %\nof it" and rows[1]["case"] == "bad|:,"
    assert float(rows[0]["low_percent"]) == -0.5 and rows[2]["high_percent"] == ""


def test_junit_counts_and_escapes() -> None:
    hostile = Report("\x00<t>", "GO", "", [*REPORT.rows, row('"&\x1b', "LEVEL")])
    suites = ElementTree.fromstring(exports.junit(hostile).encode())
    assert (suites.get("tests"), suites.get("failures"), suites.get("skipped")) == ("5", "2", "1")
    found = [[child.tag for child in test] for test in suites.iter("testcase")]
    assert found == [["system-out"], ["failure"], ["skipped"], ["failure"], ["system-out"]]


def test_annotations_are_one_line_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = tmp_path / "summary"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    lines = exports.annotate(REPORT).splitlines()
    assert [line.split()[0] for line in lines] == ["::notice", "::error", "::warning", "::error"]
    assert lines[1].startswith("::error title=NO-GO%3A bad|%3A%2C::gain +1.00 %25 (")
    assert lines[1].endswith("why, 100 %25%0Aof it")
    assert summary.read_text() == exports.markdown(REPORT) + "\n"


def test_a_comment_fits_and_leads_to_its_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("SERVER_URL", "REPOSITORY", "RUN_ID"):
        monkeypatch.delenv(f"GITHUB_{name}", raising=False)
    assert exports.comment(REPORT) == exports.markdown(REPORT)
    for name, value in (("SERVER_URL", "https://github.com"), ("REPOSITORY", "a/b"), ("RUN_ID", "7")):
        monkeypatch.setenv(f"GITHUB_{name}", value)
    many = Report(
        REPORT.title, REPORT.verdict, REPORT.reason, [row(f"case {place}", "GO") for place in range(5000)], []
    )
    text = exports.comment(many)
    assert len(exports.markdown(many)) > 65_536 > len(text) > 50_000
    assert text.endswith("summary.\n\n[The job](https://github.com/a/b/actions/runs/7)\n")
    assert text.rpartition("\n\nThe rest")[0].endswith("|")  # no row is cut
    written = exports.write(REPORT, {"github-comment": tmp_path / "comment.md"})
    assert Path(written["github-comment"]).read_text() == exports.comment(REPORT)


@pytest.mark.parametrize("name", ["github.yml", "gitlab-ci.yml"])
def test_the_files_for_ci_use_what_there_is(name: str) -> None:
    yaml = pytest.importorskip("yaml")
    found = yaml.safe_load((Path(__file__).parents[2] / "packaging" / "ci" / name).read_text())
    job = found["jobs"]["compare"] if name == "github.yml" else found["memory"]
    lines = [each.get("run", "") for each in job["steps"]] if "steps" in job else job["script"]
    (line,) = (each for each in lines if each.startswith("hakmem "))
    command, _, rest = line.partition(" || ")
    assert rest.strip() == "[ $? = 4 ]"
    app = typer.Typer()
    ab.register(app)
    known = {option for parameter in typer.main.get_command(app).params for option in parameter.opts}
    used = {word.partition("=")[0] for word in shlex.split(command) if word.startswith("--")}
    assert used and used <= known, used - known


def test_a_verdict_has_one_status() -> None:
    known = {"GO": 0, "BETTER": 0, "LEVEL": 0, "NO-GO": 3, "WORSE": 3, "INCONCLUSIVE": 4, "REFUSED": 1, "ERROR": 1}
    assert known == exports.STATUS


ERROR = LabError("B in round 3: exit status 9", "Its last words:\nbroken | by <64>")


def test_an_error_is_in_each_form() -> None:
    report = exports.of_error(ERROR, "hakmem ab", ["one"])
    suites = ElementTree.fromstring(exports.junit(report).encode())
    assert (suites.get("tests"), suites.get("failures"), suites.get("errors")) == ("1", "0", "1")
    found = suites.find(".//testcase[@name='one']/error")
    assert found is not None and found.get("message") == "ERROR: B in round 3: exit status 9"
    assert found.text == ERROR.advice
    text = exports.markdown(report)
    assert text.startswith("### ERROR: hakmem ab\n\nB in round 3: exit status 9.\n")
    assert "\n| one |  | | |  | ERROR |\n" in text and "\n    broken | by <64>\n" in text
    (line,) = csv.DictReader(io.StringIO(exports.as_csv(report)))
    assert (line["verdict"], line["reason"]) == ("ERROR", ERROR.message)
    assert not any(line[name] for name in ("gain_percent", "low_percent", "high_percent", "confidence", "rounds"))
    assert exports.github(report) == "::error title=ERROR%3A one::B in round 3: exit status 9\n"


def test_an_error_of_one_case_is_not_the_others() -> None:
    error = LabError("two: exit status 9")
    error.case = "two"
    report = exports.of_error(error, "hakmem ab", ["one", "two"])
    assert [(each.case, each.verdict) for each in report.rows] == [("one", "INCONCLUSIVE"), ("two", "ERROR")]
    assert report.rows[0].reason == "ended before a verdict, with two"
    assert [each.case for each in exports.of_error(ERROR, "hakmem ab", []).rows] == ["hakmem ab"]


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="cannot write"):
        exports.write(REPORT, {"csv": tmp_path})
    assert exports.write(REPORT, {"junit": tmp_path / "new" / "x.xml"}) == {"junit": str(tmp_path / "new" / "x.xml")}
