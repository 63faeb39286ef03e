"""From return addresses to functions, files and lines after the process has ended, by the debug information of the
mapped files, which llvm-symbolizer or addr2line reads. Both find separate debug files by the build id; this module
finds those that debuginfod's clients have fetched. Generated code has names if its runtime writes them for perf."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hakmem_lab.profile.heap_dumps import Mapping
from hakmem_lab.target import elf

LOOK_UP_S = 300
SYMBOLIZERS = ("llvm-symbolizer", *(f"llvm-symbolizer-{number}" for number in range(22, 12, -1)))
OWN_NAMES = {
    "malloc", "calloc", "realloc", "reallocarray", "memalign", "aligned_alloc", "posix_memalign", "valloc", "pvalloc",
    "change_size", "move_elsewhere", "new_missed", "throw_bad_alloc", "cfree",
}  # fmt: skip


@dataclass(frozen=True)
class Frame:
    """A function with its source line; an inlined call is a separate frame."""

    name: str
    file: str = ""
    line: int = 0
    module: str = ""

    @property
    def place(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return where or self.module

    @property
    def says(self) -> str:
        where = Path(self.place).name
        return f"{self.name} ({where})" if where else self.name


class Generated:
    """The functions of generated code, from the file that runtimes write for perf: lines "START SIZE NAME"."""

    def __init__(self, file: Path) -> None:
        self.functions: dict[int, tuple[int, str]] = {}
        try:
            with file.open(encoding="utf-8", errors="replace") as lines:
                if os.fstat(lines.fileno()).st_uid in (0, os.geteuid()):  # any user may write to that folder
                    for line in lines:
                        self._add(line)
        except OSError:
            pass
        self.starts = sorted(self.functions)

    def _add(self, line: str) -> None:
        """A later function replaces earlier ones at its addresses."""
        match = re.fullmatch(r"(?:0x)?([0-9a-f]+) (?:0x)?([0-9a-f]+) (.+)\n?", line)
        if match:
            self.functions[int(match[1], 16)] = (int(match[2], 16), match[3])

    def frame(self, address: int) -> Frame | None:
        place = bisect_right(self.starts, address) - 1
        if place < 0:
            return None
        start = self.starts[place]
        size, name = self.functions[start]
        if address - start >= size:
            return None
        python = re.fullmatch(r"py::(.+?):(/.*)", name)
        return Frame(python[1], python[2]) if python else Frame(of_v8(name), module="generated code")


# The prefixes of V8's versions for JavaScript functions, followed by a mark of the compilation tier.
JAVASCRIPT = re.compile(r"(?:JS|LazyCompile|InterpretedFunction|Function|Script|Eval):[~^*+']?")


def of_v8(name: str) -> str:
    """A JavaScript function's name, independent of V8's version and of the compilation tier."""
    return JAVASCRIPT.sub("JS:", name, count=1) if JAVASCRIPT.match(name) else name


class Symbols:
    """The frames of one process's addresses; each address is looked up once."""

    def __init__(self, mappings: Sequence[Mapping], root: Path = Path("/"), pid: int = 0) -> None:
        self.generated = Generated(root / f"tmp/perf-{pid}.map")
        self.mappings = sorted(mappings, key=lambda each: each.start)
        self.starts = [each.start for each in self.mappings]
        self.root = root
        self.found: dict[int, tuple[Frame, ...]] = {}
        self.biases: dict[Mapping, int] = {}

    def mapping_of(self, address: int) -> Mapping | None:
        place = bisect_right(self.starts, address) - 1
        found = self.mappings[place] if place >= 0 else None
        return found if found and address < found.end else None

    def learn(self, addresses: Iterable[int]) -> None:
        """Looks up return addresses; the call is the instruction before each."""
        by_module: dict[str, dict[int, int]] = defaultdict(dict)
        for address in {each for each in addresses if each not in self.found}:
            mapping = self.mapping_of(address - 1)
            if mapping is None:
                self.found[address] = (self.generated.frame(address - 1) or Frame(f"{address:#x}"),)
                continue
            by_module[mapping.path][address] = address - 1 - self._bias(mapping)
        for module, places in by_module.items():
            file = self.root / module.removeprefix("/").removesuffix(" (deleted)")
            answers = look_up(file, sorted(set(places.values()))) if file.is_file() else {}
            for address, place in places.items():
                frames = answers.get(place) or [Frame(f"{Path(module).name}+{place:#x}")]
                self.found[address] = tuple(Frame(f.name, f.file, f.line, module) for f in frames)

    def _bias(self, mapping: Mapping) -> int:
        """The difference between a mapping's addresses and those in the file's tables; the file is read once."""
        if mapping not in self.biases:
            file = self.root / mapping.path.removeprefix("/")
            bias = elf.load_bias(file, mapping.offset, mapping.start) if file.is_file() else None
            self.biases[mapping] = bias if bias is not None else mapping.start - mapping.offset
        return self.biases[mapping]

    def stack(self, addresses: Sequence[int]) -> tuple[Frame, ...]:
        """The stack from the innermost function outwards, without the allocator's own functions."""
        self.learn(addresses)
        frames = [frame for address in addresses for frame in self.found[address]]
        own = 0
        while own < len(frames) - 1 and is_own(frames[own]):
            own += 1
        return tuple(frames[own:])


# The standard libraries' functions between a program's code and malloc: C++'s containers, Rust's collections.
STANDARD = re.compile("(std|__gnu_cxx|alloc|core|hashbrown)::")


def is_standard(name: str) -> bool:
    """Whether a function belongs to a standard library; in Rust a type of the program may implement its traits."""
    if name.startswith("<"):
        return STANDARD.match(name.lstrip("<&*([ ")) is not None
    before = ""
    while before != name:
        before, name = name, re.sub("<[^<>]*>", "", name)
    return STANDARD.match(name.partition("(")[0].rpartition(" ")[2]) is not None


def without_standard(stack: Sequence[Frame]) -> Sequence[Frame]:
    """The stack from its innermost function outside standard libraries; the whole stack if there is none."""
    first = next((place for place, frame in enumerate(stack) if not is_standard(frame.name)), 0)
    return stack[first:]


RUST_SIGNS = {"LT": "<", "GT": ">", "RF": "&", "BP": "*", "C": ",", "LP": "(", "RP": ")", "SP": "@"}


def readable(name: str) -> str:
    """The name of a Rust function that was demangled as if it were C++."""
    path, hashed, _ = name.rpartition("::h")
    if not hashed or not re.fullmatch("[0-9a-f]{16}", name[-16:]):
        return name
    path = re.sub(r"\$u([0-9a-f]{2,6})\$", lambda sign: chr(int(sign[1], 16)), path)
    path = re.sub(r"\$([A-Z]{1,2})\$", lambda sign: RUST_SIGNS.get(sign[1], sign[0]), path)
    return path.replace("..", "::").replace("::_<", "::<").removeprefix("_")


def is_own(frame: Frame) -> bool:
    """Whether a frame at the top of a stack is the allocator's, or a standard name that leads to it."""
    name = frame.name
    if Path(frame.module).name.startswith("libhakmem"):
        return True
    return name in OWN_NAMES or name.startswith(("hak_", "hak__", "operator new"))


def fetched_by_debuginfod(file: Path) -> Path | None:
    """The separate debug file that debuginfod's clients have fetched for a file without debug information."""
    build_id = elf.missing_debug_information(file)
    if build_id is None:
        return None
    caches = [Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "debuginfod_client"]
    caches += [Path.home() / ".debuginfod_client_cache"]
    if given := os.environ.get("DEBUGINFOD_CACHE_PATH"):
        caches = [Path(given)]
    found = (cache / build_id / "debuginfo" for cache in caches)
    # An empty file says that no server has it.
    return next((each for each in found if each.is_file() and each.stat().st_size), None)


def look_up(file: Path, places: list[int]) -> dict[int, list[Frame]]:
    """The frames of addresses in a file, innermost first, by the first tool that is installed."""
    file = fetched_by_debuginfod(file) or file
    tool = next((path for name in SYMBOLIZERS if (path := shutil.which(name))), None)
    if tool is not None:
        return by_llvm(tool, file, places)
    tool = shutil.which("addr2line")
    return by_addr2line(tool, file, places) if tool else {}


def asked(command: list[str], text: str) -> str:
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, errors="replace", check=False, timeout=LOOK_UP_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def by_llvm(tool: str, file: Path, places: list[int]) -> dict[int, list[Frame]]:
    command = [tool, f"--obj={file}", "--inlines", "--demangle", "--output-style=JSON"]
    text = asked(command, "".join(f"{at:#x}\n" for at in places))
    found = {}
    for line in text.splitlines():
        try:
            answer = json.loads(line)
        except ValueError:
            continue
        frames = [
            Frame(readable(each["FunctionName"]), each.get("FileName", ""), each.get("Line", 0))
            for each in answer.get("Symbol", [])
            if each.get("FunctionName")
        ]
        found[int(answer["Address"], 16)] = frames
    return found


def by_addr2line(tool: str, file: Path, places: list[int]) -> dict[int, list[Frame]]:
    """With -a each answer begins with its address; then come pairs of lines, function and source line."""
    text = asked([tool, "-aifC", "-e", str(file)], "".join(f"{at:#x}\n" for at in places))
    found: dict[int, list[Frame]] = {}
    lines = iter(text.splitlines())
    at = 0
    for line in lines:
        if line.startswith("0x"):
            at = int(line, 16)
            found[at] = []
            continue
        where, _, number = next(lines, "").partition(" ")[0].rpartition(":")
        if line != "??":
            known = where != "??" and number.isdigit()
            found[at].append(Frame(readable(line), where if known else "", int(number) if known else 0))
    return found
