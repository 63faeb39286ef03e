"""Other allocators' settings in HAKMEM's terms: one table, for `hakmem translate` and docs/coming-from.md.

A rule has the other allocator's name of a setting, a conversion of its value into HAKMEM options, and a remark.  If no
option corresponds, the remark says why none is needed or what to do instead.  This module imports the standard library
only."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

Options = dict[str, str]
Convert = Callable[[str], Options]
NEVER = "3600s"  # the longest purge delay
TRUE = ("1", "true", "yes", "on")


@dataclass(frozen=True)
class Rule:
    """One setting of another allocator."""

    name: str
    becomes: str  # for the page: the HAKMEM setting in words, or nothing
    remark: str
    convert: Convert | None = None
    pattern: str = ""  # other names with the same meaning


@dataclass(frozen=True)
class Family:
    """An allocator and the settings it knows."""

    title: str
    variables: str  # a pattern for its variables
    rules: tuple[Rule, ...]


@dataclass
class Translated:
    """The translation of a line."""

    options: Options = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)  # "setting: what to know"
    unknown: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)  # words of the line that belong to no allocator

    def line(self) -> str:
        """The settings as a shell reads them."""
        shown = [f"HAKMEM_{name.upper()}={shlex.quote(value)}" for name, value in self.options.items()]
        return " ".join([*shown, *map(shlex.quote, self.kept)])


def _milliseconds(value: str) -> Options:
    number = int(value)
    return {"purge_delay": NEVER if number < 0 or number > 3_600_000 else f"{number}ms"}


def _bytes(name: str) -> Convert:
    return lambda value: {name: str(int(value, 0))}


def _if_true(**options: str) -> Convert:
    return lambda value: options if value.lower() in TRUE else {}


def _either(name: str, yes: str, no: str) -> Convert:
    return lambda value: {name: yes if value.lower() in TRUE else no}


def _word(name: str, words: dict[str, str]) -> Convert:
    return lambda value: {name: words[value]} if words.get(value) else {}


def _if_above(least: int, **options: str) -> Convert:
    return lambda value: options if int(value, 0) >= least else {}


def _if_zero(**options: str) -> Convert:
    return lambda value: options if int(value, 0) == 0 else {}


def _power(name: str) -> Convert:
    """A size given by its binary logarithm; below 0: none."""
    return lambda value: {name: f"{max(1 << int(value) >> 10, 1)}K"} if int(value) >= 0 else {}


def _profile(value: str) -> Options:
    """jemalloc's profiler settings as one value (_settings), or its switch alone."""
    if value.partition(":")[0] in ("1", "ready", "leaks"):
        return {"profile": value}
    return {"profile": "1"} if value.lower() in TRUE else {}


def _seconds(name: str) -> Convert:
    return lambda value: {name: f"{int(value)}s"} if int(value) > 0 else {}


def _megabytes(value: str) -> Options:
    return {"limit": f"{int(value)}M"}


ARENAS = "Nothing: every thread has its own heap."
OWN_SIZES = "Nothing: caches grow by use within HAKMEM_THREAD_BUDGET."
PROFILER = "Or nothing: `hakmem profile PID` profiles any process."
PART_OF_PROFILE = "Where prof is true."

JEMALLOC = (
    Rule("dirty_decay_ms", "HAKMEM_PURGE_DELAY", "The same meaning; -1 (never) becomes an hour.", _milliseconds),
    Rule("muzzy_decay_ms", "", "Nothing: memory goes back in one step."),
    Rule("background_thread", "HAKMEM_BACKGROUND", "The same meaning.", _either("background", "1", "0")),
    Rule(
        "thp",
        "HAKMEM_THP",
        "jemalloc's default is auto.",
        _word("thp", {"always": "always", "never": "never", "default": "auto"}),
    ),
    Rule("retain", "HAKMEM_UNMAP", "Inverted.", _either("unmap", "0", "1")),
    Rule(
        "tcache",
        "HAKMEM_THREAD_BUDGET=0 for false",
        "Caches keep a few blocks per size.",
        lambda value: {} if value.lower() in TRUE else {"thread_budget": "0"},
    ),
    Rule("lg_tcache_max", "", OWN_SIZES, pattern="tcache_max|tcache_nslots.*|lg_tcache_nslots_mul"),
    Rule("narenas", "", ARENAS, pattern="percpu_arena"),
    Rule("stats_print", "HAKMEM_STATS=1", "Printed at exit.", _if_true(stats="1")),
    Rule(
        "junk",
        "HAKMEM_HARDEN=zero",
        "Freed blocks are cleared, and checked before reuse.",
        lambda value: {"harden": "zero"} if value in (*TRUE, "free", "alloc") else {},
    ),
    Rule(
        "quarantine",
        "HAKMEM_HARDEN=1, HAKMEM_HARDEN_QUARANTINE",
        "Old releases only.",
        lambda value: {"harden": "1", "harden_quarantine": str(int(value))},
    ),
    Rule("redzone", "HAKMEM_HARDEN=canary", "Old releases only.", _if_true(harden="canary")),
    Rule("prof", "HAKMEM_PROFILE=1", PROFILER, _profile),
    Rule("lg_prof_sample", "HAKMEM_PROFILE_INTERVAL", "In bytes, not as a logarithm.", _power("profile_interval")),
    Rule(
        "lg_prof_interval",
        "HAKMEM_PROFILE_EVERY",
        "By mapped bytes, not allocated ones.",
        _power("profile_every"),
    ),
    Rule("prof_active", "HAKMEM_PROFILE=ready for false", PART_OF_PROFILE),
    Rule("prof_leak", "HAKMEM_PROFILE=leaks", PART_OF_PROFILE),
    Rule("prof_prefix", "HAKMEM_PROFILE=1:PREFIX", PART_OF_PROFILE),
    Rule("prof_final", "", "Nothing: a profile is written at exit.", pattern="prof_.*|lg_prof_.*"),
    Rule(
        "abort_conf",
        "",
        "Nothing: a wrong setting is reported and ignored.",
        pattern="confirm_conf|abort",
    ),
    Rule(
        "metadata_thp",
        "",
        "Nothing: tables take little memory.",
        pattern="oversize_threshold|dss|hpa.*|lg_extent_max_active_fit",
    ),
    Rule("xmalloc", "", "Nothing: a failing malloc gives NULL."),
    Rule("zero", "", "Use calloc; HAKMEM_HARDEN=zero clears freed blocks."),
)
MIMALLOC = (
    Rule(
        "MIMALLOC_PURGE_DELAY",
        "HAKMEM_PURGE_DELAY",
        "The same meaning; -1 (never) becomes an hour.",
        _milliseconds,
        "MIMALLOC_RESET_DELAY",
    ),
    Rule("MIMALLOC_SHOW_STATS", "HAKMEM_STATS=1", "Printed at exit.", _if_true(stats="1")),
    Rule("MIMALLOC_ALLOW_THP", "HAKMEM_THP", "0 is never; 1 leaves it to HAKMEM.", _either("thp", "auto", "never")),
    Rule(
        "MIMALLOC_ALLOW_LARGE_OS_PAGES",
        "HAKMEM_THP=always",
        "Transparent huge pages, not those of hugetlbfs.",
        _if_true(thp="always"),
        "MIMALLOC_LARGE_OS_PAGES",
    ),
    Rule(
        "MIMALLOC_SHOW_ERRORS",
        "",
        "Nothing: misuse ends the program with a message; HAKMEM_MISUSE=report only reports it.",
        pattern="MIMALLOC_VERBOSE|MIMALLOC_MAX_(ERRORS|WARNINGS)",
    ),
    Rule(
        "MIMALLOC_RESERVE_HUGE_OS_PAGES",
        "",
        "No equivalent: no memory is reserved at start.",
        pattern="MIMALLOC_(RESERVE|ARENA|EAGER_COMMIT|PURGE|ABANDONED)_.*|MIMALLOC_EAGER_COMMIT|MIMALLOC_USE_NUMA_NODES",
    ),
)
TCMALLOC = (
    Rule(
        "TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES", "HAKMEM_PROCESS_BUDGET", "The same meaning.", _bytes("process_budget")
    ),
    Rule("TCMALLOC_HEAP_LIMIT_MB", "HAKMEM_LIMIT", "In mapped bytes; beyond it malloc gives NULL.", _megabytes),
    Rule(
        "TCMALLOC_AGGRESSIVE_DECOMMIT",
        "HAKMEM_PURGE_DELAY=0",
        "Memory goes back as soon as it is free.",
        _if_true(purge_delay="0"),
    ),
    Rule(
        "TCMALLOC_RELEASE_RATE",
        "HAKMEM_PURGE_DELAY",
        "0 (never) becomes an hour; others need nothing.",
        _if_zero(purge_delay=NEVER),
    ),
    Rule("HEAPPROFILE", "HAKMEM_PROFILE=1:PREFIX", PROFILER, lambda value: {"profile": f"1:{value}"}),
    Rule(
        "HEAPCHECK",
        "HAKMEM_PROFILE=leaks",
        "`hakmem leaks -- PROGRAM` shows their stacks.",
        lambda value: {"profile": "leaks"} if value else {},
        "PPROF_PATH",
    ),
    Rule(
        "TCMALLOC_SAMPLE_PARAMETER",
        "HAKMEM_PROFILE_INTERVAL",
        "The same meaning; 0 (no samples) is the default here.",
        lambda value: {"profile_interval": str(int(value))} if int(value) else {},
    ),
    Rule(
        "HEAP_PROFILE_INUSE_INTERVAL",
        "HAKMEM_PROFILE_EVERY",
        "By mapped bytes.",
        lambda value: {"profile_every": f"{max(int(value) >> 10, 1)}K"} if int(value) else {},
        "HEAP_PROFILE_ALLOCATION_INTERVAL",
    ),
    Rule("HEAP_PROFILE_TIME_INTERVAL", "HAKMEM_PROFILE_EVERY", "The same meaning.", _seconds("profile_every")),
    Rule("HEAP_PROFILE_MMAP", "", "Nothing: only blocks are sampled.", pattern="HEAP_PROFILE_.*|HEAP_CHECK_.*"),
    Rule(
        "TCMALLOC_SKIP_MMAP",
        "",
        "Nothing: memory comes only from mmap.",
        pattern="TCMALLOC_SKIP_SBRK|TCMALLOC_DEVMEM_.*",
    ),
    Rule(
        "TCMALLOC_LARGE_ALLOC_REPORT_THRESHOLD",
        "",
        "No equivalent; hak_set_pressure_callback reports high use.",
    ),
)
GLIBC = (
    Rule("glibc.malloc.arena_max", "", ARENAS, pattern="MALLOC_ARENA_(MAX|TEST)|glibc.malloc.arena_test"),
    Rule(
        "glibc.malloc.trim_threshold",
        "HAKMEM_DIRTY_LIMIT",
        "Unused memory beyond it, wherever it lies, is returned.",
        _bytes("dirty_limit"),
        "MALLOC_TRIM_THRESHOLD_",
    ),
    Rule(
        "glibc.malloc.mmap_threshold",
        "",
        "Nothing: blocks of every size go back to the system.",
        pattern="glibc.malloc.mmap_max|MALLOC_MMAP_(THRESHOLD|MAX)_|glibc.malloc.top_pad|MALLOC_TOP_PAD_",
    ),
    Rule(
        "glibc.malloc.tcache_count",
        "HAKMEM_THREAD_BUDGET=0 for 0",
        OWN_SIZES,
        _if_zero(thread_budget="0"),
        "glibc.malloc.tcache_max",
    ),
    Rule(
        "glibc.malloc.check",
        "HAKMEM_HARDEN=canary",
        "Finds overflows at free; other checks are always on.",
        _if_above(1, harden="canary"),
        "MALLOC_CHECK_",
    ),
    Rule(
        "glibc.malloc.perturb",
        "HAKMEM_HARDEN=zero",
        "Freed blocks are cleared rather than filled.",
        _if_above(1, harden="zero"),
        "MALLOC_PERTURB_",
    ),
    Rule(
        "glibc.malloc.hugetlb",
        "HAKMEM_THP=always for 1",
        "No equivalent of 2, hugetlbfs.",
        _word("thp", {"1": "always"}),
    ),
    Rule("glibc.malloc.mxfast", "", OWN_SIZES, pattern="glibc.malloc.tcache_unsorted_limit"),
)
FAMILIES = (
    Family("jemalloc", r"_?(?:RJEM_|JE_)?MALLOC_CONF|_RJEM_MALLOC_CONF", JEMALLOC),
    Family("mimalloc", r"MIMALLOC_\w+", MIMALLOC),
    Family("tcmalloc", r"TCMALLOC_\w+|HEAPPROFILE|HEAPCHECK|HEAP_PROFILE_\w+|HEAP_CHECK_\w+", TCMALLOC),
    Family("glibc", r"GLIBC_TUNABLES|MALLOC_[A-Z_]+", GLIBC),
)
PRELOADED = re.compile(r"\S*lib(?:je|mi|tc|sn|rp)malloc\S*")


def _settings(family: Family, name: str, value: str) -> Iterator[tuple[str, str]]:
    """The individual settings in a variable."""
    if family.title == "jemalloc":
        parts = [part.partition(":") for part in value.split(",") if part]
        found = {key.strip(): given.strip() for key, _, given in parts}
        if found.get("prof", "").lower() in TRUE:
            at_start = "ready" if found.get("prof_active") == "false" else "1"
            word = "leaks" if found.get("prof_leak") in TRUE else at_start
            found["prof"] = f"{word}:{found['prof_prefix']}" if "prof_prefix" in found else word
        yield from found.items()
    elif name == "GLIBC_TUNABLES":
        for part in filter(None, value.split(":")):
            key, _, given = part.partition("=")
            yield key, given
    else:
        yield name, value


def rule_of(family: Family, name: str) -> Rule | None:
    """The rule that applies to a setting."""
    for rule in family.rules:
        if name == rule.name or (rule.pattern and re.fullmatch(rule.pattern, name)):
            return rule
    return None


def _apply(out: Translated, family: Family, name: str, value: str) -> None:
    rule = rule_of(family, name)
    if rule is None:
        out.unknown.append(f"{name}: this table knows no such setting of {family.title}")
        return
    try:
        gained = rule.convert(value) if rule.convert else {}
    except ValueError:
        out.unknown.append(f"{name}: '{value}' is not one of its values")
        return
    if "harden" in gained and out.options.get("harden", gained["harden"]) != gained["harden"]:
        parts = {*out.options["harden"].split(","), gained["harden"]}
        gained = {**gained, "harden": "1" if "1" in parts else ",".join(sorted(parts))}
    out.options |= gained
    out.remarks.append(f"{name}: {rule.remark}")


def _preload(out: Translated, value: str) -> None:
    left = [each for each in value.replace(":", " ").split() if not PRELOADED.fullmatch(each)]
    out.remarks.append(
        "LD_PRELOAD: hakmem run or LD_PRELOAD=$(hakmem path) loads HAKMEM instead of the other allocator"
    )
    if left:
        out.kept.append("LD_PRELOAD=" + " ".join(left))


def translate(line: str) -> Translated:
    """Translates a shell line, which may begin with `export` or end with a command."""
    out = Translated()
    words = [word for word in shlex.split(line) if word != "export"]
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        if not equals or not re.fullmatch(r"\w+", name):
            out.kept += words[at:]
            break
        family = next((each for each in FAMILIES if re.fullmatch(each.variables, name)), None)
        if name == "LD_PRELOAD" and PRELOADED.search(value):
            _preload(out, value)
        elif family is None:
            out.kept.append(word)
        else:
            for key, given in _settings(family, name, value):
                _apply(out, family, key, given)
    return out
