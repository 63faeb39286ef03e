"""A look that is taken again and again, by a thread, while something else runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

Self = TypeVar("Self", bound="Beside")


class Beside:
    """Looks while its `with` block runs. `look` returns the seconds until the next look; None: there is no more."""

    def __init__(self, look: Callable[[], float | None], first_s: float = 0.0) -> None:
        self._look_s, self._first_s = look, first_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._looks, daemon=True)

    def __enter__(self: Self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _looks(self) -> None:
        pause: float | None = self._first_s
        while pause is not None and not self._ended.wait(pause):
            pause = self._look_s()
