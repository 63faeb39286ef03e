"""What the lints share: which files there are, and C source reduced to what a lint may look at."""
import re
import subprocess

C_SUFFIXES = {".c", ".h", ".def"}
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
ATTRIBUTE = re.compile(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)")


def all_files(root):
    """Every file of the project: what git tracks or would add; without git, whatever is there but out/."""
    if (root / ".git").exists():
        listed = subprocess.run(["git", "-C", str(root), "ls-files", "-coz", "--exclude-standard"],
                                stdout=subprocess.PIPE, check=True).stdout.decode()
        paths = [root / name for name in listed.split("\0") if name]
    else:
        paths = [p for p in root.rglob("*") if p.relative_to(root).parts[0] != "out" and "__pycache__" not in p.parts]
    return sorted(p for p in paths if p.is_file())


def source_files(root):
    """The library's own C files."""
    return [p for p in all_files(root)
            if p.suffix in C_SUFFIXES and p.relative_to(root).parts[0] in ("src", "include")]


def read(path):
    return path.read_text(encoding="utf-8", errors="replace")


def strip_comments(text):
    """Comments become blanks, strings lose their contents; every line keeps its number."""
    def blank(match):
        token = match.group()
        if token[0] == "/":
            return re.sub(r"[^\n]", " ", token)
        return token[0] + " " * (len(token) - 2) + token[0]
    return TOKEN.sub(blank, text)


def blank_directives(text):
    """Preprocessor lines, with their continuations, become empty lines."""
    lines, inside = [], False
    for line in text.split("\n"):
        directive = inside or line.lstrip().startswith("#")
        inside = directive and line.rstrip().endswith("\\")
        lines.append("" if directive else line)
    return "\n".join(lines)


def function_name(head):
    """The function that this text before a brace at file level begins, or None: it must end in a parameter list."""
    head = ATTRIBUTE.sub(" ", head).rstrip()
    if not head.endswith(")") or "=" in head:
        return None
    depth = 0
    for at in range(len(head) - 1, -1, -1):
        depth += (head[at] == ")") - (head[at] == "(")
        if depth == 0:
            match = re.search(r"(\w+)\s*$", head[:at])
            return match.group(1) if match else None
    return None


def functions(text):
    """(name, first line, last line) of each function definition; lines count from 1."""
    code = blank_directives(strip_comments(text))
    # The braces of extern "C" enclose declarations, they are nobody's body.
    code = re.sub(r'extern\s*"[^"]*"\s*\{', lambda match: re.sub(r"[^\n]", " ", match.group()), code)
    found, depth, begin, name, first = [], 0, 0, None, 0
    for at, char in enumerate(code):
        if char == "{":
            if depth == 0:
                head = code[begin:at]
                name = function_name(head)
                first = code.count("\n", 0, at - len(head.lstrip())) + 1
            depth += 1
        elif char == "}":
            depth = max(0, depth - 1)
            if depth == 0:
                if name:
                    found.append((name, first, code.count("\n", 0, at) + 1))
                name, begin = None, at + 1
        elif char == ";" and depth == 0:
            begin = at + 1
    return found
