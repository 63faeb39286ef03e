"""Measuring one run: its figures, errors, and leftovers."""

from __future__ import annotations

import ctypes
import dataclasses
import errno
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hakmem_lab.children import shutdown
from hakmem_lab.measure import one_run
from hakmem_lab.measure.one_run import Metric, RunFailed
from hakmem_lab.terminal.errors import LabError
from tests.conftest import killed_after


def shell(text: str, timeout_s: float | None = None) -> one_run.Outcome:
    return one_run.run(one_run.resolve(["sh", "-c", text]), dict(os.environ), timeout_s)


def test_output_and_status() -> None:
    outcome = shell("echo out; echo err >&2; exit 7")
    assert outcome.status == 7 and outcome.output == "out\nerr\n"
    with pytest.raises(RunFailed, match="exit status 7") as caught:
        one_run.require_success(outcome)
    assert "err" in caught.value.advice


def test_a_signal_is_named() -> None:
    outcome = shell("kill -SEGV $$")
    assert outcome.status == 128 + 11
    with pytest.raises(RunFailed, match="SIGSEGV"):
        one_run.require_success(outcome)


def test_a_name_that_the_kernel_cuts_within_a_character(tmp_path: Path) -> None:
    named = tmp_path / "fourteen_bytesü"
    named.symlink_to(shutil.which("sleep") or "")
    with subprocess.Popen([named, "60"]) as running:
        assert one_run._started_at(running.pid) > 0
        running.kill()


def test_memory_is_the_programs_and_not_the_labs() -> None:
    """A child started in the usual way would show this interpreter's memory."""
    ballast = b"x" * (64 << 20)
    small = one_run.run(one_run.resolve(["true"]), dict(os.environ))
    assert 0 < small.peak_rss_bytes < 8 << 20
    assert len(ballast) > small.peak_rss_bytes
    python = "b = bytearray(50 << 20)"
    large = one_run.run(one_run.resolve(["python3", "-S", "-c", python]), dict(os.environ))
    assert 50 << 20 < large.peak_rss_bytes < 120 << 20
    assert large.minor_faults > small.minor_faults


def test_times() -> None:
    asleep = shell("sleep 0.3")
    assert 100 > asleep.wall_s >= 0.3 > asleep.cpu_s
    busy = one_run.run(one_run.resolve(["python3", "-S", "-c", "for i in range(3000000): pass"]), dict(os.environ))
    assert 0 < busy.cpu_s <= busy.wall_s * (os.cpu_count() or 1)


def test_switches_of_both_kinds_are_added() -> None:
    calm = "import resource, time; [time.sleep(0.001) for _ in range(20)]; u = resource.getrusage(0); "
    outcome = one_run.run(
        one_run.resolve(["python3", "-S", "-c", calm + "print(u.ru_nvcsw, u.ru_nivcsw)"]), dict(os.environ)
    )
    own, others = map(int, outcome.output.split())
    assert 20 <= own + others <= outcome.switches <= own + others + 200


def test_environment_is_exactly_the_given_one() -> None:
    outcome = one_run.run(one_run.resolve(["env"]), {"A": "1 2", "B": "x=y"})
    assert sorted(outcome.output.split("\n")) == ["", "A=1 2", "B=x=y"]


def test_timeout_ends_the_program_and_its_children() -> None:
    began, before = time.monotonic(), shutdown.children()
    with pytest.raises(RunFailed, match="no end after 2 s") as caught:
        shell("echo a result; echo a complaint >&2; sleep 60 & sleep 60", timeout_s=2)
    assert str(caught.value.advice) == "Its last words:\na complaint"
    assert time.monotonic() - began < 20
    assert shutdown.children() <= before


def launcher(folder: Path, monkeypatch: pytest.MonkeyPatch, before: str = "", after: str = "") -> None:
    """Puts a setsid into PATH that does something before it makes the session, or after it has started the program."""
    path = folder / "setsid"
    path.write_text(f'#!/bin/sh\nshift\n({before} exec {shutil.which("setsid")} "$@") &\n{after}\n')
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


def test_timeout_ends_a_program_whose_session_comes_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the time can be up before the launcher's child has made the session that is to be ended."""
    launcher(tmp_path, monkeypatch, before="sleep 1;")
    began = time.monotonic()
    with pytest.raises(RunFailed, match="no end after"):
        shell("sleep 60", timeout_s=0.3)
    assert time.monotonic() - began < 20


def test_a_program_that_ends_at_once_is_told_from_what_it_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine the program can have ended, and its children be ours, before the launcher has."""
    launcher(tmp_path, monkeypatch, after="exec sleep 1")
    outcome = shell("sleep 60 & echo $!; exit 3")
    assert outcome.status == 3
    with pytest.raises(ProcessLookupError):
        os.kill(int(outcome.output), 0)


def test_what_a_program_leaves_behind_is_ended() -> None:
    outcome = shell("sleep 60 & echo $!")
    pid = int(outcome.output)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


DAEMON = """
import os, sys, time
told, telling = os.pipe()
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            print(os.getpid(), flush=True)
            os.write(telling, b"x")
            time.sleep(float(sys.argv[1]))
        os._exit(0)
    os.wait()
    os.read(told, 1)
"""


def test_daemons_end_with_the_run() -> None:
    """They have their own sessions, and their parents have ended."""
    before = shutdown.children()
    for _ in range(8):
        outcome = one_run.run(one_run.resolve([sys.executable, "-c", DAEMON, "60"]), dict(os.environ))
        pids = [int(each) for each in outcome.output.split()]
        assert len(pids) == 3
        for pid in pids:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
    assert shutdown.children() <= before


def test_sessions_that_end_later_do_not_confuse_the_next_run() -> None:
    for length in ("0.01", "0.02", "0.05", "0.1"):
        for _ in range(5):
            assert one_run.run(one_run.resolve([sys.executable, "-c", DAEMON, length]), dict(os.environ)).status == 0
            assert shell("exit 3").status == 3


def test_children_from_before_are_left_alone() -> None:
    with killed_after(["sleep", "60"]) as mine:
        assert shell("sleep 60 & exit 3").status == 3
        assert mine.poll() is None


def test_no_such_program() -> None:
    with pytest.raises(LabError, match="no such program") as caught:
        one_run.resolve(["/nowhere/bench"])
    assert "./dev build" in str(caught.value.advice)
    with pytest.raises(LabError, match="no program given"):
        one_run.resolve([])
    with pytest.raises(LabError, match="is not executable") as caught:
        one_run.resolve([__file__])
    assert "./dev build" not in str(caught.value.advice)


def outcome_with(output: str) -> one_run.Outcome:
    return one_run.Outcome(0, 2.0, 0.5, 0.25, 3 << 20, 1, 0, 0, output)


def test_metrics() -> None:
    outcome = outcome_with("ops_per_s=1,234.5 x\n")
    assert Metric.parse("time").of(outcome) == 2.0
    assert Metric.parse("cpu").of(outcome) == 0.75
    assert Metric.parse("rss").of(outcome) == 3.0
    printed = Metric.parse("ops_per_s=([0-9.,]+)")
    assert printed.of(outcome) == 1234.5 and printed.higher_is_better
    assert not Metric.parse("t=(.*)", lower_is_better=True).higher_is_better
    assert not Metric.parse("time").higher_is_better


def refusal(metric: str, outcome: one_run.Outcome) -> tuple[str, str | None]:
    with pytest.raises(LabError) as caught:
        Metric.parse(metric).of(outcome)
    return caught.value.message, caught.value.advice


def test_time_and_memory_in_one() -> None:
    outcome = one_run.Outcome(0, 2.0, 0.5, 0.25, 8 << 20, 1, 0, 0, "")
    assert Metric.parse("mix").of(outcome) == 4.0
    assert Metric.parse("mix").unit == "√(s·MiB)"


def test_numbers_that_a_program_prints() -> None:
    assert Metric.parse("^x=(.*)$").of(outcome_with("y=1\nx=0.25\nz=2\n")) == 0.25  # a line is a line
    assert refusal("x=(.*)", outcome_with("one\ntwo\n")) == (
        "the program's output has no match for --metric x=(.*)",
        "Its last words:\none\ntwo",
    )
    assert refusal("x=(.*)", outcome_with("")) == (
        "the program's output has no match for --metric x=(.*)",
        "It printed nothing.",
    )
    assert refusal("x=(.*)", outcome_with("x=abc"))[0] == "--metric x=(.*) matches 'abc', which is not a number"
    for given, said in (("0", "0"), ("-3", "-3"), ("inf", "inf"), ("nan", "nan")):
        message = f"--metric x=(.*) gives {said}; ratios need numbers above 0"
        assert refusal("x=(.*)", outcome_with(f"x={given}"))[0] == message


def test_latencies_of_a_client() -> None:
    outcome = dataclasses.replace(outcome_with(""), quantiles={"count": 10.0, "p50": 1.5, "p99": 7.0})
    assert Metric.parse("p99").of(outcome) == 7.0 and Metric.parse("p50").of(outcome) == 1.5
    assert not Metric.parse("p99").printed and Metric.parse("p(99)").printed
    assert refusal("p99.9", outcome) == (
        "the client's latencies are too few for --metric p99.9",
        "They give p50, p99.",
    )
    assert refusal("p99", outcome_with("")) == (
        "--metric p99 needs the latencies of a client",
        "Give --client and --latency REGEX.",
    )


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (1, "exit status 1"),
        (128, "exit status 128"),
        (137, "ended by signal 9 (SIGKILL)"),
        (129, "ended by signal 1 (SIGHUP)"),
        (128 + 63, "ended by signal 63 (unknown)"),
    ],
)
def test_failures_are_said(status: int, message: str) -> None:
    outcome = dataclasses.replace(outcome_with("".join(f"line {i}\n" for i in range(99))), status=status)
    with pytest.raises(one_run.RunFailed) as caught:
        one_run.require_success(outcome)
    assert caught.value.message == message
    advice = (caught.value.advice or "").splitlines()
    assert advice[0] == "Its last words:" and advice[-1] == "line 98" and len(advice) == 1 + one_run.LAST_LINES
    assert one_run.require_success(outcome_with("x")) == outcome_with("x")


def test_what_has_ended_already_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (ProcessLookupError, PermissionError):

        def refuse(*_: object, error: type[OSError] = error) -> None:
            raise error

        monkeypatch.setattr(os, "kill", refuse)
        monkeypatch.setattr(os, "killpg", refuse)
        shutdown.kill_tree(4194304 + 1)
        one_run._end_session(4194304 + 1)


@pytest.mark.parametrize("text", ["ops=[0-9]", "(a)(b)", "("])
def test_bad_metrics(text: str) -> None:
    with pytest.raises(LabError, match="--metric"):
        Metric.parse(text)


@pytest.mark.parametrize(("pattern", "output"), [("x=(.*)", "y=3"), ("x=(.*)", "x=abc"), ("x=(.*)", "x=0")])
def test_values_that_cannot_be_used(pattern: str, output: str) -> None:
    with pytest.raises(LabError, match="--metric"):
        Metric.parse(pattern).of(outcome_with(output))


def test_wrong_metrics_are_put_right() -> None:
    example = "Example: --metric 'ops_per_s=([0-9.]+)'"
    for text, start in (
        ("(", "--metric (: neither one of time, cpu, rss, mix, gib_seconds, instructions nor a regular expression: "),
        ("(a)(b)", "--metric (a)(b): needs exactly one group around the number, has 2"),
        ("ops", "--metric ops: needs exactly one group around the number, has 0"),
    ):
        with pytest.raises(LabError) as caught:
            Metric.parse(text)
        assert caught.value.message.startswith(start) and caught.value.advice == example


def test_a_machine_that_lacks_what_starts_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    true = one_run.resolve(["true"])
    for missing in ("setsid", "env"):
        monkeypatch.setattr(
            shutil, "which", lambda name, missing=missing: None if name == missing else f"/usr/bin/{name}"
        )
        with pytest.raises(LabError) as caught:
            one_run.run(true, {})
        assert caught.value.message == "setsid or env is missing; both start the measured program"
        assert caught.value.advice == "Install util-linux and coreutils."


def test_the_launcher_has_no_environment_but_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library preloaded into the program must not be loaded into its launcher."""
    asked: list[dict[str, Any]] = []
    start = subprocess.Popen

    def noting(command: list[str], **how: Any) -> subprocess.Popen[bytes]:
        asked.append(how)
        return start(command, **how)

    monkeypatch.setattr(subprocess, "Popen", noting)
    monkeypatch.setenv("LD_PRELOAD", "")
    assert shell("exit 0").status == 0
    assert asked[-1]["env"] == {"PATH": os.environ["PATH"]} and asked[-1]["stdin"] == subprocess.DEVNULL
    true = one_run.resolve(["true"])
    monkeypatch.delenv("PATH")
    one_run.run(true, {})
    assert asked[-1]["env"] == {"PATH": os.defpath}


def test_input_comes_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("what it reads")
    cat = one_run.resolve(["cat"])
    assert one_run.run(cat, {}, source=tmp_path / "in").output == "what it reads"
    assert one_run.run(cat, {}).output == ""
    with pytest.raises(LabError) as caught:
        one_run.run(cat, {}, source=tmp_path / "none")
    assert caught.value.message == f"--input {tmp_path / 'none'}: No such file or directory"
    assert caught.value.advice == "Give a file that can be read."


def test_a_kernel_that_does_not_let_it_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Refusing:
        def __init__(self, name: object, use_errno: bool) -> None:
            assert name is None and use_errno

        def prctl(self, *arguments: int) -> int:
            asked.append(arguments)
            return -1

    monkeypatch.setattr(ctypes, "CDLL", Refusing)
    monkeypatch.setattr(ctypes, "get_errno", lambda: errno.EPERM)
    with pytest.raises(LabError) as caught:
        shutdown.become_reaper()
    assert asked == [(36, 1, 0, 0, 0)]  # PR_SET_CHILD_SUBREAPER, as prctl(2) has it
    assert caught.value.message == "cannot watch over programs: prctl: Operation not permitted"


def test_when_a_process_began(tmp_path: Path) -> None:
    """By the kernel's ticks, whatever its name is."""
    program = tmp_path / "a) b ) S"
    shutil.copy(one_run.resolve(["sleep"])[0], program)
    with killed_after([program, "60"]) as process:
        until = time.monotonic() + 20
        while "a) b" not in Path(f"/proc/{process.pid}/comm").read_text() and time.monotonic() < until:
            time.sleep(0.01)
        ticks = one_run._started_at(process.pid) / os.sysconf("SC_CLK_TCK")
        since_boot = float(Path("/proc/uptime").read_text().split()[0])
    assert 0 <= since_boot - ticks < 30


def test_the_program_is_the_session_that_began_first(monkeypatch: pytest.MonkeyPatch) -> None:
    began = {5: 70, 6: 30, 7: 30, 8: 10}
    sessions = {5: 5, 6: 6, 7: 7, 8: 1, 0: 1}
    monkeypatch.setattr(shutdown, "children", lambda: {5, 6, 7, 8, 9})
    monkeypatch.setattr(one_run, "_started_at", began.__getitem__)
    monkeypatch.setattr(os, "getsid", sessions.__getitem__)
    assert one_run._leader_among_new({9}) == 6
    sessions.update({5: 2, 6: 2, 7: 2, 8: 2})  # none has a leader, and none was just started
    with pytest.raises(one_run.RunFailed) as caught:
        one_run._leader_among_new({9})
    assert caught.value.message == "the started program was not found"


def test_grandchildren_end_too() -> None:
    outcome = shell("sh -c 'sh -c \"echo \\$\\$; exec sleep 60\" & echo $$; sleep 0.2'")
    for pid in (int(each) for each in outcome.output.split()):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
