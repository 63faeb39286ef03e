"""tune: it finds what is known to be better, and leaves the default alone where nothing is."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hakmem_lab import libhakmem, measure, results, search, space
from hakmem_lab.errors import LabError
from hakmem_lab.libhakmem import Option
from tests.conftest import Hakmem
from tests.inside import compile_c

# Takes and frees COUNT blocks of SIZE in turns, and prints how often the cache of the class had none.
MISSES = r"""
#include <stdio.h>
#include <stdlib.h>
#include "hakmem_stats.h"

extern int hak_stats_snapshot(struct hak_stats *, size_t) __attribute__((weak));
static struct hak_stats s;
static void *blocks[4096];

int main(int argc, char **argv)
{
    int count = atoi(argv[1]);
    size_t size = (size_t)atoi(argv[2]);
    for (int turn = 0; argc == 3 && turn < 200; turn++) {
        for (int i = 0; i < count; i++)
            blocks[i] = malloc(size);
        for (int i = 0; i < count; i++)
            free(blocks[i]);
    }
    hak_stats_snapshot(&s, sizeof s);
    for (unsigned i = 0; i < s.class_count; i++)
        if (s.classes[i].size >= size && (i == 0 || s.classes[i - 1].size < size))
            printf("misses=%llu\n", (unsigned long long)s.classes[i].misses);
    return 0;
}
"""
METRIC = ("--metric", "misses=([0-9]+)", "--lower-is-better")
FAST = ("--runs", "3", "--trial-rounds", "1", "--seed", "7", "--budget", "10m")


@pytest.fixture(scope="session")
def misses(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(tmp_path_factory.mktemp("misses"), MISSES)


def test_finds_a_setting_that_is_known_to_be_better(
    hakmem_library: Path, hakmem: Hakmem, misses: Path, tmp_path: Path
) -> None:
    # 100 blocks of 4 KiB do not fit in the default's 48 (48, 96 are too few; 192 and 256 hold them all).
    arguments = [*METRIC, *FAST, "--options", "l2_ring_cap,l25_ring_cap", "--trials", "14", "--json"]
    document = json.loads(hakmem("tune", *arguments, "--", str(misses), "100", "4096").stdout)
    assert document["verdict"] == "GO" and document["comparison"]["gain"] > 100
    env = dict(
        line.split("=") for line in (tmp_path / "hakmem.env").read_text().splitlines() if not line.startswith("#")
    )
    assert int(env["HAKMEM_L2_RING_CAP"]) > 100
    # What it promises holds: the settings, used as the file says, save those misses.
    run = f"set -a; . ./hakmem.env; LD_PRELOAD={hakmem_library} {misses} 100 4096"
    with_it = subprocess.run(["sh", "-c", run], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    without = subprocess.run(
        [str(misses), "100", "4096"],
        env={**libhakmem.without_settings(), "LD_PRELOAD": str(hakmem_library)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert int(with_it.partition("=")[2]) < int(without.partition("=")[2]) / 2
    # The results have the search, and the page shows it.
    experiment = results.load(tmp_path / document["files"]["results"])
    assert len(experiment.trials) == len(document["trials"]) >= 5
    page = (tmp_path / document["files"]["page"]).read_text()
    assert "Best of" in page and "The search" in page


def test_the_default_stands_where_nothing_is_better(
    hakmem_library: Path, hakmem: Hakmem, misses: Path, tmp_path: Path
) -> None:
    # Ten blocks fit in any capacity that is tried: greater ones bring nothing, smaller ones cost misses.
    arguments = [*METRIC, *FAST, "--options", "l2_ring_cap,l25_ring_cap", "--trials", "8"]
    done = hakmem("tune", *arguments, "--", str(misses), "10", "4096", status=3)
    assert "the default stands" in " ".join(done.stdout.split())
    assert not (tmp_path / "hakmem.env").exists()


def test_luck_in_the_search_does_not_pass_the_decision(hakmem_library: Path, hakmem: Hakmem, tmp_path: Path) -> None:
    # Noise that no option changes: the best of many trials looks better, the decision does not believe it.
    program = "echo ops=$(( 100000 + $(od -An -N2 -tu2 /dev/urandom) % 200 ))"
    arguments = ["--metric", "ops=([0-9]+)", *FAST, "--options", "refill_count", "--trials", "6", "--json"]
    document = json.loads(hakmem("tune", *arguments, "--", "sh", "-c", program, status=3).stdout)
    assert document["verdict"] == "NO-GO" and len(document["trials"]) >= 4
    assert not (tmp_path / "hakmem.env").exists()


def test_interrupted_search_goes_on(hakmem_library: Path, hakmem: Hakmem, tmp_path: Path) -> None:
    program = 'sleep 0.02; echo "ops=$(( ${HAKMEM_REFILL_COUNT:-32} * 10 ))"'
    arguments = ["--metric", "ops=([0-9]+)", "--options", "refill_count", "--runs", "2"]
    arguments += ["--trial-rounds", "2"]
    command = [sys.executable, "-m", "hakmem_lab", "tune", *arguments, "--out", "r.jsonl", "--", "sh", "-c", program]
    study = tmp_path / "r.study"
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        while study.exists() is False or study.read_text().count('"gains"') < 4:
            assert running.poll() is None
            time.sleep(0.02)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=60)
    assert running.returncode == 130 and "--resume r.study" in " ".join(said.split())
    assert '"library":' in study.read_text() and '"shared_object":' not in study.read_text()  # as older studies have it
    done = hakmem("tune", "--resume", "r.study", "--json")
    document = json.loads(done.stdout)
    assert document["verdict"] == "GO" and document["comparison"]["gain"] == pytest.approx(700.0)  # 256 for 32
    assert "HAKMEM_REFILL_COUNT=256\n" in (tmp_path / "hakmem.env").read_text()
    texts = [each["text"] for each in document["trials"]]
    assert len(texts) == len(set(texts))  # nothing is measured twice


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--budget", "soon"], "not a time above 0"),
        (["--objective", "speed"], "Known are time, rss, mix"),
        (["--options", "refil_count"], "did you mean refill_count"),
        (["--options", "process_budget"], "gives no range to search"),
        (["--with", "alloc:system"], "tuning is of HAKMEM's options"),
        (["--budget", "0.001s"], "is too short"),
        (["--resume", "none.study"], "no such file"),
    ],
)
def test_mistakes(hakmem_library: Path, hakmem: Hakmem, arguments: list[str], part: str) -> None:
    assert part in " ".join(hakmem("tune", *arguments, "--", "true", status=1).stderr.split())


def test_a_file_of_somebody_else_is_not_overwritten(hakmem_library: Path, hakmem: Hakmem, tmp_path: Path) -> None:
    (tmp_path / "hakmem.env").write_text("PRECIOUS=1\n")
    assert "was not written by hakmem tune" in " ".join(hakmem("tune", "--", "true", status=1).stderr.split())


@pytest.mark.parametrize("value", ["$(touch executed)", "`touch executed`", "a; touch executed", 'it\'s "$HOME"'])
def test_the_file_is_read_by_a_shell_and_nothing_in_it_is_executed(
    hakmem_library: Path, hakmem: Hakmem, tmp_path: Path, value: str
) -> None:
    program = 'echo "ops=$(( ${HAKMEM_REFILL_COUNT:-32} * 10 ))"'
    arguments = ["--metric", "ops=([0-9]+)", *FAST, "--options", "refill_count", "--env", "a $(touch executed).env"]
    arguments += ["--with", f"NOTE={shlex.quote(value)}", "--json"]
    document = json.loads(hakmem("tune", *arguments, "--", "sh", "-c", program).stdout)
    assert document["verdict"] == "GO"
    read = 'set -a; . "./$1"; set +a; printf %s "$NOTE"; test "$HAKMEM_REFILL_COUNT" = 256'
    file = document["files"]["settings"]
    done = subprocess.run(["sh", "-c", read, "sh", file], check=False, cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == (value, "", 0)
    assert not (tmp_path / "executed").exists()


def option(kind: str, value: int, least: int, most: int, word: str | None = None) -> Option:
    return Option("x", "", kind, "at once", "default", word, value, value, least, most)


def test_values_to_try_keep_within_the_bounds() -> None:
    def values(*given: object) -> tuple[str, ...]:
        found = space.axis(option(*given), ("a", "b"))  # type: ignore[arg-type]
        return found.values if found else ()

    assert values("count", 48, 0, 256) == ("3", "6", "12", "24", "48", "96", "192", "256")
    assert values("count", 32, 1, 256) == ("2", "4", "8", "16", "32", "64", "128", "256")
    assert values("bytes", 4 << 20, 0, 16 << 20) == ("0", "256K", "512K", "1M", "2M", "4M", "8M", "16M")
    assert values("time", 1000, 0, 3600000)[:3] == ("0ms", "62ms", "125ms")
    assert values("flag", 0, 0, 1) == ("0", "1")
    assert values("preset", 0, 0, 4, "a") == ("a", "b")
    assert values("bytes", 0, 0, 1 << 40) == () and values("stats", 0, 0, 2) == ()


def test_settings_replace_those_of_the_base() -> None:
    base = "lib:a.so L2_RING_CAP=8 HAKMEM_L2_RING_CAP=8 refill_count=4"
    assert search.combined(base, "l2_ring_cap=64") == "lib:a.so refill_count=4 l2_ring_cap=64"
    assert search.combined("", "a=1 b=2") == "a=1 b=2" and search.combined("a=1", "") == "a=1"


def test_a_steady_gain_is_preferred_to_a_lucky_one() -> None:
    assert search._cautious([10.0, 11.0, 9.0]) > search._cautious([-5.0, 60.0, -2.0])


def test_bands_are_searched_only_under_the_usual_preset(hakmem_library: Path) -> None:
    axes = space.axes(hakmem_library, {}, [])
    names = [each.name for each in axes]
    assert "preset" in names and "limit" not in names and "stats" not in names
    band = next(each for each in axes if each.name == "tiny_unified_c2")
    preset = next(each for each in axes if each.name == "preset")
    assert space.depends(axes, band, {"preset": preset.standard})
    assert not space.depends(axes, band, {"preset": "hot_512"})
    assert [each.name for each in space.axes(hakmem_library, {"HAKMEM_L2_RING_CAP": "64"}, [])].count(
        "l2_ring_cap"
    ) == 0
    with pytest.raises(LabError, match="no option"):
        space.axes(hakmem_library, {}, ["l2_ring_kap"])


def test_environment_of_the_test_is_clean() -> None:
    assert not [name for name in os.environ if name.startswith("HAKMEM_") and name != "HAKMEM_LIBRARY"]


def test_the_search_goes_on_where_the_sampler_repeats_itself(
    hakmem_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every setting of a small space is tried, though proposals come back to those that are known."""
    monkeypatch.chdir(tmp_path)
    plan = search.SearchPlan(
        command=["true"],
        typed="",
        base="",
        library=str(hakmem_library),
        digest="",
        metric=results.MetricModel.of(measure.Metric.parse("time")),
        options=["refill_count", "warm_pool_prefill"],
        budget_s=3600.0,
        trials=None,
        rounds=1,
        runs=1,
        threshold=1.0,
        seed=3,
        timeout_s=None,
    )
    plan.digest = search.build_digest(search.default_configuration(plan))
    monkeypatch.setattr(search, "REPEATS", 3)
    monkeypatch.setattr(search.Search, "_round", lambda *_: 0.0)
    found = search.Search.create(plan, tmp_path / "x.study")
    found.run(0.001)
    assert found.tried() == space.size(found.axes) - 1
