"""Several programs in one experiment: their file, their parameters, the overall verdict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hakmem_lab.experiment import case_file
from hakmem_lab.terminal.errors import LabError
from tests.conftest import Hakmem
from tests.test_interleaved import PRINTER

SIDES = ["--a", "", "--b", "refill_count=64"]


def written(folder: Path, text: str) -> Path:
    path = folder / "cases.toml"
    path.write_text(text)
    return path


def test_parameters_take_their_places(tmp_path: Path) -> None:
    text = """runs = 4
    [[case]]
    name = "one"
    command = ["prog", "{n}", "{other}"]
    prepare = "make {k}"
    params = { n = [1, 2], k = ["x"] }
    [[case]]
    name = "two"
    command = "prog 'a b'"
    metric = "rss"
    """
    whole, found = case_file.read(written(tmp_path, text))
    assert whole.runs == 4
    assert [(each.name, each.words) for each in found] == [
        ("one n=1 k=x", ["prog", "1", "{other}"]),
        ("one n=2 k=x", ["prog", "2", "{other}"]),
        ("two", ["prog", "a b"]),
    ]
    assert found[0].prepare == "make x" and found[2].metric == "rss"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('[[case]]\nname = "a"\ncommand = "x"\n[[case]]\nname = "a"\ncommand = "y"', "a: more than one case"),
        ('[[case]]\nname = "a"\ncommand = "x"\nparams = { n = [1] }', "the parameter n is not used"),
        ('[[case]]\nname = "a"\ncommand = ""', "a: no command"),
        ('[[case]]\nname = "a"\ncommand = "x \'"', "No closing quotation"),
        ('[[case]]\nname = "a"\ncommand = "x"\ncomand = 1', "case.0.comand"),
        ('[[case]]\nname = "../a"\ncommand = "x"', "case.0.name"),
        ("runs = 3", "case: Field required"),
        ("runs = ", "not TOML"),
    ],
)
def test_mistakes_in_the_file(tmp_path: Path, text: str, part: str) -> None:
    with pytest.raises(LabError) as caught:
        case_file.read(written(tmp_path, text.replace("\n", "\n")))
    assert part in caught.value.message and caught.value.advice


@pytest.mark.parametrize("text", ["n", "n=", "1n=2", "n=1,1"])
def test_mistakes_in_a_parameter(text: str) -> None:
    with pytest.raises(LabError, match="--param"):
        case_file.parse_params([text])


@pytest.mark.parametrize(
    ("words", "worse", "better", "expected"),
    [
        (["GO", "NO-GO"], [], ["a"], "GO"),
        (["GO", "NO-GO"], ["b"], ["a"], "NO-GO"),
        (["NO-GO", "NO-GO"], [], [], "NO-GO"),
        (["NO-GO", "INCONCLUSIVE"], [], [], "INCONCLUSIVE"),
        (["INCONCLUSIVE", "NO-GO"], ["b"], [], "NO-GO"),
    ],
)
def test_one_verdict_on_all(words: list[str], worse: list[str], better: list[str], expected: str) -> None:
    assert case_file.overall(words, worse, better)[0] == expected


def test_cases_share_the_error_rate_and_have_a_page_each(hakmem_library: Path, hakmem: Hakmem, tmp_path: Path) -> None:
    worse = PRINTER.replace("* 1000", "* -1000 + 100000")
    text = f"""runs = 3
    [[case]]
    name = "better"
    command = ["sh", "-c", '''{PRINTER}''']
    metric = "ops=(.*)"
    [[case]]
    name = "worse"
    command = ["sh", "-c", '''{worse}''']
    metric = "ops=(.*)"
    """
    written(tmp_path, text)
    done = hakmem("ab", *SIDES, "--no-noise-check", "--cases", "cases.toml", "--json", "--csv", "out.csv", status=3)
    document = json.loads(done.stdout)
    found = document["outcome"]["comparisons"]
    assert document["outcome"]["verdict"] == "NO-GO" and "worse" in document["outcome"]["reason"]
    assert {name: each["verdict"] for name, each in found.items()} == {"better": "GO", "worse": "NO-GO"}
    assert [each["confidence"] for each in found.values()] == [pytest.approx(0.975)] * 2
    folder = tmp_path / document["files"]["results"]
    pages = {each.name for each in folder.iterdir()}
    assert {"index.html", "01-better.html", "01-better.jsonl", "02-worse.html", "02-worse.jsonl"} <= pages
    index = (folder / "index.html").read_text()
    assert 'href="01-better.html"' in index and 'href="02-worse.jsonl"' in index
    assert 'href="01-better.jsonl"' in (folder / "01-better.html").read_text()
    assert (tmp_path / "out.csv").read_text().count("\n") == 3


def test_what_is_prepared_is_there_and_is_cleaned_up(hakmem_library: Path, hakmem: Hakmem, tmp_path: Path) -> None:
    program = ["sh", "-c", "read n; test -f made-{k}; echo ops=$n"]
    hooks = ["--prepare", "touch made-{k}; echo 5{k} >in", "--input", "in", "--cleanup", "rm made-{k}; echo >>ended"]
    arguments = [*SIDES, "--metric", "ops=(.*)", "--runs", "2", "--no-noise-check", "--param", "k=1,2", *hooks]
    document = json.loads(hakmem("ab", *arguments, "--json", "--", *program, status=3).stdout)
    assert not list(tmp_path.glob("made-*"))
    assert (tmp_path / "ended").read_text() == "\n" * 2 * 2 * 3  # cases, sides, rounds with the warm-up
    values = [
        json.loads(line)["data"]["value"]
        for path in sorted((tmp_path / document["files"]["results"]).glob("*.jsonl"))
        for line in path.read_text().splitlines()
        if '"run"' in line
    ]
    assert set(values[:6]) == {51.0} and set(values[6:]) == {52.0}


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--prepare", "echo no disk; exit 3"], "--prepare 'echo no disk; exit 3': exit status 3"),
        (["--cleanup", "false"], "--cleanup 'false': exit status 1"),
        (["--input", "nowhere"], "--input nowhere: No such file"),
        (["--param", "size"], "not NAME=VALUE"),
        (["--param", "size=1,2"], "the parameter size is not used"),
        (["--cases", "nowhere.toml"], "put them into the file"),
        (["--param", "size=1", "--until-decided"], "--until-decided works for one program"),
    ],
)
def test_mistakes_on_the_command_line(hakmem_library: Path, hakmem: Hakmem, arguments: list[str], part: str) -> None:
    status = 2 if part.startswith(("not NAME", "put them", "--until")) else 1
    said = " ".join(hakmem("ab", *SIDES, *arguments, "--", "true", status=status).stderr.split())
    assert part.lower() in said.lower()
