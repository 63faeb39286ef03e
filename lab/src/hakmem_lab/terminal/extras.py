"""Libraries that only some commands need, and the extra of the package that installs each."""

from __future__ import annotations

import importlib.util

# By the imported name; pyproject.toml has the same under optional-dependencies.
LIBRARIES = {"scipy": "compare", "plotly": "pages", "optuna": "tune", "httpx": "fleet"}


def of(module: str | None) -> str | None:
    """The extra that installs a module; None for one that every installation has."""
    return LIBRARIES.get(module.partition(".")[0]) if module else None


def has(library: str) -> bool:
    return importlib.util.find_spec(library) is not None
