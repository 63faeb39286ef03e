"""numpy, imported without the threads that its linear algebra starts, one per processor.

Nothing here uses linear algebra. The threads spin while the import runs, and take processor time from the process that
is inspected. The variable that prevents them is reset at once, so that no program started from here inherits it."""

from __future__ import annotations

import os
from typing import Any

__all__ = ["column", "columns", "np"]
VARIABLE = "OPENBLAS_NUM_THREADS"

_before = os.environ.get(VARIABLE)
os.environ[VARIABLE] = "1"
try:
    import numpy as np
finally:
    if _before is None:
        del os.environ[VARIABLE]
    else:
        os.environ[VARIABLE] = _before


def column(rows: Any, at: int, dtype: Any) -> Any:
    """A field of each row of bytes."""
    return np.ascontiguousarray(rows[:, at : at + np.dtype(dtype).itemsize]).view(dtype)[:, 0]


def columns(rows: Any, at: Any, dtype: Any) -> Any:
    """The same of several fields, a column for each."""
    return np.ascontiguousarray(rows[:, at[:, None] + np.arange(np.dtype(dtype).itemsize)]).view(dtype)[:, :, 0]
