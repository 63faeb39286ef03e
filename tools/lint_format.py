"""The sources in src/ are laid out as clang-format does it (.clang-format).

  lint_format.py [--write] [FILE...]     names the files of src/ that differ, or of these; --write formats them
"""
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys

from lint_common import all_files, read

NAME = "format"
ROOT = pathlib.Path(__file__).resolve().parent.parent
# What clang-format 14 cannot lay out: macros, a switch of one list, what it takes for C++, the operands of assembly, tables of several columns.
LEFT_ALONE = re.compile(r"^[ \t]*#[ \t]*define\b(?:[^\n\\]|\\\n|\\.)*"
                        r"|^[^\n]*\bswitch \([^\n]*\{ [^\n]* \}"
                        r"|^[^\n]*\bclass\s*(?:\+\+|--)[^\n]*"
                        r"|^_Static_assert\b[^;]*;"
                        r"|^[^\n]*__asm__[^;]*;"
                        r"|^[^\n]*\bcase [^\n:]+:(?: case |[^\n;]*;[^\n;]*;)[^\n]*"
                        r"|^[^\n]*__attribute__[^\n]*\n[^\n]*"
                        r"|^[^\n]*\[\w*\](?:\[\w*\])*(?: \w+)? = \{\n(?:[^}\n][^\n]*\n)*\}", re.M)


def installed():
    return shutil.which("clang-format") is not None


def files_of(root):
    return [p for p in all_files(root) if p.suffix in (".c", ".h") and p.relative_to(root).parts[0] == "src"]


def ranges(text):
    """The lines to format, as clang-format's arguments."""
    first, result = 1, []
    for match in LEFT_ALONE.finditer(text):
        begin = text.count("\n", 0, match.start()) + 1
        if begin > first:
            result.append(f"--lines={first}:{begin - 1}")
        first = text.count("\n", 0, match.end()) + 2
    last = text.count("\n")
    return result + ([f"--lines={first}:{last}"] if first <= last else [])


def formatted(path):
    text = read(path)
    lines = ranges(text)
    if not lines:
        return text
    done = subprocess.run(["clang-format", f"--style=file:{ROOT / '.clang-format'}", f"--assume-filename={path}", *lines], check=True,
                          input=text, stdout=subprocess.PIPE, text=True)
    return done.stdout


def differing(paths):
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return [(path, text) for path, text in zip(paths, pool.map(formatted, paths)) if text != read(path)]


def run(root):
    files = files_of(root)
    if not installed():
        print(f"{NAME}: clang-format is not installed; {len(files)} files were not checked with it")
        return len(files), []
    different = [path.relative_to(root) for path, _ in differing(files)]
    return len(files), [f"{path}: python3 tools/lint_format.py --write {path} formats it" for path in different]


def main(arguments):
    names = [argument for argument in arguments if argument != "--write"]
    paths = [pathlib.Path(name).resolve() for name in names] or files_of(ROOT)
    if other := [name for name, path in zip(names, paths) if path.suffix not in (".c", ".h")]:
        sys.exit(f"{NAME}: {other[0]} is not a source in C")
    found = differing(paths)
    for path, text in found:
        if "--write" in arguments:
            path.write_text(text, encoding="utf-8")
        print(path.relative_to(ROOT))
    return 0 if "--write" in arguments or not found else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
