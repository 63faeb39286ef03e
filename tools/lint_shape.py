"""Files and functions stay small, and every file says at its top what it is."""
from lint_common import functions, read, source_files

NAME = "shape"
FILE_LINES = 600
FUNCTION_LINES = 60
LIBRARY_FUNCTION_LINES = 40  # in src/


def run(root):
    files, findings = source_files(root), []
    for path in files:
        where, text = path.relative_to(root), read(path)
        lines, most = text.count("\n"), LIBRARY_FUNCTION_LINES if where.parts[0] == "src" else FUNCTION_LINES
        if lines > FILE_LINES:
            findings.append(f"{where}: {lines} lines; at most {FILE_LINES}")
        if not text.startswith(("/*", "//")):
            findings.append(f"{where}:1: does not begin with a comment that says what the file is for")
        for name, first, last in functions(text):
            if last - first + 1 > most:
                findings.append(f"{where}:{first}: {name} has {last - first + 1} lines; at most {most}")
    return len(files), findings
