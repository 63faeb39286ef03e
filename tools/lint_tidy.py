"""src/ pleases clang-tidy: function size, bugprone, concurrency, naming, by the rules in .clang-tidy.

It sees the release library: its two units, which include every source once, and what stands beside them."""
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess

from lint_common import source_files

NAME = "tidy"
FLAGS = ("-std=gnu17", "-D_GNU_SOURCE", "-DHAK_OVERRIDE=1", "-DHAK_SHARED=1", "-DNDEBUG", '-DHAK_VERSION_STRING="0"')
FINDING = re.compile(r"^(.+?):(\d+):\d+: (?:error|warning): (.*?)(?:,-warnings-as-errors)?\]$")


def installed():
    return shutil.which("clang-tidy") is not None


def units(root):
    """The files that are compiled; without units, as in a test, every source."""
    sources = [p for p in source_files(root) if p.suffix == ".c"]
    whole = [p for p in sources if p.name.startswith("unity")]
    beside = [p for p in sources if p.parent.name == "interpose"]   # cxx_linked.c is gcc's: clang refuses its tables
    return whole + beside if whole else sources


def check(root, unit):
    rules = pathlib.Path(__file__).resolve().parent.parent / ".clang-tidy"
    unity = f"-DHAK_UNITY={int(unit.name.startswith('unity'))}"
    done = subprocess.run(["clang-tidy", "--quiet", f"--config-file={rules}", str(unit), "--", *FLAGS, unity, f"-I{root / 'src'}",
                           f"-I{root / 'include'}"], check=False, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True)
    found = [FINDING.match(line) for line in done.stdout.splitlines()]
    said = [f"{os.path.relpath(match[1], root)}:{match[2]}: {match[3]}]" for match in found if match]
    if done.returncode != 0 and not said:
        said = [f"{unit.relative_to(root)}: clang-tidy failed: {(done.stdout + done.stderr).strip()[-300:]}"]
    return said


def run(root):
    files = source_files(root)
    if not installed():
        print(f"{NAME}: clang-tidy is not installed; {len(files)} files were not checked with it")
        return len(files), []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        findings = {finding for found in pool.map(lambda unit: check(root, unit), units(root)) for finding in found}
    return len(files), sorted(findings)
