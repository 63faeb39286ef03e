"""Makes a Python environment with one package, once: venv.py FOLDER PACKAGE==VERSION.

A folder that has this version already is left alone.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path


def main() -> None:
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    folder, package = Path(sys.argv[1]), sys.argv[2]
    mark = folder / "made-for"
    if mark.is_file() and mark.read_text() == package:
        return
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    subprocess.run([str(folder / "bin" / "python3"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                    package], check=True)
    mark.write_text(package)


if __name__ == "__main__":
    main()
