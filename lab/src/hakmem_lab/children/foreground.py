"""Runs a program as a child and passes signals on to it, for commands that have work to do after it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Protocol

from hakmem_lab.children import shutdown

ENDING = {signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP}
PASSED_ON = ENDING | {signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGWINCH}
PYTHONS = (signal.SIGPIPE, signal.SIGXFSZ)  # Python ignores them, and programs would inherit the disposition


class Watcher(Protocol):
    """Watches the program with this id while its `with` block runs."""

    def __call__(self, pid: int, /) -> AbstractContextManager[object]: ...


def restore_signals() -> None:
    """Undoes Python's signal settings before this process executes another program."""
    for each in PYTHONS:
        signal.signal(each, signal.SIG_DFL)


def pass_on(number: int, pid: int) -> None:
    """Sends a signal to a program, and one that ends a process to all of its descendants too."""
    for each in shutdown.descendants(pid) if number in ENDING else [pid]:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(each, number)


def run(path: Path, words: Sequence[str], environment: Mapping[str, str], watch: Watcher) -> tuple[int, int]:
    """Runs a program; returns its id and its exit status, below 0 for the signal that ended it.

    It shares the terminal with this process and gets the terminal's signals itself. Signals that another process sends
    to this one are passed on; those that end a process go to all of the program's descendants, as the terminal's do."""
    shutdown.ready()
    waited = PASSED_ON | {signal.SIGCHLD}
    former = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    try:
        with shutdown.ended_otherwise() as announce:

            def before() -> None:
                announce()
                shutdown.disobey()
                signal.pthread_sigmask(signal.SIG_SETMASK, former)

            program = subprocess.Popen(  # which gives the program the usual dispositions of PYTHONS
                words,
                executable=path.absolute(),  # a name alone would be looked for in PATH
                env=environment,
                close_fds=False,
                preexec_fn=before,  # noqa: PLW1509 (this process has no other Python threads yet)
            )
            with watch(program.pid):
                while (status := program.poll()) is None:
                    got = signal.sigwaitinfo(waited)
                    if got.si_signo != signal.SIGCHLD and got.si_code <= 0:  # a process sent it, not the kernel
                        pass_on(got.si_signo, program.pid)
                return program.pid, status
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


def end_as(status: int) -> int:
    """The exit status as a shell would give it; a signal that ended the program ends this process as well."""
    if status >= 0:
        return status
    import resource

    sys.stdout.flush()
    sys.stderr.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program has written its own core
    with suppress(OSError):  # SIGKILL and SIGSTOP have no action to set
        signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
    return 128 - status
