"""The lab's Python pleases ruff and mypy --strict, and its folders import only those below them (import-linter).

The three programs are in the lab's environment, out/lab; their rules stand in lab/pyproject.toml."""
import os
import pathlib
import subprocess

from lint_common import all_files

NAME = "lab"
PROGRAMS = pathlib.Path(__file__).resolve().parent.parent / "out" / "lab" / "bin"
CHECKS = (["ruff", "check", "--output-format=concise", "--quiet", "."], ["mypy", "--no-error-summary"],
          ["lint-imports", "--no-logo", "--no-cache"])
BROKEN = "Broken contracts"  # the heading in lint-imports' output, under which a line "- A -> B" is an import that breaks a rule


def installed(name):
    return (PROGRAMS / name).is_file()


def complaints(folder, name, arguments):
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}  # this tree's package, not the installed one
    done = subprocess.run([str(PROGRAMS / name), *arguments], cwd=folder, check=False, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    broken = [line[2:] for line in done.stdout.partition(BROKEN)[2].splitlines() if line.startswith("- ")]
    said = [f"lab/{line}" for line in broken or done.stdout.splitlines()]
    return (said or [f"{name} failed"]) if done.returncode else []


def run(root):
    files = [p for p in all_files(root) if p.suffix == ".py" and p.relative_to(root).parts[0] == "lab"]
    package = root / "lab" / "src" / "hakmem_lab"
    findings = []
    for name, *arguments in CHECKS:
        if not installed(name):
            print(f"{NAME}: {name} is not installed (./dev lab installs it); {len(files)} files were not checked with it")
        elif files and (name != "lint-imports" or package.is_dir()):
            findings += complaints(root / "lab", name, arguments)
    return len(files), findings
