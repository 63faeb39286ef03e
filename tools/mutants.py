#!/usr/bin/env python3
"""How many small changes of the lab's code the lab's tests notice:

    ./dev test lab --mutants                                every change of the modules below; hours
    ./dev test lab --mutants --sample 100 decide/verdict experiment/search    100 changes of each of two, chosen at random

The changes are those of cosmic-ray: another operator, a number one greater or less, a condition turned round, a loop that does
not run. Left out are changes in annotations, and "is" for "==". Each mutant runs the tests that execute its line, the shortest
first, in a process that is forked after the libraries were loaded. One that no test notices is printed with its line."""
from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TREE = Path(__file__).resolve().parents[1]
LAB = TREE / "lab"
PACKAGE = LAB / "src" / "hakmem_lab"
MODULES = ("decide/verdict", "decide/statistics", "measure/one_run", "experiment/search", "measure/results", "decide/sweep",
           "decide/allocator_comparison", "commands/ab", "commands/sweep", "commands/compare", "commands/tune",
           "inspect/waste", "inspect/cold", "inspect/why", "inspect/block_types", "inspect/live_blocks", "experiment/worth",
           "commands/waste", "commands/cold", "commands/why", "commands/worth", "measure/latencies", "decide/latency_shifts",
           "decide/exports", "target/configuration", "experiment/interleaved")
TESTS = ("ab", "baselines", "cases", "cold", "commands", "configuration", "exports", "grids", "history", "interleaved", "layout",
         "memory_shown", "noise", "one_run", "report", "results", "run", "search", "server_runner", "statistics", "tables",
         "tune", "two_programs", "verdict", "walked_cold", "walked_heap", "walked_tables", "waste", "why", "worth")
SAME = {"Eq_Is", "NotEq_IsNot", "Is_Eq", "IsNot_NotEq"}
PATIENCE = 3.0  # a mutant may take so many times its tests' time
PRELOADED = ("numpy", "scipy.stats", "pytest", "pydantic", "typer", "rich.table", "rich.panel", "psutil", "plotly.graph_objects",
             "optuna", "elftools.elf.elffile")

PLUGIN = """
import json, os, time
import pytest

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    import coverage
    os.environ["MUTANTS_TEST"] = item.nodeid
    coverage.Coverage.current().switch_context(item.nodeid)
    began = time.monotonic()
    yield
    coverage.Coverage.current().switch_context("")
    with open(os.environ["MUTANTS_TIMES"], "a") as file:
        file.write(json.dumps([item.nodeid, time.monotonic() - began]) + "\\n")
"""


@dataclass(frozen=True)
class Mutant:
    module: str
    operator: str
    occurrence: int
    line: int

    def source(self) -> str:
        from cosmic_ray.mutating import mutate_code
        from cosmic_ray.plugins import get_operator

        return str(mutate_code((PACKAGE / f"{self.module}.py").read_text(), get_operator(self.operator)(), self.occurrence))

    def change(self) -> str:
        before, after = (PACKAGE / f"{self.module}.py").read_text().splitlines(), self.source().splitlines()
        rows = [(old.strip(), new.strip()) for old, new in zip(before, after) if old != new]
        return f"{rows[0][0]}  ->  {rows[0][1]}" if rows else "?"


def annotation_ranges(source: str) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """From where to where the annotations reach."""
    for node in ast.walk(ast.parse(source)):
        found = [getattr(node, "returns", None)] if isinstance(node, (ast.FunctionDef, ast.Lambda)) else []
        if isinstance(node, ast.AnnAssign):
            found.append(node.annotation)
        if isinstance(node, ast.arg) and not isinstance(node.annotation, ast.Subscript):
            found.append(node.annotation)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) and ast.unparse(node).endswith("| None"):
            found.append(node)
        for each in found:
            if each is not None:
                yield (each.lineno, each.col_offset), (each.end_lineno or 0, each.end_col_offset or 0)


def mutants(module: str) -> list[Mutant]:
    """All changes of a module."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    source = (PACKAGE / f"{module}.py").read_text()
    tree, free, rows = get_ast(source), list(annotation_ranges(source)), source.splitlines()
    found = []
    for name in sorted(operator_names()):
        kind = name.removeprefix("core/")
        if kind.startswith("Variable") or any(kind.endswith(f"Operator_{each}") for each in SAME):
            continue
        operator, occurrence = get_operator(name)(), 0
        for node in ast_nodes(tree):
            for start, end in operator.mutation_positions(node):
                typing = "TYPE_CHECKING" in rows[start[0] - 1]
                if not typing and not any(low <= tuple(start) and tuple(end) <= high for low, high in free):
                    found.append(Mutant(module, name, occurrence, start[0]))
                occurrence += 1
    return found


def cover(folder: Path, tests: Sequence[str]) -> tuple[dict[str, dict[int, list[str]]], dict[str, float]]:
    """Which tests execute which line of which module, and how long each test takes."""
    import coverage

    (folder / "sitecustomize.py").write_text("import coverage\ncoverage.process_startup()\n")
    (folder / "mutants_plugin.py").write_text(PLUGIN)
    config = folder / "coveragerc"
    config.write_text(f"[run]\nsource = {PACKAGE}\nparallel = true\ndata_file = {folder}/data\ncontext = ${{MUTANTS_TEST-}}\n")
    times = folder / "times"
    times.touch()
    environment = {**os.environ, "PYTHONPATH": str(folder), "COVERAGE_PROCESS_START": str(config), "MUTANTS_TIMES": str(times)}
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-n", str(os.cpu_count()), "--dist", "loadfile",
                           "-p", "mutants_plugin", *tests], cwd=LAB, env=environment, check=False)
    if done.returncode not in (0, 1):  # tests that coverage disturbs are tried without it (passes_unchanged)
        sys.exit("mutants: the tests cannot be run")
    collected = coverage.Coverage(data_file=str(folder / "data"), config_file=str(config))
    collected.combine()
    data, found = collected.get_data(), {}
    for path in data.measured_files():
        module = Path(path).relative_to(PACKAGE).with_suffix("").as_posix()
        lines = data.contexts_by_lineno(path)
        # A context is a test, or a test in a process and a test of its own: "" is what was imported before any.
        found[module] = {line: [each for each in names if each] for line, names in lines.items()}
    return found, dict(json.loads(line) for line in times.read_text().splitlines())


class Runner:
    """A copy of the package in which one module is changed at a time, and tests in forked processes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = tempfile.mkdtemp(prefix="mutants")  # the tests' own, outside of the source tree
        self._package = folder / "hakmem_lab"
        shutil.copytree(PACKAGE, self._package, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(PACKAGE.parent / "hakmem", folder / "hakmem")
        subprocess.run([sys.executable, "-m", "compileall", "-q", str(self._package)], check=True)

    def notices(self, mutant: Mutant, tests: Sequence[str], patience: float) -> bool:
        path = self._package / f"{mutant.module}.py"
        kept = path.with_suffix(".kept")
        path.rename(kept)
        try:
            path.write_text(mutant.source())
            return not self.passes(tests, patience)
        finally:
            kept.replace(path)

    def passes(self, tests: Sequence[str], patience: float) -> bool:
        child = os.fork()
        if child == 0:
            self._child(tests)
        until = time.monotonic() + patience
        while time.monotonic() < until:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return status == 0
            time.sleep(0.01)
        with contextlib.suppress(OSError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return False

    def _child(self, tests: Sequence[str]) -> None:
        status = 1
        with contextlib.suppress(BaseException):
            os.setsid()
            os.chdir(LAB)
            nothing = os.open(os.devnull, os.O_RDWR)
            for each in (0, 1, 2):
                os.dup2(nothing, each)
            os.environ.update(PYTHONPATH=str(self._folder), PYTHONDONTWRITEBYTECODE="1")
            sys.dont_write_bytecode = True
            sys.path.insert(0, str(self._folder))
            import pytest

            base = ["--basetemp", f"{self._files}/tests", "-p", "no:cacheprovider", "-p", "no:xdist", "-x", "-q"]
            status = int(pytest.main([*base, *tests]))
        os._exit(1 if status else 0)


RUNNER: list[Runner] = []


def begin(folder: Path) -> None:
    """A worker: loads what does not change, and makes its copy."""
    for name in PRELOADED:
        importlib.import_module(name)
    RUNNER.append(Runner(Path(tempfile.mkdtemp(dir=folder))))


def passes_unchanged(test: str) -> tuple[str, float]:
    """How long a test takes in the workers; 0 when it fails there, and cannot tell anything."""
    began = time.monotonic()
    return test, time.monotonic() - began if RUNNER[0].passes([test], 120) else 0.0


def try_one(work: tuple[Mutant, list[str], float]) -> tuple[Mutant, int, bool]:
    mutant, tests, patience = work
    return mutant, len(tests), bool(tests) and RUNNER[0].notices(mutant, tests, patience)


def chosen_tests(mutant: Mutant, lines: dict[int, list[str]], times: dict[str, float], most: float) -> list[str]:
    """The tests that execute the mutant's line, the shortest first. What runs when a module is imported is executed once in
    each process, and not in each test: there it is all tests of the module."""
    source = (PACKAGE / f"{mutant.module}.py").read_text()
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    inside = any(each.body[0].lineno <= mutant.line <= (each.end_lineno or 0) for each in functions)
    # A statement of several lines is executed where its first one is.
    starts = [line for line in lines if line <= mutant.line]
    names = lines.get(max(starts, default=0), []) if inside else {test for each in lines.values() for test in each}
    found, spent = [], 0.0
    for name in sorted({each for each in names if times.get(each)}, key=lambda each: times[each]):
        if found and spent + times[name] > most:
            break
        found.append(name)
        spent += times[name]
    return found


def measured(folder: Path, pool: Any, tests: Sequence[str]) -> tuple[dict[str, dict[int, list[str]]], dict[str, float]]:
    """Lines and times, kept for a further run on the same files."""
    kept = folder / ("covered.json" if tuple(tests) == TESTS else f"covered-{'-'.join(tests)}.json")
    stamp = max(path.stat().st_mtime for root in (PACKAGE, LAB / "tests") for path in root.rglob("*.py"))
    if kept.is_file() and kept.stat().st_mtime > stamp:
        lines, times = json.loads(kept.read_text())
        return {name: {int(key): each for key, each in rows.items()} for name, rows in lines.items()}, times
    with tempfile.TemporaryDirectory(dir=folder) as place:
        lines, names = cover(Path(place), [f"tests/test_{name}.py" for name in tests])
    times = dict(pool.imap_unordered(passes_unchanged, names))
    for name in sorted(name for name, took in times.items() if not took):
        print(f"not used: {name} fails in a forked process")
    kept.write_text(json.dumps([lines, times]))
    return lines, times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", default=MODULES, help=f"of {', '.join(MODULES)}")
    parser.add_argument("--sample", type=int, help="at most so many changes of each module")
    parser.add_argument("--tests", default=",".join(TESTS), help="by these alone, such as cold,waste")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most", type=float, default=60.0, help="seconds of tests for one change")
    parser.add_argument("--least", type=float, default=85.0, help="fail when a module has less %%")
    opt = parser.parse_args()
    folder = TREE / "out" / "mutants"
    folder.mkdir(parents=True, exist_ok=True)
    low = []
    with multiprocessing.get_context("fork").Pool(os.cpu_count(), begin, (folder,)) as pool:
        lines, times = measured(folder, pool, opt.tests.split(","))
        for module in opt.modules:
            every = mutants(module)
            some = random.Random(opt.seed).sample(every, min(opt.sample or len(every), len(every)))
            work = []
            for each in some:
                tests = chosen_tests(each, lines.get(module, {}), times, opt.most)
                work.append((each, tests, 5 + PATIENCE * sum(times[test] for test in tests)))
            noticed, lived = 0, []
            for mutant, count, seen in pool.imap_unordered(try_one, work):
                noticed += seen
                if not seen:
                    lived.append((mutant.line, f"{module}.py:{mutant.line}: {mutant.change()} ({count} tests)"))
            share = 100 * noticed / len(some)
            for _, text in sorted(lived):
                print(f"  {text}")
            print(f"{module}: {noticed} of {len(some)} noticed, {share:.1f} % (of {len(every)} changes)", flush=True)
            if share < opt.least:
                low.append(module)
    for path in folder.glob("tmp*"):
        shutil.rmtree(path, ignore_errors=True)
    if low:
        sys.exit(f"mutants: below {opt.least:g} %: {', '.join(low)}")


if __name__ == "__main__":
    main()
