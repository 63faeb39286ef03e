"""The checks of `hakmem doctor`: one finding per fact that decides whether and how HAKMEM works in a process."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from hakmem_lab.inspect.live import Live, NotHakmem
from hakmem_lab.target import elf, libhakmem, process
from hakmem_lab.target.configuration import nearest
from hakmem_lab.target.libhakmem import Option
from hakmem_lab.terminal.amounts import counted, in_bytes

Level = Literal["ok", "warn", "fail"]
PREFIX = "HAKMEM_"
NOT_OPTIONS = ("HAKMEM_CONF", *libhakmem.OWN_VARIABLES)
OTHER_MALLOCS = re.compile(r"lib(jemalloc|tcmalloc\w*|mimalloc|snmalloc\w*|rpmalloc|hoard)[-.\w]*\.so")
SETTLE_SECONDS = 0.3
BANDS = [f"tiny_unified_c{band}" for band in range(8)]


@dataclass(frozen=True)
class Finding:
    level: Level
    about: str
    text: str
    advice: str = ""


@dataclass(frozen=True)
class Subject:
    """The process that is examined: a running one, or a child started for the purpose."""

    pid: int
    environment: dict[str, str]
    maps: list[process.Mapping]
    limits: dict[str, tuple[float, float]]  # by the name in /proc/PID/limits: soft, hard
    groups: str  # /proc/PID/cgroup
    live: Live | None
    options: dict[str, Option]
    capacities: list[tuple[int, int, int]]


# --- who is examined --------------------------------------------------------------------------------------------------

# Says that it runs, and waits to be examined like any other process.
_CHILD = "import sys; sys.stdout.write('ready'); sys.stdout.flush(); sys.stdin.read()"


def find_live(pid: int) -> Live | None:
    """The library in the process; None if the process does not run on it."""
    try:
        return Live(pid)
    except NotHakmem:
        return None


def of_process(pid: int) -> Subject:
    environment = process.environment(pid)
    live = find_live(pid)
    if live is None and "hakmem" in environment.get("LD_PRELOAD", ""):
        time.sleep(SETTLE_SECONDS)  # it may be executing another program
        live = find_live(pid)
    return Subject(
        pid=pid,
        environment=environment,
        maps=process.mappings(pid),
        limits=parse_limits(process.text(pid, "limits")),
        groups=process.text(pid, "cgroup"),
        live=live,
        options=live.options() if live else {},
        capacities=live.capacities() if live else [],
    )


def environment_to_try(hakmem: Path | None) -> dict[str, str]:
    """The current environment, with the library preloaded as `hakmem run` does, unless it already is."""
    environment = {name: value for name, value in os.environ.items() if name not in libhakmem.OWN_VARIABLES}
    preloaded = environment.get("LD_PRELOAD", "")
    if hakmem is not None or "hakmem" not in preloaded:
        environment["LD_PRELOAD"] = f"{libhakmem.find(hakmem)} {preloaded}".strip()
    return environment


def examine_environment(environment: dict[str, str]) -> list[Finding]:
    """The findings for a child that is started with the environment."""
    with subprocess.Popen(
        [sys.executable, "-S", "-E", "-c", _CHILD],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as child:
        assert child.stdout and child.stderr
        try:
            ready = child.stdout.read(5) == "ready"
            found = examine(of_process(child.pid)) if ready else []
        finally:
            child.kill()  # killed, so that it writes no statistics over an existing file
        said = child.stderr.read()
    if not ready:
        last = (said.strip().splitlines() or ["it says nothing"])[-1]
        return [
            Finding(
                "fail",
                "loaded",
                f"a child with this environment does not start: {last}",
                "Check LD_PRELOAD and the limits (ulimit -a).",
            )
        ]
    present = os.environ.get("LD_PRELOAD", "")
    if "hakmem" not in present:
        found.insert(
            1,
            Finding(
                "ok",
                "environment",
                "LD_PRELOAD does not name HAKMEM here: of the programs that are "
                "started from here, those of 'hakmem run' are on it",
            ),
        )
    return found + said_findings(said, found)


def said_findings(said: str, found: list[Finding]) -> list[Finding]:
    """Complaints of the dynamic linker and of the library that are in no other finding."""
    known = " ".join(each.text for each in found).lower()
    more = []
    for line in said.splitlines():
        if "ld.so" in line and "preload" in line:
            more.append(Finding("fail", "loaded", line, "Correct LD_PRELOAD."))
        elif line.startswith("hakmem: option ") and line.split()[2].rstrip(":").lower() not in known:
            more.append(Finding("warn", "option", line.removeprefix("hakmem: "), "docs/options.md lists the options."))
    return more


def parse_limits(text: str) -> dict[str, tuple[float, float]]:
    found = {}
    for line in text.splitlines()[1:]:
        match = re.match(r"(.+?)\s{2,}(\S+)\s+(\S+)", line)
        if match:
            soft, hard = (float("inf") if word == "unlimited" else float(word) for word in match.groups()[1:])
            found[match.group(1)] = (soft, hard)
    return found


# --- findings ---------------------------------------------------------------------------------------------------------


def hakmem_files(maps: Iterable[process.Mapping]) -> list[str]:
    return sorted({each.path for each in maps if "libhakmem" in Path(each.path).name})


def loaded(subject: Subject) -> list[Finding]:
    live = subject.live
    preloaded = subject.environment.get("LD_PRELOAD", "")
    if live is not None:
        return [Finding("ok", "loaded", f"HAKMEM {live.version} from {live.file}")]
    files = hakmem_files(subject.maps)
    if files:
        return [Finding("fail", "loaded", f"{files[0]} is mapped, but has not started", "Try again in a moment.")]
    if "hakmem" in preloaded:
        return [
            Finding(
                "fail",
                "loaded",
                f"LD_PRELOAD={preloaded} names HAKMEM, but it was not loaded",
                "'hakmem run -- PROGRAM' says why: static, privileged, musl, another architecture, or no such file.",
            )
        ]
    return [
        Finding(
            "fail",
            "loaded",
            "not on HAKMEM: LD_PRELOAD does not name it" if not preloaded else f"not on HAKMEM: LD_PRELOAD={preloaded}",
            "Start programs with 'hakmem run -- PROGRAM', or set LD_PRELOAD to libhakmem.so.",
        )
    ]


def first_with(maps: Iterable[process.Mapping], pid: int, name: str) -> list[str]:
    """The mapped files that define a symbol, in the order of their first mapping."""
    seen: dict[str, None] = {}
    for each in maps:
        if each.path.startswith("/") and each.inode:
            seen.setdefault(each.path)
    return [
        path
        for path in seen
        if elf.symbol(process.inside(pid, path.removesuffix(" (deleted)")), name, tables=(".dynsym",)) is not None
    ]


def other_mallocs(subject: Subject) -> list[Finding]:
    live = subject.live
    own = process.executable(subject.pid)
    found = [
        path
        for path in first_with(subject.maps, subject.pid, "malloc")
        if path != (live.file if live else None) and not re.match(r"(libc[.-]|ld-|ld\.)", Path(path).name)
    ]
    if own in found and live is not None and live.file != own:
        return [
            Finding(
                "warn",
                "other mallocs",
                f"{own} has a malloc of its own, which serves it instead of HAKMEM's",
                "Build it without its allocator, or against the C library's malloc.",
            )
        ]
    others = [path for path in found if OTHER_MALLOCS.match(Path(path).name)]
    if not others:
        return [Finding("ok", "other mallocs", "no other than the C library's is loaded")]
    listed = f"{', '.join(others)} {'is' if len(others) == 1 else 'are'} loaded too"
    if live is not None and comes_first(subject, live):
        return [Finding("ok", "other mallocs", f"{listed}, after HAKMEM, which serves")]
    return [
        Finding("warn", "other mallocs", f"{listed}, and serves before HAKMEM", "Put libhakmem.so first in LD_PRELOAD.")
    ]


def comes_first(subject: Subject, live: Live) -> bool:
    """Whether the dynamic linker finds HAKMEM's malloc before another library's: preloaded libraries come first, in
    their order; for linked ones the statistics show it."""
    for word in re.split("[ :]+", subject.environment.get("LD_PRELOAD", "")):
        if "hakmem" in Path(word).name:
            return True
        if OTHER_MALLOCS.match(Path(word).name):
            return False
    return bool(live.snapshot()["total"]["refilled"])


def deep_binding(subject: Subject) -> list[Finding]:
    """Whether libraries opened with RTLD_DEEPBIND, which search the C library first, get HAKMEM's malloc."""
    live = subject.live
    if live is None:
        return []
    keep = subject.options.get("keep_deepbind")
    if keep is not None and keep.value:
        return [
            Finding(
                "warn",
                "deep binding",
                "libraries opened with RTLD_DEEPBIND use another malloc; HAKMEM's blocks crash them",
                "Unset HAKMEM_KEEP_DEEPBIND, unless such a library needs the flag for other symbols.",
            )
        ]
    file = process.inside(subject.pid, live.file.removesuffix(" (deleted)"))
    if elf.symbol(file, "dlopen", tables=(".dynsym",)) is None:
        return [
            Finding(
                "ok",
                "deep binding",
                "dlopen is the C library's: libraries opened with RTLD_DEEPBIND use another malloc",
                "If the program opens such libraries, preload libhakmem.so, or link it instead of the archive.",
            )
        ]
    return [Finding("ok", "deep binding", "RTLD_DEEPBIND is removed: libraries opened with it use HAKMEM too")]


def option_findings(subject: Subject) -> list[Finding]:
    """Compares the variables with the values in force."""
    options = subject.options
    by_variable = {option.variable: option for option in options.values()}
    found = []
    for name, value in sorted(subject.environment.items()):
        if not options or not name.startswith(PREFIX) or name in NOT_OPTIONS:
            continue
        if name not in by_variable:
            found.append(
                Finding(
                    "warn",
                    "option",
                    f"{name} is not an option{nearest(name, by_variable)}",
                    "docs/options.md lists them.",
                )
            )
        elif by_variable[name].origin not in ("variable", "api"):
            found.append(
                Finding(
                    "warn",
                    "option",
                    f"{name}={value} was not accepted; {shown(by_variable[name])} is in force",
                    range_of(by_variable[name]),
                )
            )
    for option in options.values():
        if option.origin != "default":
            found.append(
                Finding(
                    "ok",
                    "option",
                    f"{option.name} = {shown(option)}, from {ORIGINS.get(option.origin, option.origin)} "
                    f"({default_of(option)}takes effect {option.takes_effect})",
                )
            )
    if options and not found:
        found.append(Finding("ok", "options", "all have their default values"))
    return found


def range_of(option: Option) -> str:
    if option.kind == "every":
        return f"Give a time, or a size of up to {shown(option, option.most)}."
    return f"Give a value from {option.least} to {option.most}."


ORIGINS = {
    "default": "the default",
    "system": "the system's limit for the process",
    "preset": "the preset",
    "symbol": "the program (hak_conf)",
    "conf": "HAKMEM_CONF",
    "variable": "its variable",
    "api": "the program (API)",
}


def default_of(option: Option) -> str:
    """The default as text; for options whose values are words it is not known from outside."""
    return "" if option.kind in ("preset", "stats") else f"default {shown(option, option.standard)}; "


def shown(option: Option, value: int | None = None) -> str:
    if value is None:
        if option.word:
            return option.word
        value = option.value
    kind, amount = option.form_of(value)
    if kind == "bytes":
        return in_bytes(amount) if amount else "0"
    return f"{amount} ms" if kind == "time" else str(amount)


def capacities(subject: Subject) -> list[Finding]:
    options = subject.options
    if not options:
        return []
    preset = options["preset"].word if "preset" in options else None
    bands = [str(options[name].value) for name in BANDS if name in options]
    text = f"preset {preset}; C0..C7 {' '.join(bands)}"
    rings = [
        f"{name} {options[option].value}"
        for name, option in (("L2", "l2_ring_cap"), ("L2.5", "l25_ring_cap"))
        if option in options
    ]
    found = [Finding("ok", "capacities", "; ".join([text, *rings]))]
    reached = [f"{size} B: {now} of {most}" for size, now, most in subject.capacities if now == most > 0]
    if subject.capacities:
        found.append(
            Finding(
                "ok",
                "capacities",
                "no class has grown to its largest capacity yet"
                if not reached
                else f"{counted(len(reached), 'class')} grown to the largest capacity ({', '.join(reached[:3])}"
                + (", ...)" if len(reached) > 3 else ")"),
            )
        )
    if "tiny_unified_cache" in options and options["tiny_unified_cache"].value == 0:
        found.append(
            Finding(
                "warn",
                "capacities",
                "the thread cache of C0..C7 is off: every small request is slow",
                "Unset HAKMEM_TINY_UNIFIED_CACHE, unless this is an experiment.",
            )
        )
    if "stats" in options and options["stats"].word == "exact":
        found.append(
            Finding(
                "warn",
                "speed",
                "HAKMEM_STATS=exact counts every call, which is slow",
                "Use HAKMEM_STATS=1, json: or prom: where time matters.",
            )
        )
    return found


def profile(subject: Subject) -> list[Finding]:
    """A heap profile costs time for each sample, and may have been left on by accident."""
    if subject.live is None or not subject.live.is_profiled:
        return []
    option = subject.options.get("profile")
    if option is not None and option.origin != "default" and option.word != "ready":
        return [Finding("ok", "profile", "a heap profile is on, by the option profile")]
    return [
        Finding(
            "warn",
            "profile",
            "a heap profile is on, started while the process ran",
            f"hakmem profile {subject.pid} --off stops it.",
        )
    ]


def chosen_word(path: str) -> str | None:
    """The word in brackets, as in 'always [madvise] never'."""
    try:
        match = re.search(r"\[(\w+)\]", Path(path).read_text())
    except OSError:
        return None
    return match.group(1) if match else None


def huge_pages(subject: Subject) -> list[Finding]:
    setting = chosen_word("/sys/kernel/mm/transparent_hugepage/enabled")
    if setting is None:
        return [Finding("ok", "huge pages", "this kernel has no transparent huge pages")]
    status = process.kilobytes(subject.pid, "AnonHugePages")
    taken = f"; {in_bytes(status)} of the process use them" if status else ""
    if setting == "always":
        return [
            Finding(
                "warn",
                "huge pages",
                f"transparent huge pages: always{taken}; small heaps may take more memory",
                "To save memory: write madvise to /sys/kernel/mm/transparent_hugepage/enabled.",
            )
        ]
    return [Finding("ok", "huge pages", f"transparent huge pages: {setting}{taken}")]


def page_size(_: Subject) -> list[Finding]:
    size = resource.getpagesize()
    known = 4096 <= size <= 65536
    return [
        Finding(
            "ok" if known else "fail",
            "page size",
            f"{size >> 10} KiB",
            "" if known else "HAKMEM works with pages of 4 KiB to 64 KiB.",
        )
    ]


def address_space(subject: Subject) -> list[Finding]:
    soft, _ = subject.limits.get("Max address space", (float("inf"), float("inf")))
    if soft == float("inf"):
        return [Finding("ok", "address space", "no limit (RLIMIT_AS)")]
    used = process.kilobytes(subject.pid, "VmSize")
    text = f"{in_bytes(used)} of {in_bytes(int(soft))} in use (RLIMIT_AS, ulimit -v)"
    if used > soft * 0.9:
        return [Finding("fail", "address space", text, "Raise it: ulimit -v unlimited.")]
    level: Level = "warn" if soft < 256 << 20 else "ok"
    return [
        Finding(
            level,
            "address space",
            text,
            "Raise it (ulimit -v) if requests fail with ENOMEM." if level == "warn" else "",
        )
    ]


def group_folders(groups: str) -> list[Path]:
    """The folders of the process's control group (v2) and of those above it."""
    mount = next(
        (
            Path(line.split()[1])
            for line in Path("/proc/self/mounts").read_text().splitlines()
            if line.split()[2] == "cgroup2"
        ),
        None,
    )
    own = next((line[3:] for line in groups.splitlines() if line.startswith("0::")), None)
    if mount is None or own is None:
        return []
    inner = mount / own.lstrip("/")
    return [folder for folder in (inner, *inner.parents) if folder == mount or mount in folder.parents]


def group_value(folder: Path, name: str) -> int | None:
    try:
        return int((folder / name).read_text())
    except (OSError, ValueError):  # "max" is no number
        return None


def control_group(subject: Subject) -> list[Finding]:
    return of_groups(group_folders(subject.groups))


def of_groups(folders: Iterable[Path]) -> list[Finding]:
    """The limits of a group and of those above it, each with the memory in use there."""
    found: list[Finding] = []
    for folder in folders:
        for name in ("memory.max", "memory.high"):
            limit = group_value(folder, name)
            if limit is None:
                continue
            used = group_value(folder, "memory.current") or 0
            near = used > limit * 0.9
            found.append(
                Finding(
                    "warn" if near else "ok",
                    "control group",
                    f"{name} of {folder} is {in_bytes(limit)}, {in_bytes(used)} in use",
                    "Raise the limit, or give HAKMEM_LIMIT and a smaller HAKMEM_DIRTY_LIMIT." if near else "",
                )
            )
    return found or [Finding("ok", "control group", "no memory.max or memory.high (v2) applies")]


def overcommit(_: Subject) -> list[Finding]:
    mode = int(Path("/proc/sys/vm/overcommit_memory").read_text())
    if mode != 2:
        return [Finding("ok", "overcommit", f"vm.overcommit_memory is {mode}")]
    info = {line.split(":")[0]: int(line.split()[1]) << 10 for line in Path("/proc/meminfo").read_text().splitlines()}
    limit, used = info.get("CommitLimit", 0), info.get("Committed_AS", 0)
    near = used > limit * 0.9
    return [
        Finding(
            "warn" if near else "ok",
            "overcommit",
            f"vm.overcommit_memory is 2: {in_bytes(used)} of {in_bytes(limit)} are committed",
            "Raise vm.overcommit_ratio, or add swap." if near else "",
        )
    ]


def map_count(subject: Subject) -> list[Finding]:
    most, used = int(Path("/proc/sys/vm/max_map_count").read_text()), len(subject.maps)
    level: Level = "fail" if used > most * 0.95 else "warn" if used > most * 0.8 else "ok"
    return [
        Finding(
            level,
            "map count",
            f"{used} of {most} mappings (vm.max_map_count)",
            "" if level == "ok" else f"sudo sysctl vm.max_map_count={2 * most}",
        )
    ]


LOOKS: tuple[Callable[[Subject], list[Finding]], ...] = (
    loaded,
    other_mallocs,
    deep_binding,
    option_findings,
    capacities,
    profile,
    huge_pages,
    page_size,
    address_space,
    control_group,
    overcommit,
    map_count,
)


def examine(subject: Subject) -> list[Finding]:
    return [finding for look in LOOKS for finding in look(subject)]


def as_json(findings: list[Finding]) -> str:
    result: dict[str, Any] = {"findings": [asdict(each) for each in findings], "status": worst(findings)}
    return json.dumps(result, indent=1)


def worst(findings: list[Finding]) -> Level:
    levels = [each.level for each in findings]
    return "fail" if "fail" in levels else "warn" if "warn" in levels else "ok"
