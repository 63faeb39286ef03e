"""The error that ends a command with a message instead of a traceback, and the exit statuses that commands share."""

from __future__ import annotations

# A verdict is part of the exit status, so that a script can branch on it.
GO = 0
ERROR = 1
USAGE = 2  # click's own
NO_GO = 3
INCONCLUSIVE = 4
INTERRUPTED = 130


class LabError(Exception):
    """A mistake that the user can put right: the message says what is wrong, the advice what to do about it."""

    def __init__(self, message: str, advice: str = "", status: int = ERROR) -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice
        self.status = status
        self.case = ""  # the case that it is about, if there are several


class UsageError(LabError):
    """A wrong command line."""

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(message, advice, USAGE)
