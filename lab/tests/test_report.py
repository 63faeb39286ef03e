"""report: every kind of input, the map of SuperSlabs of a real process, and files that are not results."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from hakmem_lab.inspect import slab_map
from hakmem_lab.inspect.live import Live
from hakmem_lab.inspect.snapshots import from_text
from hakmem_lab.measure import results
from hakmem_lab.pages import bench, inputs, inside, report
from hakmem_lab.terminal.errors import LabError
from tests.conftest import Hakmem, make_experiment
from tests.inside import running
from tests.pages import figures, recording, snapshot, write_bench
from tests.test_commands import charts_of, near
from tests.test_interleaved import PRINTER


def titles(page: str) -> list[str]:
    return [chart["layout"]["title"]["text"] for chart in charts_of(page)]  # type: ignore[index]


def test_experiments_of_all_commands(hakmem_library: Path, hakmem: Hakmem, tmp_path: Path) -> None:
    common = ["--metric", "ops=(.*)", "--runs", "3"]
    compared = ["ab", "--no-noise-check", "--a", "", "--b", "refill_count=64"]
    hakmem(*compared, *common, "--out", "ab.jsonl", "--", "sh", "-c", PRINTER)
    swept = ["--option", "refill_count", "--values", "16,32,64", "--out", "sweep.jsonl"]
    hakmem("sweep", *swept, *common, "--", "sh", "-c", PRINTER)
    document = hakmem("compare", "--alloc", "system,hakmem", *common, "--json", "--", "sh", "-c", PRINTER).stdout
    (tmp_path / "compare.json").write_text(document)  # names the file that has the runs
    files = ["ab.jsonl", "sweep.jsonl", "compare.json"]
    found = json.loads(hakmem("report", *files, "--json").stdout)
    assert [each["verdict"] for each in found["items"]] == ["GO", "SWEEP", "COMPARE"]
    assert found["items"][0]["ratios"][0]["gain"] == pytest.approx(100.0, abs=2.0)
    page = (tmp_path / "report.html").read_text()
    assert {"All gains", "Distribution", "Time against memory"} <= set(titles(page))
    body = page[page.index("<body ") :]
    assert body.rindex('class="verdict') < body.index('class="chart"')  # all verdicts before anything else


def test_a_record_draws_its_page(hakmem: Hakmem, tmp_path: Path) -> None:
    made = make_experiment({"A": near(1.05, 1), "B": near(1.0, 2)})
    (tmp_path / "0042-a.json").write_text(results.document(made))
    assert "GO" in hakmem("report", "0042-a.json").stdout
    assert "Every run" in (tmp_path / "0042-a.html").read_text()


def test_numbers_of_a_snapshot_are_those_drawn() -> None:
    found = from_text(snapshot(), "it")
    bars = inside.histogram(found).data
    assert list(bars[0].y) == pytest.approx([row["live"] * row["size"] / 2**20 for row in found.classes])
    figure, _ = inside.hits_chart(found)
    assert list(figure.data[0].y) == pytest.approx([100 * row["hits"] / row["mallocs"] for row in found.classes])
    states, full = inside.map_chart(found).data
    assert list(full.z[0][:6]) == [pytest.approx(100 * 500 / 1024), 100, 100, 100, 100, None]
    assert [row[0] for row in states.z] == [None, 2, 0] and states.z[0][5] == 1
    assert sum(bar.x[0] for bar in inside.ledger_chart(found).data) == pytest.approx(
        found.group("ledger")["rss"] / 2**20
    )


def test_without_exact_counts_no_hit_rate_is_made_up() -> None:
    figure, note = inside.hits_chart(from_text(json.dumps(figures(exact=False)), "it"))
    assert "HAKMEM_STATS=exact" in note and "Misses" in figure.layout.title.text


def test_recording(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text(recording(4) + '{"pid": 7, "ti')  # the last line was cut off
    found = inputs.read(tmp_path / "r.jsonl").content
    assert isinstance(found, inputs.Recording) and len(found.looks) == 4
    assert inside.recording_verdict("it", found).figure == "64.0 MiB to 256.0 MiB resident in 3.0 s"
    rss = inside.over_time_chart(found.looks).data[-1]
    assert list(rss.x) == [0, 1, 2, 3] and list(rss.y) == [64, 128, 192, 256]


def test_bench(tmp_path: Path) -> None:
    write_bench(tmp_path / "b.jsonl")
    found = inputs.read(tmp_path / "b.jsonl").content
    assert isinstance(found, inputs.Bench)
    said = bench.verdict("it", found)
    assert said.figure.startswith("speed over the best other one: 0.866")  # sqrt(1.5 * 0.5); the floor is no peer
    assert said.sentences[0].startswith("1 of 2 benchmarks") and "the worst is two with 0.5" in said.sentences[0]


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("", "is empty"),
        ("hello\n", "of no known kind"),
        ('{"a": 1}\n', "of no known kind"),
        ("# TYPE x counter\n", "OpenMetrics"),
        ('{"type": "result", "round": 1}\n', "Field required"),
        ('{"problem": "it was too short"}\n', "it was too short"),
        ('{"files": {"results": "gone.jsonl"}}\n', "gone.jsonl, which does not exist"),
    ],
)
def test_files_that_are_no_results(tmp_path: Path, content: str, part: str) -> None:
    (tmp_path / "f.json").write_text(content)
    with pytest.raises(LabError) as caught:
        inputs.read(tmp_path / "f.json")
    assert part in caught.value.message and caught.value.advice


def test_the_results_are_not_overwritten(hakmem: Hakmem, tmp_path: Path) -> None:
    (tmp_path / "now.json").write_text(snapshot())
    assert "one of the results" in hakmem("report", "now.json", "--page", "now.json", status=1).stderr
    assert "cannot read none.json" in " ".join(hakmem("report", "none.json", status=1).stderr.split())


def test_map_of_a_process(program: Path, hakmem: Hakmem, tmp_path: Path) -> None:
    """The map has exactly the program's blocks, including huge ones."""
    with running(program) as child:

        def used(size: int) -> int:
            rows = slab_map.superslabs(Live(child.pid))
            return sum(span[3] for row in rows for span in row.get("spans", []) if span[2] == size)

        before = used(64)
        for _ in range(20):
            child.tell("a")
        after = used(64)
        assert 2000 <= after - before <= 2000 + 64  # handed out, or ready in the cache: a refill's worth at most
        rows = slab_map.superslabs(Live(child.pid))
        assert [row["kind"] for row in rows].count("huge") == 2  # of 3 MiB; and of 5, freed, which waits
        spans = [span for row in rows for span in row.get("spans", [])]
        assert [span[2:4] for span in spans if span[2] >= 200 << 10] == [[229376, 1]]  # the one of 200 KiB
        for row in rows:
            taken = [slab for first, slabs, *_ in row.get("spans", []) for slab in range(first, first + slabs)]
            assert len(taken) == len(set(taken)) and all(slab < row["slabs"] for slab in taken)
        shown = hakmem("stats", str(child.pid), "--map").stdout
        assert "SuperSlabs (a character per slab" in shown and "huge, goes on" in shown
        (tmp_path / "now.json").write_text(hakmem("stats", str(child.pid), "--map", "--json").stdout)
    item = report.item(inputs.read(tmp_path / "now.json"))
    report.write([item], "now", tmp_path / "now.html")
    assert "Map of SuperSlabs" in titles((tmp_path / "now.html").read_text())


def test_map_needs_a_process(hakmem: Hakmem, tmp_path: Path) -> None:
    now = figures()
    del now["map"]
    (tmp_path / "now.json").write_text(json.dumps(now))
    assert "has no map" in hakmem("stats", "now.json", "--map", status=1).stderr
    assert "--map needs --json" in hakmem("watch", "1", "--map", status=1).stderr


# Holds blocks until it has been sampled twice.
LOOKED_AT = """
import time
keep = [bytearray(3000) for _ in range(3000)]
looks = lambda: open("r.jsonl").read().count('"time"')
begun, until = looks(), time.monotonic() + 60
while looks() < begun + 2 and time.monotonic() < until:
    time.sleep(0.02)
print("done")
"""


def test_run_records_beside_the_program(hakmem_library: Path, hakmem: Hakmem, tmp_path: Path) -> None:
    program = ["--", "sh", "-c", f'exec "{sys.executable}" -c "$0"; exit 3', LOOKED_AT]  # becomes another program
    done = hakmem("run", "--sample", "r.jsonl", "--sample-interval", "0.1", *program)
    assert done.stdout == "done\n"
    found = inputs.read(tmp_path / "r.jsonl").content
    assert isinstance(found, inputs.Recording)
    held = [each for each in found.looks if any(r["size"] >= 3000 and r["live"] >= 3000 for r in each.snapshot.classes)]
    assert held and any(look.snapshot.map for look in found.looks), "some looks are written whole"
    assert "resident in" in hakmem("report", "r.jsonl").stdout


def test_run_records_a_program_whose_statistics_it_prints(hakmem_library: Path, hakmem: Hakmem, tmp_path: Path) -> None:
    """It is then a child of the command."""
    options = ("--stats", "text", "--sample", "r.jsonl", "--sample-interval", "0.1")
    done = hakmem("run", *options, "--", sys.executable, "-c", LOOKED_AT)
    assert done.stdout == "done\n" and "total refilled=" in done.stderr
    found = inputs.read(tmp_path / "r.jsonl").content
    assert isinstance(found, inputs.Recording) and len(found.looks) >= 2


def test_a_program_that_is_too_short_is_said_to_be(hakmem_library: Path, hakmem: Hakmem, tmp_path: Path) -> None:
    hakmem("run", "--sample", "r.jsonl", "--", "sh", "-c", "exit 5", status=5)
    for _ in range(100):
        lines = [json.loads(each) for each in (tmp_path / "r.jsonl").read_text().splitlines()]
        if lines[0]["problem"] or len(lines) > 1:  # the look may have been in time
            return
        time.sleep(0.1)
    raise AssertionError("nothing was said")
