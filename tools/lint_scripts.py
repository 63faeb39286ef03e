"""Python files compile and please pyflakes; shell scripts please shellcheck."""
import importlib.util
import re
import shutil
import subprocess
import sys

from lint_common import all_files, read

NAME = "scripts"
SHEBANG = re.compile(r"#!.*\b(?:sh|bash|dash)\b")


def is_shell(path):
    return path.suffix == ".sh" or (path.suffix == "" and SHEBANG.match(read(path)) is not None)


def pyflakes_command():
    for program in ("pyflakes3", "pyflakes"):
        # A version manager's shim exists for every program and fails for most.
        if shutil.which(program) and subprocess.run([program, "--version"], stdout=subprocess.DEVNULL,
                                                    stderr=subprocess.DEVNULL, check=False).returncode == 0:
            return [program]
    if importlib.util.find_spec("pyflakes"):
        return [sys.executable, "-m", "pyflakes"]
    return None


def shellcheck_command():
    return ["shellcheck", "--format=gcc"] if shutil.which("shellcheck") else None


def complaints(root, kind, command, files):
    """The lines that a checker prints; a checker that is not installed is announced, not counted."""
    if command is None:
        print(f"{NAME}: {kind} is not installed; {len(files)} files were not checked with it")
        return []
    if not files:
        return []
    done = subprocess.run([*command, *(str(f.relative_to(root)) for f in files)], cwd=root, check=False,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = done.stdout.splitlines()
    return said or ([f"{kind} failed"] if done.returncode else [])


def run(root):
    files = all_files(root)
    python = [p for p in files if p.suffix == ".py"]
    shell = [p for p in files if is_shell(p)]
    findings = []
    for path in python:
        try:
            compile(read(path), str(path.relative_to(root)), "exec")
        except SyntaxError as error:
            findings.append(f"{path.relative_to(root)}:{error.lineno}: {error.msg}")
    if not findings:
        findings += complaints(root, "pyflakes", pyflakes_command(), python)
    findings += complaints(root, "shellcheck", shellcheck_command(), shell)
    return len(python) + len(shell), findings
