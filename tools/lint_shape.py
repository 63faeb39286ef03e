"""Files stay small, and every file says at its top what it is. (Functions: lint_tidy.py.)"""
from lint_common import read, source_files

NAME = "shape"
FILE_LINES = 600


def run(root):
    files, findings = source_files(root), []
    for path in files:
        where, text = path.relative_to(root), read(path)
        lines = text.count("\n")
        if lines > FILE_LINES:
            findings.append(f"{where}: {lines} lines; at most {FILE_LINES}")
        if not text.startswith(("/*", "//")):
            findings.append(f"{where}:1: does not begin with a comment that says what the file is for")
    return len(files), findings
