"""Nothing that a command started keeps running, and nothing that it switched on stays on, however the command ends: a
cancelled CI job sends SIGTERM, a closed terminal SIGHUP, and an impatient user SIGKILL."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hakmem_lab.children import shutdown
from hakmem_lab.children.cleanup_process import fields
from hakmem_lab.profile.remote_control import Profiler
from hakmem_lab.target import libhakmem
from tests.inside import clean_environment, compile_c, running

LONG_S = 60.0
NUMBERS = itertools.count(os.getpid() * 1000)
AB = ("ab", "--a", "", "--b", "alloc:system", "--warmup", "0")
COMMANDS = {
    "ab": (*AB, "--", "SLEEP"),
    "ab of cases": (*AB, "--param", "x=1,2", "--", "env", "X={x}", "SLEEP"),
    "compare of a daemon": ("compare", "--alloc", "system,hakmem", "--", "sh", "-c", "(setsid SLEEP &) & SLEEP; true"),
    "sweep": ("sweep", "--option", "refill_count", "--values", "8,16", "--", "SLEEP"),
    "tune": ("tune", "--budget", "600s", "--", "SLEEP"),
    "ab while it prepares": (*AB, "--prepare", "SLEEP; true", "--", "true"),
    "ab of a server": (*AB, "--client", "SLEEP; true", "--ready", "0.1s", "--", "SLEEP"),
    "run": ("run", "--", "SLEEP"),
    "run with statistics": ("run", "--stats", "text", "--", "sh", "-c", "SLEEP; true"),
    "profile": ("profile", "--", "SLEEP"),
    "leaks": ("leaks", "--", "sh", "-c", "SLEEP; true"),
}
INTERRUPTED = ("ab", "ab of cases", "compare of a daemon", "sweep", "tune", "ab while it prepares", "ab of a server")
pytestmark = pytest.mark.usefixtures("hakmem_library")


def sleeping(seconds: str) -> list[int]:
    """The `sleep` processes with this argument."""
    found = []
    for each in Path("/proc").iterdir():
        try:
            words = (each / "cmdline").read_bytes().split(b"\0") if each.name.isdigit() else []
        except OSError:
            continue
        if words[:2] and words[0].endswith(b"sleep") and words[1] == seconds.encode():
            found.append(int(each.name))
    return found


def until(what: str, is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG_S
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    environment = clean_environment() | {libhakmem.VARIABLE: str(libhakmem.find())}
    return subprocess.Popen(
        [sys.executable, "-m", "hakmem_lab", *words],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


CASES = [(name, signal.SIGTERM) for name in COMMANDS]
CASES += [(name, signal.SIGHUP) for name in ("ab", "run with statistics", "profile")]
CASES += [(name, signal.SIGKILL) for name in COMMANDS if name != "run"]


@pytest.mark.parametrize(("name", "number"), CASES)
def test_programs_end_with_the_command(tmp_path: Path, name: str, number: signal.Signals) -> None:
    if "tune" in name:
        pytest.importorskip("optuna")
    seconds = f"9{next(NUMBERS)}"
    words = [each.replace("SLEEP", f"sleep {seconds}") for each in COMMANDS[name]]
    if words[-1] == f"sleep {seconds}":
        words[-1:] = words[-1].split()
    expected = " ".join(words).count(seconds)
    command = start(tmp_path, *words)
    try:
        until("the programs are started", lambda: len(sleeping(seconds)) == expected)
        command.send_signal(number)
        said = command.communicate(timeout=LONG_S)[1]
        until("the programs have ended", lambda: not sleeping(seconds))
    finally:
        command.kill()
        for pid in sleeping(seconds):
            os.kill(pid, signal.SIGKILL)
    if number != signal.SIGKILL and name in INTERRUPTED:
        assert command.returncode == 130 and "interrupted" in said, said
    elif name.startswith("run"):
        assert command.returncode == -number


def test_a_command_killed_as_its_program_starts(tmp_path: Path) -> None:
    """The program is the first to run after its start, and kills the command at once."""
    seconds = f"9{next(NUMBERS)}"
    source = f"""
import contextlib, os
from pathlib import Path
from hakmem_lab.children import foreground, shutdown
shutdown.ready()
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
os.sched_setscheduler(0, os.SCHED_IDLE | os.SCHED_RESET_ON_FORK, os.sched_param(0))
words = ["sh", "-c", "kill -9 $PPID; echo $$; exec sleep {seconds}"]
foreground.run(Path("/bin/sh"), words, os.environ, lambda pid: contextlib.nullcontext())
"""
    try:
        done = subprocess.run(
            [sys.executable, "-c", source], cwd=tmp_path, stdout=subprocess.PIPE, timeout=LONG_S, check=False
        )
    finally:
        for pid in sleeping(seconds):
            os.kill(pid, signal.SIGKILL)
    assert done.returncode == -signal.SIGKILL


def test_a_later_file_in_the_place_of_an_ended_one(tmp_path: Path) -> None:
    """A file that nobody has open any more leaves its inode to the next: programs that write there are not this
    command's."""
    source = f"""
import os, subprocess, sys, tempfile
from hakmem_lab.children import shutdown
shutdown.ready()
with tempfile.TemporaryFile(dir={str(tmp_path)!r}) as file:
    former = os.fstat(file.fileno()).st_ino
    kept = shutdown.otherwise(shutdown.end_writers(file))
    kept.__enter__()
later = [tempfile.TemporaryFile(dir={str(tmp_path)!r}) for _ in range(200)]
other = next((each for each in later if os.fstat(each.fileno()).st_ino == former), later[0])
print(subprocess.Popen(["sleep", "60"], stdout=other, stderr=other).pid, min(shutdown._Cleanup.pids), flush=True)
os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True, check=True)
    program, cleanup = map(int, done.stdout.split())
    try:
        until("the cleanup has ended", lambda: not fields(cleanup))
        assert fields(program)
    finally:
        os.kill(program, signal.SIGKILL)


LOOP = """
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(void)
{
    puts("ready");
    fflush(stdout);
    for (;; usleep(1000))
        for (int i = 0; i < 1000; i++)
            free(malloc(10 * i));
}
"""


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(tmp_path_factory.mktemp("loop"), LOOP)


@pytest.fixture
def looping(loop: Path) -> Iterator[int]:
    with running(loop) as process:
        yield process.pid


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL])
def test_a_profile_ends_with_the_command(tmp_path: Path, looping: int, number: signal.Signals) -> None:
    profiler = Profiler(looping)
    command = start(tmp_path, "profile", str(looping), "--seconds", "600", "-o", str(tmp_path / "a.json"))
    try:
        assert command.stderr and "is profiled for" in command.stderr.readline()
        assert profiler.counts
        command.send_signal(number)
        command.wait(LONG_S)
        until("the profile is off", lambda: not profiler.counts)
    finally:
        command.kill()
    if number != signal.SIGKILL:  # the samples until then are shown
        assert command.returncode == 0 and (tmp_path / "a.json").is_file()


def test_a_profile_can_be_switched_off_and_is_told_of(tmp_path: Path, looping: int) -> None:
    def said(*words: str) -> str:
        out, err = start(tmp_path, *words).communicate(timeout=LONG_S)
        return (out + err).replace("\n", " ")

    pid = str(looping)
    assert f"no profile is on in process {pid}" in said("profile", pid, "--off")
    assert "heap profile is on" not in said("doctor", pid) + said("stats", pid)
    assert "blocks from before are not in it" in said("profile", pid, "--seconds", "0", "--leave-on")
    assert Profiler(looping).counts
    assert "warn profile: a heap profile is on, started while the process ran" in said("doctor", pid)
    assert f"hakmem profile {pid} --off stops it." in said("doctor", pid)
    assert f"A heap profile is on: hakmem profile --off {pid} stops it." in said("stats", pid)
    assert "is already on in process" in said("profile", pid)
    assert Profiler(looping).counts  # this command did not switch it on
    assert f"the profile of process {pid} is off" in said("profile", pid, "--off")
    assert not Profiler(looping).counts
    assert "--off takes a process id" in said("profile", "--off", "x")


def test_a_profile_that_the_process_was_started_with_is_no_warning(tmp_path: Path, loop: Path) -> None:
    with running(loop, more={"HAKMEM_PROFILE": f"1:{tmp_path}/x"}) as process:
        out = start(tmp_path, "doctor", str(process.pid)).communicate(timeout=LONG_S)[0]
    assert "ok   profile: a heap profile is on, by the option profile" in out


def test_an_abandoned_request_is_withdrawn(tmp_path: Path) -> None:
    """A process that answers late must not begin a profile that no command would end."""
    source = '#include <stdio.h>\nint main(void) { puts("ready"); fflush(stdout); return getchar(); }\n'
    idle = compile_c(tmp_path, source)
    with running(idle) as process:
        profiler = Profiler(process.pid)
        command = start(tmp_path, "profile", str(process.pid), "--seconds", "600")
        until("the request is made", lambda: profiler.half("request") != 0)
        command.send_signal(signal.SIGTERM)
        assert command.wait(LONG_S) == 130
        assert profiler.half("request") == 0 and not profiler.counts


def test_a_signal_waits_until_things_are_in_order() -> None:
    former = {each: signal.getsignal(each) for each in shutdown.SIGNALS}
    done = []
    try:
        shutdown.obey()
        with pytest.raises(KeyboardInterrupt), shutdown.undisturbed():
            with shutdown.undisturbed():
                os.kill(os.getpid(), signal.SIGTERM)
                done.append("inner")
            done.append("outer")
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGHUP)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        shutdown.obey()  # as under nohup
        os.kill(os.getpid(), signal.SIGHUP)
    finally:
        for each, handler in former.items():
            signal.signal(each, handler)
    assert done == ["inner", "outer"]
