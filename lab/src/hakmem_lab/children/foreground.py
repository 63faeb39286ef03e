"""A program as a child that is given what this process is sent, so that somebody is still there when it ends."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Protocol

from hakmem_lab.children import shutdown

ENDING = {signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP}
PASSED_ON = ENDING | {signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGWINCH}
PYTHONS = (signal.SIGPIPE, signal.SIGXFSZ)  # Python ignores them, and programs would inherit that


class Watcher(Protocol):
    """Looks at the program with this id while the block of its `with` runs."""

    def __call__(self, pid: int, /) -> AbstractContextManager[object]: ...


def restore_signals() -> None:
    """Before this process becomes another program."""
    for each in PYTHONS:
        signal.signal(each, signal.SIG_DFL)


def run(path: Path, words: Sequence[str], environment: Mapping[str, str], watch: Watcher) -> tuple[int, int]:
    """Runs a program; its id, and its exit status, below 0 for the signal that has ended it.

    It has the terminal with this process, and gets the terminal's signals itself. Those that somebody sends to this
    process are passed on: those that are to end it go to all its descendants, as the terminal's do."""
    shutdown.ready()
    waited = PASSED_ON | {signal.SIGCHLD}
    former = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    try:
        pid = os.posix_spawn(path, list(words), environment, setsigmask=former, setsigdef=PYTHONS)
        with shutdown.otherwise({"process": pid}), watch(pid):
            while True:
                got = signal.sigwaitinfo(waited)
                if got.si_signo == signal.SIGCHLD:
                    ended, status = os.waitpid(pid, os.WNOHANG)
                    if ended:
                        return pid, os.waitstatus_to_exitcode(status)
                elif got.si_code <= 0:  # not the kernel's: a process has sent it
                    for each in shutdown.descendants(pid) if got.si_signo in ENDING else [pid]:
                        with suppress(ProcessLookupError, PermissionError):
                            os.kill(each, got.si_signo)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


def end_as(status: int) -> int:
    """The exit status as a shell has it; a signal that has ended the program ends this process as well."""
    if status >= 0:
        return status
    import resource

    sys.stdout.flush()
    sys.stderr.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program has left its core
    with suppress(OSError):  # SIGKILL and SIGSTOP have no action to set
        signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
    return 128 - status
