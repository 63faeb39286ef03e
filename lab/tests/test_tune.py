"""tune: it finds settings that are known to be better, and keeps the default if none is."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from hakmem_lab.commands import options, tune
from hakmem_lab.experiment import interleaved, search, search_space
from hakmem_lab.inspect import doctor_checks
from hakmem_lab.measure import one_run, results
from hakmem_lab.measure.results import Trial
from hakmem_lab.target import libhakmem
from hakmem_lab.target.libhakmem import IN_BYTES, Option
from hakmem_lab.terminal.errors import LabError
from tests.conftest import Hakmem, killed_after, make_experiment
from tests.inside import LIBRARY, compile_c

# Allocates and frees COUNT blocks of SIZE in turns, and prints the misses of the class's cache.
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
    # The promise holds: with the file's settings these misses are gone.
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
    # Ten blocks fit in any capacity tried: larger ones gain nothing, smaller ones cost misses.
    arguments = [*METRIC, *FAST, "--options", "l2_ring_cap,l25_ring_cap", "--trials", "8"]
    done = hakmem("tune", *arguments, "--", str(misses), "10", "4096", status=3)
    assert "the default stays" in " ".join(done.stdout.split())
    assert not (tmp_path / "hakmem.env").exists()


def test_luck_in_the_search_does_not_pass_the_decision(hakmem_library: Path, hakmem: Hakmem, tmp_path: Path) -> None:
    # Noise that no option affects: the best of many trials looks better, but the decision does not confirm it.
    # The seed decides the order of the runs, and so the figures of each side: the noise check cannot fail by chance.
    program = "echo >>runs; echo ops=$(( 100000 + $(cksum <runs | sed 's, .*,,') % 199 ))"
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
    with killed_after(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
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
        (["--with", "alloc:system"], "only HAKMEM's options can be tuned"),
        (["--budget", "0.001s"], "is too short"),
        (["--resume", "none.study"], "no such file"),
    ],
)
def test_mistakes(hakmem_library: Path, hakmem: Hakmem, arguments: list[str], part: str) -> None:
    status = 2 if part.startswith(("not a time", "Known are", "did you mean")) else 1
    assert part in " ".join(hakmem("tune", *arguments, "--", "true", status=status).stderr.split())


def test_a_foreign_file_is_not_overwritten(hakmem_library: Path, hakmem: Hakmem, tmp_path: Path) -> None:
    (tmp_path / "hakmem.env").write_text("PRECIOUS=1\n")
    assert "was not written by hakmem tune" in " ".join(hakmem("tune", "--", "true", status=1).stderr.split())


def test_a_file_of_its_own_is_overwritten(tmp_path: Path) -> None:
    tune.check_env(tmp_path / "none.env")
    (tmp_path / "it.env").write_text(f"{tune.MARK}: GO\nHAKMEM_X=1\n")
    tune.check_env(tmp_path / "it.env")
    (tmp_path / "it.env").write_text(f"HAKMEM_X=1\n{tune.MARK}: GO\n")
    with pytest.raises(LabError, match="was not written by hakmem tune"):
        tune.check_env(tmp_path / "it.env")
    with pytest.raises(LabError, match="Is a directory"):
        tune.check_env(tmp_path)


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
        found = search_space.axis(option(*given), ("a", "b"))  # type: ignore[arg-type]
        return found.values if found else ()

    assert values("count", 48, 0, 256) == ("3", "6", "12", "24", "48", "96", "192", "256")
    assert values("count", 32, 1, 256) == ("2", "4", "8", "16", "32", "64", "128", "256")
    assert values("bytes", 4 << 20, 0, 16 << 20) == ("0", "256K", "512K", "1M", "2M", "4M", "8M", "16M")
    assert values("time", 1000, 0, 3600000)[:3] == ("0ms", "62ms", "125ms")
    assert values("flag", 0, 0, 1) == ("0", "1")
    assert values("preset", 0, 0, 4, "a") == ("a", "b")
    assert values("every", IN_BYTES + (64 << 20), 0, IN_BYTES + (1 << 46)) == ()
    assert values("bytes", 0, 0, 1 << 40) == () and values("stats", 0, 0, 2) == ()


@pytest.mark.parametrize("value", ["64M", "1500ms"])
def test_the_library_takes_a_value_for_what_is_shown(value: str) -> None:
    every = libhakmem.options(LIBRARY, {**libhakmem.without_settings(), "HAKMEM_PROFILE_EVERY": value})["profile_every"]
    assert every.origin == "variable" and search_space.written(every, every.value) == value


def test_a_value_is_written_in_its_own_form() -> None:
    every = option("every", 0, 0, IN_BYTES + (1 << 46))
    assert [search_space.written(every, value) for value in (1500, IN_BYTES + (64 << 20))] == ["1500ms", "64M"]
    assert [doctor_checks.shown(every, value) for value in (1500, IN_BYTES + (64 << 20), 0)] == [
        "1500 ms",
        "64.0 MiB",
        "0 ms",
    ]
    assert doctor_checks.range_of(every) == "Give a time, or a size of up to 65536.00 GiB."
    assert doctor_checks.range_of(option("count", 1, 0, 9)) == "Give a value from 0 to 9."


def test_settings_replace_those_of_the_base() -> None:
    base = "lib:a.so L2_RING_CAP=8 HAKMEM_L2_RING_CAP=8 refill_count=4"
    assert search.combined(base, "l2_ring_cap=64") == "lib:a.so refill_count=4 l2_ring_cap=64"
    assert search.combined("", "a=1 b=2") == "a=1 b=2" and search.combined("a=1", "") == "a=1"


def test_a_steady_gain_is_preferred_to_a_lucky_one() -> None:
    assert search._cautious([10.0, 11.0, 9.0]) > search._cautious([-5.0, 60.0, -2.0])


def test_bands_are_searched_only_under_the_usual_preset(hakmem_library: Path) -> None:
    axes = search_space.axes(hakmem_library, {}, [])
    names = [each.name for each in axes]
    assert "preset" in names and "limit" not in names and "stats" not in names
    band = next(each for each in axes if each.name == "tiny_unified_c2")
    preset = next(each for each in axes if each.name == "preset")
    assert search_space.depends(axes, band, {"preset": preset.standard})
    assert not search_space.depends(axes, band, {"preset": "hot_512"})
    assert [each.name for each in search_space.axes(hakmem_library, {"HAKMEM_L2_RING_CAP": "64"}, [])].count(
        "l2_ring_cap"
    ) == 0
    with pytest.raises(LabError, match="no option"):
        search_space.axes(hakmem_library, {}, ["l2_ring_kap"])


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
        metric=results.MetricModel.of(one_run.Metric.parse("time")),
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
    assert found.tried() == search_space.size(found.axes) - 1


# --- the command, without a search ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"), [("90s", 90), ("15m", 900), ("2h", 7200), ("45", 45), (" 1.5m ", 90), ("1s", 1), ("0.5", 0.5)]
)
def test_budgets(text: str, expected: float) -> None:
    assert options.seconds(text, "--budget") == expected


@pytest.mark.parametrize("text", ["", "0", "0.0s", "-1s", "1d", "m", "1 s x"])
def test_budgets_that_are_no_time(text: str) -> None:
    with pytest.raises(LabError) as caught:
        options.seconds(text, "--budget")
    assert caught.value.message == f"--budget {text}: not a time above 0"


@pytest.mark.parametrize("option", ["--trials", "--trial-rounds"])
def test_at_least_one_trial_of_one_round(hakmem: Hakmem, option: str) -> None:
    said = " ".join(hakmem("tune", option, "0", "--", "true", status=2).stderr.replace("│", "").split())
    assert option in said and "greater than or equal to 1" in said
    assert "is too short" in " ".join(
        hakmem("tune", option, "1", "--budget", "0.001s", "--", "true", status=1).stderr.split()
    )


def test_what_is_searched_unless_something_is_said(
    hakmem_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked: list[Any] = []
    monkeypatch.setattr(search.Search, "create", noting(asked, "search"))
    monkeypatch.setattr(tune, "decide", noting(asked, "session"))
    monkeypatch.setattr(tune, "conclude", noting(asked))
    tune.tune(["true", "x"], library=hakmem_library, options="refill_count,, purge_delay", out=tmp_path / "y.jsonl")
    (plan, path), decided, concluded = asked
    assert (plan.command, plan.base, plan.trials, plan.timeout_s) == (["true", "x"], "", None, None)
    assert (plan.budget_s, plan.rounds, plan.runs, plan.threshold) == (900.0, 3, 10, 1.0)
    assert plan.options == ["refill_count", "purge_delay"]
    assert plan.metric.name == "time" and not plan.metric.higher_is_better
    assert plan.shared_object == str(hakmem_library.resolve()) and plan.digest == results.digest(
        hakmem_library.resolve()
    )
    assert path == tmp_path / "y.study" and decided == ("search", tmp_path / "y.jsonl")
    assert concluded == ("search", "session", Path("hakmem.env"), None, False)
    tune.tune(["true"], metric="x=(.*)", lower_is_better=True, seed=0, library=hakmem_library)
    assert (asked[3][0].metric.name, asked[3][0].metric.higher_is_better, asked[3][0].seed) == ("x=(.*)", False, 0)
    tune.tune(["true"], metric="x=(.*)", library=hakmem_library)
    assert asked[6][0].metric.higher_is_better
    with pytest.raises(LabError, match="--objective speed: unknown"):
        tune.tune(["true"], objective="speed", library=hakmem_library)


def noting(into: list[Any], answer: object = None) -> Callable[..., Any]:
    """A function that records its arguments."""

    def called(*given: object) -> object:
        into.append(given)
        return answer

    return called


class Found:
    """The part of a search that `decide` and `conclude` use."""

    def __init__(self, best: Trial | None, trials: Sequence[Trial], path: Path) -> None:
        self.chosen, self.listed, self.path = best, list(trials), path
        self.ran: list[float] = []
        self.retried = 0
        self.plan = SimpleNamespace(
            command=["p", "1"],
            typed="hakmem tune -- p 1",
            runs=7,
            seed=5,
            threshold=2.5,
            timeout_s=9.0,
            retries=2,
            anyway=False,
            metric=results.MetricModel.of(one_run.Metric.parse("cpu")),
            model_dump=lambda mode: {"mode": mode},
        )

    def warm_up(self) -> float:
        return 1.25

    def run(self, seconds: float) -> None:
        self.ran.append(seconds)

    def best(self) -> Trial | None:
        return self.chosen

    def trials(self) -> list[Trial]:
        return self.listed

    def configurations(self, best: Trial) -> list[str]:
        return ["default", best.text]


class Judged:
    """A finished session."""

    def __init__(self, experiment: results.Experiment, path: Path) -> None:
        self.experiment, self.path, self.ran = experiment, path, 0
        self.noted: list[Trial] = []

    def note_trials(self, trials: list[Trial]) -> None:
        self.noted = trials

    def run(self) -> None:
        self.ran += 1

    def __enter__(self) -> Judged:
        return self

    def __exit__(self, *_: object) -> None:
        return None


def trial(number: int, gain: float | None, state: str = "complete") -> Trial:
    gains = [] if gain is None else [gain] * 2
    return Trial(number=number, text=f"x={number}", values={}, state=state, gains=gains, gain=gain)  # type: ignore[arg-type]


def test_the_best_setting_meets_the_default_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Any] = []
    session = Judged(make_experiment({"A": [1.0], "B": [1.0]}), tmp_path / "r.jsonl")
    monkeypatch.setattr(interleaved, "begin", noting(begun, session))
    monkeypatch.setattr(interleaved, "resume", noting(begun, session))
    nothing = Found(None, [trial(1, -3.0)], tmp_path / "s")
    assert tune.decide(nothing, session.path) is None and nothing.ran == [1.25] and not begun  # type: ignore[arg-type]
    found = Found(trial(2, 4.0), [trial(1, -3.0), trial(2, 4.0)], tmp_path / "s")
    assert tune.decide(found, session.path) is session  # type: ignore[arg-type, comparison-overlap]
    ((kind, plan, metric, configurations, path),) = begun
    assert (kind, metric.name, configurations, path) == ("tune", "cpu", ["default", "x=2"], session.path)
    assert (plan.command, plan.typed, plan.runs, plan.seed) == (["p", "1"], "hakmem tune -- p 1", 7, 5)
    assert (plan.threshold, plan.timeout_s, plan.noise_check) == (2.5, 9.0, True)
    assert session.noted == found.listed and session.ran == 1
    session.path.write_text("")  # an interrupted decision continues, without a search
    assert tune.decide(found, session.path) is session and found.ran == [1.25]  # type: ignore[arg-type, comparison-overlap]
    assert begun[1] == (session.path, "tune") and session.ran == 2


def concluded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], other: float | None, json_: bool, env: str = "it.env"
) -> tuple[int, str, str]:
    """(status, standard output, standard error) of a decision in which A takes one second and B takes `other`."""
    session = None
    if other is not None:
        jitter = [1 + 0.001 * (-1) ** place for place in range(8)]
        made = make_experiment({"A": [1.0] * 8, "B": [other * each for each in jitter]})
        made.head.find("B").settings["HAKMEM_X"] = "a b"
        session = Judged(made, tmp_path / "r.jsonl")
    found = Found(None, [trial(1, -3.0), trial(2, None, "failed")], tmp_path / "s.study")
    with pytest.raises(typer.Exit) as caught:
        tune.conclude(found, session, tmp_path / env, None, json_)  # type: ignore[arg-type]
    said = capsys.readouterr()
    return caught.value.exit_code, " ".join(said.out.split()), " ".join(said.err.split())


def test_the_end_of_a_search(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, said, _ = concluded(tmp_path, capsys, 0.5, False)
    assert status == 0 and "2 settings tried, 0 of them abandoned early" in said and "failed under x=2" in said
    assert " GO " in said and "Use them with: set -a; ." in said and "settings:" in said
    text = (tmp_path / "it.env").read_text()
    assert re.fullmatch(
        r"# Written by hakmem tune: GO, \+100\.00 % \(.*\) over the default, 8 rounds\.\n"
        r"# wall time, s, of: bench 1\n# made up, 2026-01-02\nHAKMEM_X='a b'\n",
        text,
    ), text
    assert (tmp_path / "r.html").is_file()
    (tmp_path / "it.env").unlink()
    for other, word, code in ((1.5, "NO-GO", 3), (0.9999, "NO-GO", 3)):
        status, said, _ = concluded(tmp_path, capsys, other, False)
        assert status == code and f"The verdict is {word}: the default stays, and" in said
        assert not (tmp_path / "it.env").exists() and "settings:" not in said
    status, said, _ = concluded(tmp_path, capsys, None, False)
    assert status == 3 and "None of 2 settings was better than the default: the default stays." in said
    assert "results:" not in said


def test_the_end_of_a_search_for_a_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, said, _ = concluded(tmp_path, capsys, 0.5, True)
    document = json.loads(said)
    assert status == 0 and document["verdict"] == document["comparison"]["verdict"] == "GO"
    assert set(document["files"]) == {"search", "results", "page", "settings"}
    assert [each["number"] for each in document["trials"]] == [1, 2] and document["plan"] == {"mode": "json"}
    status, said, _ = concluded(tmp_path, capsys, None, True)
    document = json.loads(said)
    assert (status, document["verdict"], document["comparison"]) == (3, "NO-GO", None)
    assert set(document["files"]) == {"search"}


@pytest.mark.parametrize("json_", [True, False])
def test_the_verdict_is_said_where_the_settings_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], json_: bool
) -> None:
    status, said, complaints = concluded(tmp_path, capsys, 0.5, json_, "nowhere/it.env")
    assert status == 0 and "GO" in said and "settings:" not in said and '"settings"' not in said
    assert f"cannot write {tmp_path}/nowhere/it.env: No such file or directory" in complaints
    assert json_ or "could not be written; the settings are in the results" in said


def test_the_best_five_settings_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    gains = [0.5, 7.0, -3.0, 0.0, 5.0, -2.0, 6.0]
    tried = [trial(place, gain) for place, gain in enumerate(gains)]
    tried += [trial(7, 50.0, "pruned"), trial(8, None, "pruned"), trial(9, None, "failed")]
    tune.show_trials(tried)
    said = capsys.readouterr().out
    assert "10 settings tried, 2 of them abandoned early" in said
    assert re.findall(r"x=(\d)", said) == ["1", "6", "4", "0", "3", "9"]
    assert said.rstrip().endswith("failed under x=9")
    found = tune.trial_gain(trial(1, 5.0))
    assert (found.gain, found.low, found.high) == pytest.approx((5.0, 5.0, 5.0))
