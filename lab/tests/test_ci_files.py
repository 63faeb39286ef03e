"""The commands of packaging/ci, as a job runs them: with a base that needs more, and with one that needs less."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.inside import LIBRARY, TREE, clean_environment, compile_c

pytest.importorskip("scipy")
SOURCE = "int main(void) { volatile long x = 0; for (long i = 0; i < TURNS; i++) x += i; return 0; }"
FILES = {"github.yml": "comment.md", "gitlab-ci.yml": "verdict.md"}


def command_of(name: str) -> str:
    """The file's line that compares: a folded block, whose lines a space joins."""
    text = (TREE / "packaging" / "ci" / name).read_text()
    found = re.search(r">\n((?: +.*\n)*? *hakmem ab (?:.*\n)*?.*\|\| \[ \$\? = 4 \])", text)
    assert found is not None
    return " ".join(found.group(1).split())


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
@pytest.mark.parametrize("name", FILES)
def test_the_verdict_and_its_comment(name: str, tmp_path: Path) -> None:
    short, long = (compile_c(tmp_path, SOURCE.replace("TURNS", each), name=f"of{each}") for each in ("1000", "900000"))
    (tmp_path / "base").mkdir()
    tool = tmp_path / "hakmem"
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} -m hakmem_lab "$@"\n')
    tool.chmod(0o755)
    command = command_of(name)
    assert "--runs 5" in command and "--metric instructions" in command
    # A change that changes nothing failed the job.
    cases = ((long, short, 0, "GO"), (short, long, 1, "NO-GO"), (short, short, 0, "GO|INCONCLUSIVE"))
    for base, change, status, word in cases:
        for program, place in ((base, "base/program"), (change, "program")):
            shutil.copy(program, tmp_path / place)
        done = subprocess.run(
            ["sh", "-c", command.replace("--runs 5", "--runs 2 --warmup 0 --no-noise-check")],
            cwd=tmp_path,
            env=clean_environment(PATH=f"{tmp_path}:/usr/bin:/bin", HAKMEM_LIBRARY=str(LIBRARY)),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == status, done.stderr
        assert re.search(rf"(?<!-)({word})\b", (tmp_path / FILES[name]).read_text())
