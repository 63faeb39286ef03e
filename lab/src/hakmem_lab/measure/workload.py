"""One run of a plan: preparation, the program with its input, clean-up.

Only the program is measured.  A failed preparation or clean-up ends the experiment, since the next measurement would be
of something else."""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from hakmem_lab.children import shutdown
from hakmem_lab.measure import one_run
from hakmem_lab.measure.machine_load import Meter
from hakmem_lab.measure.results import MachineLoad, Plan
from hakmem_lab.terminal.errors import LabError

if TYPE_CHECKING:
    from hakmem_lab.measure.allocator_check import AllocatorCheck

Made = TypeVar("Made")


def retried(run: Callable[[], Made], retries: int, note: Callable[[LabError, str], object]) -> Made:
    """The result of a run, which is repeated at most `retries` times if the program fails.

    note: called for each failure that is followed by another try, with the number of that try."""
    for number in range(1, retries + 1):
        try:
            return run()
        except one_run.RunFailed as error:
            note(error, f"{number} of {retries}")
    return run()


def run(
    plan: Plan,
    command: Sequence[str],
    environment: Mapping[str, str],
    watch: AllocatorCheck | None = None,
    over_time: bool = False,
) -> tuple[one_run.Outcome, MachineLoad | None]:
    """Runs the resolved command once, and cleans up whatever its exit status.

    watch: examines the program's processes meanwhile."""
    _hook("--prepare", plan.prepare)
    try:
        meter = Meter()
        source = Path(plan.input) if plan.input is not None else None
        with watch or contextlib.nullcontext():
            outcome = _measured(plan, command, environment, source, watch, over_time)
        beside = meter.stop(outcome.cpu_s)
    finally:
        _hook("--cleanup", plan.cleanup)
    return outcome, beside


def _measured(
    plan: Plan,
    command: Sequence[str],
    environment: Mapping[str, str],
    source: Path | None,
    watch: AllocatorCheck | None,
    over_time: bool,
) -> one_run.Outcome:
    """The program alone, or as the server of a client."""
    if plan.client is None:
        beside = one_run.MemoryOverTime if over_time else contextlib.nullcontext
        return one_run.run(command, environment, plan.timeout_s, source, beside)
    from hakmem_lab.measure import latencies, server_runner

    aside = watch.without if watch is not None else set()
    outcome = server_runner.run(command, environment, plan.client, plan.ready or "", plan.timeout_s, source, aside)
    if plan.latency is None or outcome.status != 0:
        return outcome
    return dataclasses.replace(outcome, quantiles=latencies.quantiles(plan.latency, outcome.output))


def _hook(option: str, command: str | None) -> None:
    """Runs a shell command in the lab's own environment; a LabError if it fails."""
    if command is None:
        return
    shutdown.ready()
    shutdown.become_reaper()
    before = shutdown.children()
    with tempfile.TemporaryFile() as output, shutdown.otherwise(shutdown.end_writers(output)):
        words = ["/bin/sh", "-c", command]
        shell = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        try:
            shell.wait()
        except BaseException:
            shutdown.end_descendants(before)
            raise
        output.seek(0)
        said = output.read().decode(errors="replace")
    if shell.returncode != 0:
        raise LabError(f"{option} '{command}': exit status {shell.returncode}", one_run.last_words(said))
