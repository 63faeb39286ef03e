"""The command hakmem, also as python -m hakmem: the lab's if it is installed and has the command, else the starter."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

STARTER = Path(__file__).resolve().parent / "starter"
OF_THE_STARTER = ("options", "postmortem", "--version")


def main() -> None:
    words = sys.argv[1:]
    has_lab = importlib.util.find_spec("hakmem_lab") is not None
    if has_lab and not (words and words[0] in OF_THE_STARTER and STARTER.is_file()):
        from hakmem_lab.__main__ import main as lab

        lab()
        return
    os.execv(STARTER, ["hakmem", *words])


if __name__ == "__main__":
    main()
