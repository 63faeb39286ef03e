"""numpy, imported without the threads that its linear algebra starts, one per processor.

Nothing here uses linear algebra. The threads spin for as long as the import takes, at the cost of the process that one
looks at. The variable that forbids them is taken back at once, so that no program started from here gets it."""

from __future__ import annotations

import os

__all__ = ["np"]
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
