"""The lab's Python pleases ruff and mypy --strict, both from the lab's environment in out/lab."""
import pathlib
import subprocess

from lint_common import all_files

NAME = "lab"
PROGRAMS = pathlib.Path(__file__).resolve().parent.parent / "out" / "lab" / "bin"
CHECKS = (["ruff", "check", "--output-format=concise", "--quiet", "."], ["mypy", "--no-error-summary"])


def installed(name):
    return (PROGRAMS / name).is_file()


def complaints(folder, name, arguments):
    done = subprocess.run([str(PROGRAMS / name), *arguments], cwd=folder, check=False, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = [f"lab/{line}" for line in done.stdout.splitlines()]
    return (said or [f"{name} failed"]) if done.returncode else []


def run(root):
    files = [p for p in all_files(root) if p.suffix == ".py" and p.relative_to(root).parts[0] == "lab"]
    findings = []
    for name, *arguments in CHECKS:
        if not installed(name):
            print(f"{NAME}: {name} is not installed (./dev lab installs it); {len(files)} files were not checked with it")
        elif files:
            findings += complaints(root / "lab", name, arguments)
    return len(files), findings
