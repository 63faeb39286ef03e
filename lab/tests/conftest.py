"""Fixtures for all tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from inside import PROGRAM, compile_c


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of inside.py."""
    folder = tmp_path_factory.mktemp("program")
    for each in (folder, *folder.parents[:2]):
        each.chmod(0o755)  # another user starts it too
    return compile_c(folder, PROGRAM)
