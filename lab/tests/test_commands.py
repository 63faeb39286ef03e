"""sweep, compare, records and pages, as a user uses them."""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hakmem_lab.commands import options
from hakmem_lab.decide import allocator_comparison, decision_record, result_tables, sweep, verdict
from hakmem_lab.measure import results
from hakmem_lab.pages import ab as ab_page
from hakmem_lab.pages import compare as compare_page
from hakmem_lab.pages import sweep as sweep_page
from hakmem_lab.target.libhakmem import Option
from hakmem_lab.terminal import amounts
from hakmem_lab.terminal.errors import LabError
from tests.conftest import Hakmem, files_of_at_most, make_experiment
from tests.pages import snapshot
from tests.test_interleaved import PRINTER


def near(value: float, seed: int, count: int = 10) -> list[float]:
    return [float(each) for each in value * np.exp(np.random.default_rng(seed).normal(0, 0.002, count))]


def swept(times: dict[int, float]) -> sweep.Sweep:
    """A sweep over l2_ring_cap whose runs take these times."""
    values = {f"cap={cap}": near(seconds, cap) for cap, seconds in times.items()}
    made = make_experiment(values, points=[{"cap": str(cap)} for cap in times])
    return sweep.analyse(made, next(iter(values)))


def test_knee() -> None:
    found = swept({48: 1.0, 8: 1.5, 16: 1.2, 24: 1.0, 64: 1.0})
    assert found.knee == "cap=24" and "The knee is cap=24" in found.sentence
    found = swept({48: 1.0, 8: 1.0, 16: 1.0})
    assert found.knee is None and found.sentence.startswith("Flat")
    found = swept({8: 1.5, 16: 1.3, 32: 1.1, 64: 1.0})
    assert found.knee == "cap=64" and "sweep larger values" in found.sentence
    found = swept({32: 1.0, 64: 1.2, 128: 1.4})
    assert found.knee == "cap=32" and "the least value" in found.sentence


def test_sweep_shares_the_error_rate_out() -> None:
    found = swept({48: 1.0, 8: 1.5, 16: 1.2, 24: 1.0, 64: 1.0})
    compared = [each.comparison for each in found.points if each.comparison is not None]
    assert [each.confidence for each in compared] == [pytest.approx(1 - 0.05 / 4)] * 4

    two = [each.comparison for each in swept({48: 1.0, 8: 1.5}).points if each.comparison is not None]
    assert [each.confidence for each in two] == [pytest.approx(0.95)]


def test_worse_is_a_loss_that_is_shown_and_worth_speaking_of() -> None:
    found = swept({48: 1.0, 8: 1.005, 16: 1.5})  # half a per cent is significant, but below the threshold of 1 %
    assert found.best == found.base == "cap=48"
    assert [each.worse for each in found.points] == [False, False, True]
    assert [each.loss for each in found.points] == pytest.approx([0, 0.5, 50], abs=0.4)
    wild = {"cap=48": near(1.0, 1), "cap=8": [1.0, 3.0, 0.4] * 3 + [3.0]}  # much worse on average, but not significant
    made = make_experiment(wild, points=[{"cap": "48"}, {"cap": "8"}])
    other = sweep.analyse(made, "cap=48").points[1]
    assert other.loss > 1 and not other.worse


def test_a_knee_is_found_in_the_order_of_the_values() -> None:
    values = {f"cap={cap}": near(seconds, 1) for cap, seconds in (("2", 1.0), ("0.5", 1.0), ("0", 1.5))}
    made = make_experiment(values, points=[{"cap": label[4:]} for label in values])
    found = sweep.analyse(made, "cap=2")
    assert found.knee == "cap=0.5" and "less is shown to be worse" in found.sentence


def test_numbers_with_units() -> None:
    found = [sweep.number(text) for text in ("64", "4K", "2m", "3G", "1.5s", "10ms", " 7 ")]
    assert found == [64, 4096, 2 << 20, 3 << 30, 1500, 10, 7]
    assert [sweep.number(text) for text in ("hot_512", "1.2.3k", "k", "")] == [None] * 4


def test_which_value_is_the_default() -> None:
    def option(standard: int, word: str | None) -> Option:
        return Option("it", "", "count", "at once", "default", word, 0, standard, 0, 100)

    assert [sweep.same_value(option(64, None), text) for text in ("64", "65", "auto")] == [True, False, False]
    assert [sweep.same_value(option(800, None), text) for text in ("0.8s", "800ms", "0.8")] == [True, True, False]
    assert [sweep.same_value(option(7, "auto"), "".join(text)) for text in ("auto", "always")] == [True, False]
    assert sweep.same_value(option(2048, "auto"), "2k")


def test_sweep_command(hakmem_library: Path, hakmem: Hakmem, tmp_path: Path) -> None:
    arguments = ["--option", "refill_count", "--values", "16,64,128", "--metric", "ops=(.*)", "--runs", "3"]
    done = hakmem("sweep", *arguments, "--", "sh", "-c", PRINTER)
    assert "sweep larger values" in done.stdout and "32 base" in done.stdout
    arguments += ["--option", "l2_ring_cap", "--values", "24,48", "--json", "--out", "grid.jsonl"]
    document = json.loads(hakmem("sweep", *arguments, "--", "sh", "-c", PRINTER).stdout)
    assert len(document["sweep"]["points"]) == 8
    assert document["sweep"]["base"] == "refill_count=32 l2_ring_cap=48"
    assert '"heatmap"' in (tmp_path / "grid.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--option", "refil_count", "--values", "1,2"], "did you mean refill_count"),
        (["--option", "refill_count", "--values", "2,2"], "different values"),
        (["--option", "refill_count", "--values", "2,many"], "is not a number"),
        (["--option", "refill_count"], "0 times --values"),
        (["--values", "1"], "0 times --option"),
        (
            ["--with", "alloc:system", "--option", "refill_count", "--values", "2"],
            "only options of HAKMEM can be swept",
        ),
    ],
)
def test_sweep_mistakes(hakmem_library: Path, hakmem: Hakmem, arguments: list[str], part: str) -> None:
    status = 1 if part == "is not a number" else 2
    assert part in " ".join(hakmem("sweep", *arguments, "--", "true", status=status).stderr.split())


def test_compare_command(hakmem_library: Path, hakmem: Hakmem) -> None:
    program = ["--", "sh", "-c", 'echo n=5; test -n "$LD_PRELOAD" && echo n=7 || echo n=3']
    arguments = ["--alloc", "system,hakmem", "--config", "refill_count=64", "--runs", "3", "--metric", "n=([37])"]
    document = json.loads(hakmem("compare", *arguments, "--json", *program).stdout)
    rows = {row["label"]: row for row in document["comparison"]["rows"]}
    assert list(rows) == ["system", "hakmem", "refill_count=64"]
    assert rows["hakmem"]["gain"]["gain"] == pytest.approx(100 * (7 / 3 - 1))
    assert rows["system"]["gain"] is None and rows["hakmem"]["peak_mib"] > 0


def test_compare_goes_on_without_one_that_fails(hakmem_library: Path, hakmem: Hakmem) -> None:
    program = ["--", "sh", "-c", 'test -z "$HAKMEM_REFILL_COUNT"']
    arguments = ["--alloc", "system,hakmem", "--config", "refill_count=64", "--runs", "2"]
    done = hakmem("compare", *arguments, *program, status=1)
    assert "refill_count=64 failed: exit status 1" in " ".join(done.stdout.split())
    assert "hakmem" in done.stdout


def charts_of(page: str) -> list[dict[str, object]]:
    return [json.loads(text) for text in re.findall(r'<script type="application/json">(.*?)</script>', page, re.S)]


def test_page_is_whole_and_shows_the_verdict_first(tmp_path: Path) -> None:
    made = make_experiment({"A": near(1.05, 1), "B": near(1.0, 2)}, prediction=(4.0, 6.0))
    found = verdict.compare(made, "A", "B")
    ab_page.compose(made, found).write(tmp_path / "page.html", single=True)
    page = (tmp_path / "page.html").read_text()
    body = page[page.index("<body ") :]
    assert body.index(">GO<") < body.index("<table") < body.index('class="chart"')
    assert len(charts_of(page)) == 3
    assert not re.findall(r'(?:src|href)="(?!data:)', page)  # nothing from elsewhere
    packed = re.search(r'window.hakmemCharts = "([A-Za-z0-9+/=]+)"', page)
    assert packed is not None and b"newPlot" in gzip.decompress(base64.b64decode(packed.group(1)))


def test_pages_of_a_folder_share_the_chart_library(tmp_path: Path) -> None:
    made = make_experiment({"A": near(1.05, 1), "B": near(1.0, 2)})
    found = verdict.compare(made, "A", "B")
    for name in ("one.html", "two.html"):
        ab_page.write(made, found, tmp_path / name, tmp_path / "runs.jsonl")
        page = (tmp_path / name).read_text()
        assert len(page) < 200_000 and 'href="runs.jsonl"' in page
    (library,) = tmp_path.glob("*.js")
    assert f'<script src="{library.name}">' in page and library.read_text().startswith("window.hakmemCharts = ")
    assert sorted(each.name for each in tmp_path.iterdir()) == [library.name, "one.html", "two.html"]


def test_a_full_disk_keeps_nothing_of_the_chart_library(tmp_path: Path) -> None:
    made = make_experiment({"A": near(1.05, 1), "B": near(1.0, 2)})
    with files_of_at_most(100_000), pytest.raises(LabError, match="File too large"):
        ab_page.write(made, verdict.compare(made, "A", "B"), tmp_path / "page.html")
    assert not list(tmp_path.iterdir())


def test_names_that_are_not_utf8(hakmem: Hakmem, tmp_path: Path) -> None:
    """Results cannot hold them; pages show them with question marks."""
    done = hakmem("compare", "--runs", "2", "--", "true", "\udcff", status=1)
    assert "names that are not UTF-8" in done.stderr and not (tmp_path / "hakmem-results").exists()
    made = make_experiment({"A": near(1.0, 1), "B": near(1.0, 2)})
    made.head.plan.command = ["x\udcff"]
    ab_page.compose(made, verdict.compare(made, "A", "B")).write(tmp_path / "page.html")
    assert "x?" in (tmp_path / "page.html").read_text()


def test_a_chart_is_told_in_words(tmp_path: Path) -> None:
    made = make_experiment({"A": [1.0, 2.0, 4.0], "B": [1.0, 1.0, 1.0]})
    ab_page.write(made, verdict.compare(made, "A", "B"), tmp_path / "page.html")
    said = re.findall(r'class="alternative" id="chart-\d">(.*?)</p>', (tmp_path / "page.html").read_text())
    assert len(said) == 3
    assert said[1] == (
        "Chart: Distribution. up: wall time, s. A: 3 values from 1 to 4, the median 2. "
        "B: 3 values from 1 to 1, the median 1."
    )


def test_page_escapes_what_it_shows(tmp_path: Path) -> None:
    made = make_experiment({"A": near(1.0, 1), "B": near(1.0, 2)})
    made.head.plan.command = ["sh", "-c", "echo '</script><b>'"]
    ab_page.write(made, verdict.compare(made, "A", "B"), tmp_path / "page.html")
    assert "<b>" not in (tmp_path / "page.html").read_text().split("window.hakmemCharts")[0]


def test_sweep_page_marks_the_knee(tmp_path: Path) -> None:
    times = {48: 1.0, 8: 1.5, 24: 1.0}
    values = {f"cap={cap}": near(seconds, cap) for cap, seconds in times.items()}
    made = make_experiment(values, points=[{"cap": str(cap)} for cap in times])
    sweep_page.write(made, sweep.analyse(made, "cap=48"), tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "The knee is cap=24" in page
    assert '"text":"knee"' in json.dumps(charts_of(page), separators=(",", ":"))


def empty_tree(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Redirects records into an otherwise empty tree; returns their folder."""
    records = root / decision_record.FOLDER
    records.mkdir(parents=True)
    monkeypatch.setattr(decision_record, "tree", lambda: root)
    return records


def test_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = empty_tree(tmp_path, monkeypatch)
    made = make_experiment({"A": near(1.05, 1), "B": near(1.0, 2)}, prediction=(4.0, 6.0))
    found = verdict.compare(made, "A", "B")
    path = decision_record.write("0042-b-instead-of-a", made, found)
    text = path.read_text()
    assert text.startswith("# 0042: B instead of a\n\n*2026-01-02, commit unknown, verdict: GO.*\n")
    for part in ("**Question.** ", "**Answer.** "):
        assert f"\n{part}" in text
    assert sum(any(map(str.isalnum, word)) for word in text.split()) <= 250  # tools/lint_text.py holds records to it
    for link in re.findall(r"\]\(([^)]+)\)", text):
        assert (records / link).is_file()
    assert "\nhakmem report bench/runs/0042-b-instead-of-a.json\n" in text
    assert [each.name for each in records.iterdir()] == ["0042-b-instead-of-a.md"]
    assert len(list((tmp_path / "bench" / "runs").iterdir())) == 1  # no page: it is drawn when wanted
    content = (tmp_path / "bench" / "runs" / "0042-b-instead-of-a.json").read_text()
    assert results.from_document(content, "it") == made
    with pytest.raises(LabError, match="the number is taken"):
        decision_record.check_free("0042-another")
    assert decision_record.next_number() == "0043"


def test_record_of_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty_tree(tmp_path, monkeypatch)
    pair = make_experiment({"A": near(1.05, 1), "B": near(1.0, 2)})
    caps = (48, 8)
    swept = make_experiment({f"cap={cap}": near(1.0, cap) for cap in caps}, points=[{"cap": str(cap)} for cap in caps])
    decision_record.write("0042-many-things/one", pair, verdict.compare(pair, "A", "B"))
    best = sweep.analyse(swept, "cap=48")
    path = decision_record.write("0042-many-things/the-sweep", swept, best)
    assert path.read_text() == (
        "# 0042: Many things\n\n"
        "- [One](../../bench/runs/0042-many-things/one.md): verdict: GO.\n"
        f"- [The sweep](../../bench/runs/0042-many-things/the-sweep.md): best: {best.best}.\n"
    )
    part = tmp_path / "bench" / "runs" / "0042-many-things" / "the-sweep.md"
    text = part.read_text()
    assert text.startswith("# 0042: The sweep\n")
    assert "| cap=8 |" in text and "hakmem report bench/runs/0042-many-things/the-sweep.json" in text
    for page in (path, part):
        for link in re.findall(r"\]\(([^)]+)\)", page.read_text()):
            assert (page.parent / link).is_file()
    with pytest.raises(LabError, match="exists already"):
        decision_record.check_free("0042-many-things/one")
    with pytest.raises(LabError, match="the number is taken"):
        decision_record.check_free("0042-many-things")
    with pytest.raises(LabError, match="the number is taken"):
        decision_record.check_free("0042-others/one")
    with pytest.raises(LabError, match="not of the form"):
        decision_record.check_free("0042-many-things/")
    decision_record.check_free("0042-many-things/another")


def test_a_part_that_is_measured_again_keeps_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty_tree(tmp_path, monkeypatch)
    slower = make_experiment({"A": near(1.0, 1), "B": near(1.05, 2)})
    for part in ("c5-and-c6", "c5"):
        path = decision_record.write(f"0042-l2-ring/{part}", slower, verdict.compare(slower, "A", "B"))
    path.write_text(path.read_text() + "\nWhat a person added.\n")
    (tmp_path / "bench/runs/0042-l2-ring/c5-and-c6.json").unlink()
    faster = make_experiment({"A": near(1.05, 1), "B": near(1.0, 2)})
    decision_record.write("0042-l2-ring/c5-and-c6", faster, verdict.compare(faster, "A", "B"))
    assert path.read_text() == (
        "# 0042: L2 ring\n\n"
        "- [C5 and C6](../../bench/runs/0042-l2-ring/c5-and-c6.md): verdict: GO.\n"
        "- [C5](../../bench/runs/0042-l2-ring/c5.md): verdict: NO-GO.\n"
        "\nWhat a person added.\n"
    )
    assert (tmp_path / "bench/runs/0042-l2-ring/c5-and-c6.md").read_text().startswith("# 0042: C5 and C6\n")


def test_a_record_made_under_load_says_so_in_its_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty_tree(tmp_path, monkeypatch)
    made = make_experiment({"A": near(1.05, 1), "B": near(1.0, 2)})
    beside = results.MachineLoad(others=1.5, stolen=0.0)
    busy = made.model_copy(update={"runs": [run.model_copy(update={"surroundings": beside}) for run in made.runs]})
    path = decision_record.write("0042-b", busy, verdict.compare(busy, "A", "B"))
    assert path.read_text().splitlines()[2] == (
        "*2026-01-02, commit unknown, verdict: GO. Measured under load: other programs used 1.0 of 1 processors.*"
    )


@pytest.mark.parametrize("out", [["--out", "/srv/some where"], ["--out=/srv/some where"]])
def test_a_record_names_no_folder_of_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: list[str]) -> None:
    empty_tree(tmp_path, monkeypatch)
    made = make_experiment({"A": near(1.05, 1), "B": near(1.0, 2)})
    rest = ["--runs", "10", "--", "bench", "--out", "x"]
    plan = made.head.plan.model_copy(update={"typed": shlex.join(["hakmem", "ab", *out, *rest])})
    made = made.model_copy(update={"head": made.head.model_copy(update={"plan": plan})})
    path = decision_record.write("0042-b", made, verdict.compare(made, "A", "B"))
    commands = "hakmem ab --runs 10 -- bench --out x\nhakmem report bench/runs/0042-b.json"
    assert f"\n```\n{commands}\n```\n" in path.read_text()
    kept = results.from_document((tmp_path / "bench/runs/0042-b.json").read_text(), "it")
    assert kept.head.plan.typed == "hakmem ab --runs 10 -- bench --out x"
    assert kept.runs == made.runs


def test_help_of_every_command(hakmem: Hakmem) -> None:
    top = hakmem("--help").stdout
    for name in ("ab", "sweep", "compare"):
        assert name in top
        shown = hakmem(name, "--help").stdout
        assert "Examples:" in shown and "--metric" in shown
    for name in ("tune", "report", "run", "stats", "watch", "doctor"):
        assert name in top
        assert "Examples:" in hakmem(name, "--help").stdout
    assert hakmem("nonsense", status=2).stderr
    assert re.fullmatch(r"hakmem \d+\.\d+\.\d+\n", hakmem("--version").stdout)


def test_compare_shows_the_metric_that_was_asked_for() -> None:
    """The gain stands beside the metric's own figure, and the sentence is about it."""
    made = make_experiment({"system": near(1.0, 1), "hakmem": near(0.8, 2)})
    for name, head, word in (
        ("cpu", "CPU s", "takes the least processor time"),
        ("rss", "peak MiB", "takes the least memory"),
        ("time", "time s", "is the fastest"),
    ):
        made.head.metric.name = name
        found = allocator_comparison.analyse(made)
        columns = [title for title, _ in result_tables.compare_columns(found, made.head.metric.title)]
        assert columns[0] == head and columns[1].startswith("gain")
        assert found.sentence.startswith(f"hakmem {word}.")
        page = compare_page.compose(made, found).render(False)
        assert compare_page.interval_of(found.rows[1].gain) in page


def test_compare_names_no_winner_without_evidence() -> None:
    noisy = {label: list(np.exp(np.random.default_rng(seed).normal(0, 1.5, 4))) for seed, label in enumerate("abc")}
    found = allocator_comparison.analyse(make_experiment(noisy))
    assert "No allocator is clearly the fastest" in found.sentence and "level with" in found.sentence
    clear = {"a": near(1.0, 1), "b": near(0.5, 2), "c": near(0.9, 3)}
    found = allocator_comparison.analyse(make_experiment(clear))
    assert found.sentence.startswith("b is the fastest.")
    assert found.confidence == pytest.approx(1 - 0.05 / 2)
    higher = allocator_comparison.analyse(make_experiment(clear, higher=True))
    assert higher.sentence.startswith("a has the highest") or higher.sentence.startswith("a is the fastest")


def test_compare_shows_the_metrics_median_and_not_the_time() -> None:
    made = make_experiment({"system": [10.0, 30.0, 20.0], "hakmem": [5.0, 15.0, 10.0]})
    beside = {"wall_s": 3.0, "cpu_user_s": 1.5, "cpu_system_s": 0.25, "peak_rss_bytes": 5 << 19, "minor_faults": 7}
    made = made.model_copy(update={"runs": [run.model_copy(update=beside) for run in made.runs]})
    base, other = allocator_comparison.analyse(made).rows
    assert (base.value, other.value) == (20.0, 10.0)
    assert (other.time_s, other.cpu_s, other.peak_mib, other.minor_faults) == (3.0, 1.75, 2.5, 7)
    assert base.gain is None and other.gain is not None and other.gain.gain == pytest.approx(100)
    assert other.memory_gain is not None and other.memory_gain.gain == 0.0


def test_compare_says_who_takes_the_least_memory() -> None:
    made = make_experiment({"a": near(1.0, 1), "b": near(0.8, 2), "c": near(0.9, 3)})
    sizes = {"a": 9 << 20, "b": 8 << 20, "c": 4 << 20}
    made = made.model_copy(
        update={"runs": [run.model_copy(update={"peak_rss_bytes": sizes[run.label]}) for run in made.runs]}
    )
    found = allocator_comparison.analyse(made)
    assert found.sentence == "b is the fastest. c takes the least memory."
    gains = [row.memory_gain.gain for row in found.rows if row.memory_gain is not None]
    assert gains == pytest.approx([12.5, 125.0])
    made.head.metric.name = "rss"
    assert allocator_comparison.analyse(made).sentence == "b takes the least memory."  # by the metric's own figures
    made.head.metric.name = "cpu"
    assert allocator_comparison.analyse(made).sentence == "b takes the least processor time. c takes the least memory."


def test_compare_of_equals_and_of_one() -> None:
    same = allocator_comparison.analyse(make_experiment({"a": [1.0, 2.0, 3.0], "b": [1.0, 2.0, 3.0]}))
    assert same.sentence == (
        "No allocator is clearly the fastest: a is level with b. "
        "No allocator clearly takes the least memory: a is level with b."
    )
    assert allocator_comparison.analyse(make_experiment({"a": [1.0, 2.0]})).sentence == "a is the only one that ran."
    with pytest.raises(LabError, match="no round is complete"):
        allocator_comparison.analyse(make_experiment({"a": []}, runs=1))


def test_compare_corrects_for_the_number_of_allocators() -> None:
    """The gain is 3.6 standard errors of four rounds: enough beside one other (3.18), too little beside two (4.18)."""
    best = list(np.exp(-0.01 * (2.0785 + np.array([-1, 1, -1, 1]))))
    two = make_experiment({"a": [1.0] * 4, "b": best})
    assert allocator_comparison.analyse(two).sentence.startswith("b is the fastest.")
    three = make_experiment({"a": [1.0] * 4, "b": best, "c": [2.0] * 4})
    said = allocator_comparison.analyse(three).sentence
    assert said.startswith("No allocator is clearly the fastest: b is level with a.")


@pytest.mark.parametrize("problem", [LabError("cannot write x", "Choose another."), OSError(28, "No space left")])
def test_what_cannot_be_written_beside_a_verdict_is_said(
    capsys: pytest.CaptureFixture[str], problem: Exception
) -> None:
    def fail() -> None:
        raise problem

    assert not options.kept(fail)
    said = capsys.readouterr().err
    assert "cannot write" in said and str(getattr(problem, "strerror", "x")) in said
    assert options.kept(lambda: None) and not capsys.readouterr().err


@pytest.mark.parametrize("command", ["ab", "compare", "sweep"])
def test_the_verdict_comes_before_a_page_that_cannot_be_written(
    command: str, hakmem_library: Path, hakmem: Hakmem, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no folder")
    arguments = {
        "ab": ["--no-noise-check", "--a", "", "--b", "refill_count=64"],
        "compare": ["--alloc", "system,hakmem"],
        "sweep": ["--option", "refill_count", "--values", "16,32"],
    }[command]
    common = ["--runs", "2", "--page", str(tmp_path / "file" / "page.html"), "--metric", "ops=(.*)"]
    done = hakmem(command, *arguments, *common, "--", "sh", "-c", PRINTER, status=None)
    assert done.returncode in (0, 3, 4)
    assert "cannot write" in done.stderr and "results" in done.stdout
    assert any(
        word in done.stdout for word in ("GO", "INCONCLUSIVE", "No allocator", "has the highest", "sweep", "Flat")
    )


def test_a_full_disk_costs_the_runs_and_not_the_verdict(hakmem_library: Path, hakmem: Hakmem, tmp_path: Path) -> None:
    wanted = ["--metric", "ops=(.*)", "--runs", "20", "--no-noise-check", "--a", "", "--b", "refill_count=64"]
    with files_of_at_most(8_000):
        done = hakmem("ab", *wanted, "--out", "x.jsonl", "--json", "--", "sh", "-c", PRINTER)
    assert json.loads(done.stdout)["comparison"]["rounds"] == 20
    assert done.stderr.count("cannot write x.jsonl: File too large") == 1 and "Traceback" not in done.stderr
    assert 0 < len(results.load(tmp_path / "x.jsonl").rounds()) < 20  # what was kept before can be read


def test_an_output_that_is_full_is_said(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(snapshot())
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "hakmem_lab", "stats", str(tmp_path / "s.json")]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, "0"),
        (12345, "12,345"),
        (1234567, "1,234,567"),
        (1234.5, "1,234"),
        (-99999.5, "-100,000"),
        (999.96, "1,000"),
        (0.123456, "0.1235"),
        (math.inf, "∞"),
        (-math.inf, "-∞"),
    ],
)
def test_a_number_looks_the_same_everywhere(tmp_path: Path, value: float, said: str) -> None:
    from hakmem_lab.pages.page import Page

    assert amounts.number(value) == said
    page = Page("it")
    page.table(["x"], [[value]])
    page.write(tmp_path / "page.html")
    assert f">{said}</td>" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("size", "said"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        ((1 << 20) - 1024, "1023 KiB"),
        (1 << 20, "1.0 MiB"),
        (-3 << 19, "-1.5 MiB"),
        ((1 << 30) - (1 << 20), "1023.0 MiB"),
        (5 << 28, "1.25 GiB"),
    ],
)
def test_a_size_has_the_unit_that_it_is_counted_in(size: int, said: str) -> None:
    assert amounts.in_bytes(size) == said
