"""Shared by the tests: experiments made of numbers, and the command run as a user runs it."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from hakmem_lab.measure.results import NOISE, Experiment, Head, Machine, MetricModel, Plan, Run, Series
from hakmem_lab.target import libhakmem
from hakmem_lab.terminal import errors

Values = Mapping[str, Sequence[float]]

# A shell that starts the tests in the background, or nohup, makes them and their children ignore these; tests that send
# one would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def make_run(number: int, label: str, value: float, position: int = 0) -> Run:
    return Run(
        round=number,
        position=position,
        label=label,
        value=value,
        at=float(number),
        wall_s=value,
        cpu_user_s=value,
        cpu_system_s=0.0,
        peak_rss_bytes=1 << 20,
        minor_faults=100,
        major_faults=0,
        switches=1,
    )


def make_experiment(
    values: Values,
    *,
    runs: int | None = None,
    higher: bool = False,
    threshold: float = 1.0,
    prediction: tuple[float, float] | None = None,
    max_runs: int | None = None,
    points: Sequence[dict[str, str]] | None = None,
) -> Experiment:
    """An experiment whose runs have these values, by label."""
    count = len(next(iter(values.values())))
    series = [
        Series(
            label=label,
            text="",
            allocator="hakmem",
            library=None,
            digest="",
            description="made up",
            settings={},
            point=points[place] if points else {},
        )
        for place, label in enumerate(values)
    ]
    head = Head(
        kind="sweep" if points else "ab",
        created=datetime(2026, 1, 2, tzinfo=timezone.utc),
        machine=Machine(facts={"processor": "none"}, cpus=1, memory_bytes=1 << 30, page_bytes=4096, versions={}),
        plan=Plan(
            command=["bench", "1"],
            typed="hakmem ab -- bench 1",
            runs=runs or count,
            seed=1,
            threshold=threshold,
            prediction=prediction,
            max_runs=max_runs,
            noise_check=NOISE in values,
        ),
        metric=MetricModel(name="time" if not higher else "ops=(.*)", higher_is_better=higher, unit=""),
        series=series,
    )
    listed = [make_run(place + 1, label, each[place]) for place in range(count) for label, each in values.items()]
    return Experiment(head=head, runs=listed)


@pytest.fixture(scope="session")
def hakmem_library() -> Path:
    """The built library; without it the tests are skipped."""
    try:
        return libhakmem.find()
    except errors.LabError as error:
        pytest.skip(f"no library: {error.message}; ./dev build")


@contextmanager
def killed_after(command: Sequence[str | Path], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Popen's own `with` waits for ever for a program that a failed test has left behind."""
    with subprocess.Popen(command, **options) as child:
        try:
            yield child
        finally:
            child.kill()


Compiled = Callable[..., Path]


@pytest.fixture(scope="session")
def compiled(hakmem_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """Compiles a C program into a folder of its own."""
    compiler = shutil.which("cc") or pytest.skip("no C compiler")

    def compile_it(name: str, source: str, *flags: str) -> Path:
        folder = tmp_path_factory.mktemp(name)
        (folder / f"{name}.c").write_text(source)
        command = [compiler, "-g", "-O1", "-fno-builtin", f"{name}.c", "-o", name, *flags]
        subprocess.run(command, cwd=folder, check=True)
        return folder / name

    return compile_it


Hakmem = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def hakmem(tmp_path: Path) -> Hakmem:
    """Runs the command in an empty folder; results go there."""

    def execute(*arguments: str, status: int | None = 0) -> subprocess.CompletedProcess[str]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("HAKMEM_")}
        done = subprocess.run(
            [sys.executable, "-m", "hakmem_lab", *arguments],
            cwd=tmp_path,
            env={**environment, "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        if status is not None:
            assert done.returncode == status, done.stdout + done.stderr
        return done

    return execute


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of inside.py, which obeys letters and reports its blocks."""
    from tests import inside

    folder = tmp_path_factory.mktemp("program")
    for each in (folder, *folder.parents):
        if each == Path(tempfile.gettempdir()) or each.owner() != folder.owner():
            break
        each.chmod(0o755)  # another user must be able to start it
    return inside.compile_c(folder, inside.PROGRAM)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Simulates a full disk for this process and its children."""
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, former[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, former)
