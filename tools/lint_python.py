"""All Python but the lab's pleases ruff (ruff.toml) and mypy (mypy.ini), both from the lab's environment in out/lab.

mypy runs once for each folder: scripts import their neighbours, and folders have files of the same names. Each run has a
cache of its own, for several at once may damage a shared one: mypy then ends with an internal error."""
import concurrent.futures
import os
import pathlib
import subprocess

from lint_common import all_files
from lint_lab import PROGRAMS, installed

NAME = "python"
RULES = pathlib.Path(__file__).resolve().parent.parent
# What scripts put into their paths, besides their own folders.
SHARED = ("tools", "bench", "bench/suite", "tests/programs", "tests/suites", "tests/support", "lab/src")
OF_TESTS = ["--disable-error-code=attr-defined", "--disable-error-code=arg-type", "--disable-error-code=method-assign"]


def said(root, *command, **environment):
    done = subprocess.run([str(word) for word in command], cwd=root, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, env={**os.environ, **environment})
    return (done.stdout.splitlines() or [f"{command[0]} failed"]) if done.returncode else []


def is_test(path):
    """Tests set attributes of their classes in setUpClass, load modules by their paths, and put fakes in places."""
    return "tests" in path.parts or path.name.startswith("test_")


def types(root, files):
    """Complaints about the files of one folder, all tests or none."""
    paths = os.pathsep.join(dict.fromkeys([str(files[0].parent), *SHARED]))
    cache = pathlib.Path(".mypy_cache", "tests" if is_test(files[0]) else "scripts", files[0].parent)
    options = [f"--config-file={RULES / 'mypy.ini'}", f"--cache-dir={cache}", "--no-error-summary", "--show-traceback",
               *(OF_TESTS if is_test(files[0]) else [])]
    found = said(root, PROGRAMS / "mypy", *options, *files, MYPYPATH=paths)
    return [line for line in found if ": note: " not in line]


def groups(files):
    found = {}
    for path in files:
        found.setdefault((path.parent, is_test(path)), []).append(path)
    return list(found.values())


def run(root):
    files = [p.relative_to(root) for p in all_files(root) if p.suffix == ".py" and p.relative_to(root).parts[0] != "lab"]
    findings = []
    if not installed("ruff") or not installed("mypy"):
        print(f"{NAME}: ruff and mypy are not installed (./dev lab installs them); {len(files)} files were not checked with them")
        return len(files), findings
    if files:
        findings += said(root, PROGRAMS / "ruff", "check", "--output-format=concise", "--quiet", f"--config={RULES / 'ruff.toml'}", ".")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for found in pool.map(lambda group: types(root, group), groups(files)):
            findings += found
    return len(files), findings
