"""Modules that call or include one another in a circle: at most two of one folder, and the exceptions listed here.

A module is a source with its header. It calls another if one of its functions or tables names a function that the other
defines, also by way of a macro or an inline function of a header, as far as the module uses it: that is what its compiled
object would ask the linker for. It includes another if one of its files includes the other's header.
"""
import re

from lint_common import function_name, read, source_files, strip_comments

NAME = "circles"
LONGEST = 2  # modules in a circle that needs no exception; they lie in one folder

# Today's other circles, each by its modules. Take a module away as soon as it no longer belongs to its circle.
EXCEPTIONS = (
    ("entry/init", "process/start"),  # no call: start.c draws init.c's constructor from an archive
)

WORD = re.compile(r"(?<!\w)(?<!struct )(?<!union )(?<!enum )[A-Za-z_]\w*")
SHARED = "hak_"  # how every name begins that one file of the library gives to others
MACRO = re.compile(r"[ \t]*#[ \t]*define[ \t]+(\w+)((?:[^\n\\]|\\\n|\\.)*)")
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\\n|\\.)*", re.M)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)\.h"', re.M)
OPEN_LINKAGE = re.compile(r'extern\s*"[^"]*"\s*\{')


def items(code):
    """The definitions and declarations at file level, each as (text before its first brace, text within)."""
    depth, begin, brace = 0, 0, None
    for at, char in enumerate(code):
        if char == "{":
            brace = at if depth == 0 and brace is None else brace
            depth += 1
        elif char == "}":
            depth = max(0, depth - 1)
        if depth == 0 and (char == ";" or (char == "}" and function_name(code[begin:brace]))):
            yield code[begin:brace or at], code[brace or at:at]
            begin, brace = at + 1, None


class Source:
    """One file: the functions that others can call, the private ones with what they name, and what it names itself."""

    def __init__(self, text, is_header):
        code = strip_comments(text)
        self.defined, self.helpers, self.named = set(), {}, set()
        self.included = set(INCLUDE.findall(text))
        for name, body in MACRO.findall(code):
            self.helpers.setdefault(name, set()).update(WORD.findall(body))
        for head, body in items(OPEN_LINKAGE.sub("", DIRECTIVE.sub("", code))):
            name, words = function_name(head) if body else None, set(WORD.findall(body))
            if name and is_header:
                self.helpers.setdefault(name, set()).update(words)
            elif name:
                self.named |= words
                if name.startswith(SHARED) and not re.search(r"\bstatic\b", head):
                    self.defined.add(name)
            elif "=" in head:
                self.named |= words | set(WORD.findall(head.split("=", 1)[1]))


def reached(words, helpers):
    """All that these words name, with what the helpers among them name."""
    found, waiting = set(), list(words)
    while waiting:
        word = waiting.pop()
        if word not in found:
            found.add(word)
            waiting += helpers.get(word, ())
    return found


def module_of(path):
    return path.rpartition(".")[0]


def uses(sources):
    """For each module the others of which it names a function or includes the header."""
    helpers, home, result = {}, {}, {}
    for path, source in sources.items():
        if path.endswith(".c"):
            home.update(dict.fromkeys(source.defined, module_of(path)))
        else:
            for name, words in source.helpers.items():
                helpers.setdefault(name, set()).update(words)
    modules = {module_of(path) for path in sources}
    for path, source in sources.items():
        others = result.setdefault(module_of(path), set())
        others |= source.included & modules
        if path.endswith(".c"):
            others |= {home[name] for name in reached(source.named, {**helpers, **source.helpers}) if name in home}
    return {module: others - {module} for module, others in result.items()}


def circles(graph):
    """The sets of modules each of which reaches every other (Tarjan's strong components of two or more)."""
    number, low, stack, found = {}, {}, [], []

    def visit(module):
        number[module] = low[module] = len(number)
        stack.append(module)
        for other in sorted(graph[module]):
            if other not in number:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], number[other])
        if low[module] == number[module]:
            at = stack.index(module)
            if len(stack) - at > 1:
                found.append(frozenset(stack[at:]))
            del stack[at:]

    for module in sorted(graph):
        if module not in number:
            visit(module)
    return found


def is_allowed(circle):
    return len(circle) <= LONGEST and len({module.rpartition("/")[0] for module in circle}) == 1 \
        and all("/" in module for module in circle)


def judge(found, exceptions):
    """The circles that are too wide, and the exceptions that are wider than needed."""
    listed = [frozenset(entry) for entry in exceptions]
    wide = [circle for circle in found if not is_allowed(circle)]
    for circle in wide:
        if not any(circle <= entry for entry in listed):
            yield f"a circle: {' '.join(sorted(circle))}"
    for entry in listed:
        rest = entry - frozenset().union(*(circle for circle in wide if circle <= entry))
        if rest:
            yield f"EXCEPTIONS: no longer in a circle: {' '.join(sorted(rest))}"


def run(root):
    sources = {}
    for path in source_files(root):
        where = path.relative_to(root).as_posix()
        if not where.startswith("src/unity") and path.suffix in (".c", ".h"):
            sources[where.removeprefix("src/")] = Source(read(path), path.suffix == ".h")
    return len(sources), list(judge(circles(uses(sources)), EXCEPTIONS))
