"""The imports of commands: small ones start quickly and need none of the large libraries.

Time is not measured, since a test machine is busy; the imports determine it."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from hakmem_lab import cli
from hakmem_lab.terminal import extras
from tests.conftest import killed_after
from tests.inside import LIBRARY, TREE

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Makes imports of the extras' libraries fail, and prints all imports at the end.
CHILD = """
import importlib.abc, json, sys
missing = set(json.loads(sys.argv[1]))
class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in missing else found(name, package)
sys.argv[:] = ["hakmem", *sys.argv[2:]]
from hakmem_lab import cli
try:
    cli.main()
except SystemExit as end:
    status = end.code or 0
else:
    status = 0
sys.stdout.flush()
print(json.dumps({"status": status, "modules": sorted(sys.modules)}), file=sys.stderr)
"""
LARGE = ("numpy", "scipy", "plotly", "optuna", "psutil", "rich.progress")  # typer itself may import pydantic


def started(folder: Path, *arguments: str, missing: tuple[str, ...] = ()) -> tuple[int, list[str], str]:
    """(status, what was imported, all output) of a command without some libraries."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HAKMEM_")}
    done = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(missing), *arguments],
        cwd=folder,
        env={**environment, "HAKMEM_LIBRARY": str(LIBRARY), "TERM": "dumb", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    last = json.loads(done.stderr.strip().splitlines()[-1])
    return last["status"], last["modules"], done.stdout + done.stderr


def test_help_imports_no_command(tmp_path: Path) -> None:
    status, modules, said = started(tmp_path, "--help")
    assert status == 0 and all(name in said for name in cli.COMMANDS)
    assert not set(modules).intersection(LARGE)
    assert not [name for name in modules if name.startswith("hakmem_lab.commands.")]


@pytest.mark.parametrize("name", ["run", "stats", "watch", "doctor", "serve", "block"])
def test_small_commands_import_little(tmp_path: Path, name: str) -> None:
    status, modules, _ = started(tmp_path, name, "--help")
    assert status == 0 and not set(modules).intersection(LARGE)
    assert sum(each.startswith("hakmem_lab.") for each in modules) <= 20
    assert len(modules) <= 500


@pytest.mark.parametrize("before", [None, "7"])
def test_numbers_come_without_threads(before: str | None) -> None:
    """Inspecting a process starts no threads, and programs started from there get the variable unchanged."""
    look = "import os; print(len(os.listdir('/proc/self/task')), os.environ.get('OPENBLAS_NUM_THREADS'))"
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
    if before is not None:
        environment["OPENBLAS_NUM_THREADS"] = before
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import hakmem_lab.inspect.live, hakmem_lab.inspect.ledger, hakmem_lab.inspect.blocks; {look}",
        ],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["1", str(before)]


def test_they_do_their_work_without_the_extras(tmp_path: Path) -> None:
    without = tuple(extras.LIBRARIES)
    statistics = tmp_path / "now.json"
    program = ["env", f"LD_PRELOAD={LIBRARY}", f"HAKMEM_STATS=json:{statistics}", "ls"]
    subprocess.run(program, check=True, capture_output=True)
    assert started(tmp_path, "stats", str(statistics), missing=without)[0] == 0
    status, _, said = started(tmp_path, "doctor", missing=without)
    assert status == 0 and "ok" in said
    with killed_after(["sleep", "60"], env={**os.environ, "LD_PRELOAD": str(LIBRARY)}) as child:
        status, modules, said = started(
            tmp_path, "watch", str(child.pid), "--once", "--interval", "0.1", missing=without
        )
        assert status == 0 and "Resident memory" in said and not set(modules).intersection(without)


LARGER = ["--metric", "ops=([0-9]+)", "--", "sh", "-c", "echo ops=${HAKMEM_REFILL_COUNT:-1}"]  # B is better, always
MEASURING = (
    ["ab", "--a", "", "--b", "refill_count=64", "--runs", "2", "--warmup", "0", "--", "true"],
    [
        "ab",
        "--a",
        "",
        "--b",
        "refill_count=64",
        "--runs",
        "2",
        "--warmup",
        "0",
        "--param",
        "n=1,2",
        "--",
        "echo",
        "{n}",
    ],
    ["compare", "--alloc", "system,hakmem", "--runs", "2", "--warmup", "0", "--", "true"],
    ["sweep", "--option", "refill_count", "--values", "16,32", "--runs", "2", "--warmup", "0", "--", "true"],
    ["tune", "--budget", "10m", "--trials", "2", "--options", "refill_count", "--runs", "2", *LARGER],
)


@pytest.mark.parametrize("command", MEASURING, ids=[" ".join(each[:2]) for each in MEASURING])
def test_they_measure_without_pages(tmp_path: Path, command: list[str]) -> None:
    status, _, said = started(tmp_path, *command, missing=("plotly",))
    assert status in (0, 3, 4) and "no page: plotly is not installed; pip install 'hakmem-lab[pages]'" in said
    assert "results: " in said or "search: " in said


def test_ab_says_what_it_needs(tmp_path: Path) -> None:
    status, _, said = started(tmp_path, *MEASURING[0], missing=("scipy",))
    assert status == 1 and "pip install 'hakmem-lab[compare]'" in said


def test_a_defect_of_its_own_is_no_missing_library() -> None:
    assert extras.of("scipy.stats") == "compare" and extras.of("hakmem_lab.nowhere") is None and extras.of(None) is None


def test_the_package_names_the_same_extras() -> None:
    project = tomllib.loads((TREE / "lab" / "pyproject.toml").read_text())["project"]
    needed = {re.split(r"[^\w-]", each)[0] for each in project["dependencies"]}
    for library, extra in extras.LIBRARIES.items():
        listed = {re.split(r"[^\w-]", each)[0] for each in project["optional-dependencies"][extra]}
        assert library in listed and library not in needed
        assert re.search(rf"^lab_environment\(\).*\b{extra}\b", (TREE / "tools/dev/lab.sh").read_text(), re.M)


def test_summaries_are_the_first_sentences_of_the_commands() -> None:
    for name, about in cli.COMMANDS.items():
        app = typer.Typer()
        importlib.import_module(f"hakmem_lab.commands.{name}").register(app)
        found = [each.help for each in app.registered_commands] + [each.help for each in app.registered_groups]
        assert len(found) == 1 and found[0] is not None
        assert " ".join(found[0].split("\n\n")[0].split()) == about, name


def test_every_command_is_listed() -> None:
    listed = set(cli.COMMANDS)
    for path in (Path(cli.__file__).parent / "commands").glob("[a-z]*.py"):
        assert (path.stem in listed) == ("\ndef register(" in path.read_text()), path.stem


def test_an_interrupt_of_the_imports_says_nothing() -> None:
    source = """
import sys
class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
from hakmem_lab.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
