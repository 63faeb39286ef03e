"""Python files compile, and shell scripts please shellcheck. (Python: lint_python.py.)"""
import re
import shutil
import subprocess

from lint_common import all_files, read

NAME = "scripts"
SHEBANG = re.compile(r"#!.*\b(?:sh|bash|dash)\b")


def is_shell(path):
    return path.suffix == ".sh" or (path.suffix == "" and SHEBANG.match(read(path)) is not None)


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
    findings += complaints(root, "shellcheck", shellcheck_command(), shell)
    return len(python) + len(shell), findings
