"""The workflows in .github/workflows are sound, by actionlint where it is installed, and their steps call ./dev and nothing else."""
import re
import shutil
import subprocess

from lint_common import all_files, read

NAME = "workflows"
RUN = re.compile(r"^(\s*)(?:- )?run:[ \t]*(.*)$")
KEYS = ("name:", "on:", "permissions:", "jobs:")   # at the beginning of a line


def commands(text):
    """(line, command) of every step that runs something; a block's first line stands for the block."""
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        match = RUN.match(line)
        if match:
            block = match[2] in ("|", ">", "|-", ">-")
            yield number, lines[number].strip() if block and number < len(lines) else match[2]


def complaints(where, text):
    for key in KEYS:
        if not re.search(rf"^{key}", text, re.M):
            yield f"{where}: has no '{key}'"
    for number, line in enumerate(text.split("\n"), 1):
        if "\t" in line:
            yield f"{where}:{number}: has a tab, which YAML forbids"
    found = list(commands(text))
    if not found:
        yield f"{where}: runs nothing"
    for number, command in found:
        if not command.startswith("./dev "):
            yield f"{where}:{number}: runs '{command}' and not ./dev"


def by_actionlint(root, files):
    if shutil.which("actionlint") is None:
        print(f"{NAME}: actionlint is not installed; {len(files)} files were not checked with it")
        return []
    done = subprocess.run(["actionlint", "-oneline", "-no-color", *(str(path.relative_to(root)) for path in files)], cwd=root, check=False,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return (done.stdout.splitlines() or ["actionlint failed"]) if done.returncode else []


def run(root):
    files = [p for p in all_files(root) if p.suffix in (".yml", ".yaml") and p.parent == root / ".github" / "workflows"]
    findings = [finding for path in files for finding in complaints(path.relative_to(root), read(path))]
    return len(files), findings + (by_actionlint(root, files) if files and not findings else [])
