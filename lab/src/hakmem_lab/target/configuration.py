"""A configuration: the allocator and the variables that a program runs with, from one line of text.

    HAKMEM_REFILL_COUNT=64        a variable; several are separated by spaces, quoted as in a shell
    refill_count=64               the same, by the option's name
    lib:out/new/libhakmem.so      another library file
    alloc:mimalloc                another allocator that is installed; alloc:system is the C library's
    cmd:./new                     another program with the same arguments, on the C library's malloc unless alloc: or
                                  lib: says otherwise
    lib:PATH HAKMEM_STATS=exact   any combination; an empty text is HAKMEM with its defaults

Variables of HAKMEM must be options that the library has, with values that it accepts.
"""

from __future__ import annotations

import difflib
import re
import shlex
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hakmem_lab.target import allocators, libhakmem
from hakmem_lab.target.allocators import HAKMEM, SYSTEM, Allocator
from hakmem_lab.terminal.errors import LabError

PREFIX = "HAKMEM_"
ADVICE = "Examples: 'HAKMEM_REFILL_COUNT=64', 'lib:out/other/libhakmem.so HAKMEM_TIERS=0', 'alloc:mimalloc'."


@dataclass(frozen=True)
class Configuration:
    """One way of running a program."""

    label: str
    text: str
    allocator: Allocator
    settings: dict[str, str] = field(default_factory=dict)
    program: tuple[str, ...] = ()  # in place of the command's first word

    def command(self, given: Sequence[str]) -> list[str]:
        """The command to run."""
        return [*self.program, *given[1:]] if self.program else list(given)

    def environment(self) -> dict[str, str]:
        """The whole environment of the program."""
        return {**self.allocator.environment(), **self.settings}

    @property
    def title(self) -> str:
        return f"{self.label}: {self.text}" if self.text and self.text != self.label else self.label


def nearest(name: str, known: Iterable[str]) -> str:
    """', did you mean X?' if a known name is similar, else nothing."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {found[0]}?" if found else ""


def find_allocator(name: str, hakmem: Path | None) -> Allocator:
    """The allocator of that name; `hakmem` is the file given with --library, if any."""
    if name == HAKMEM:
        return Allocator(HAKMEM, "ours", libhakmem.find(hakmem))
    if name in (SYSTEM, "glibc", "libc"):
        return Allocator(SYSTEM, "peer")
    known = (HAKMEM, SYSTEM, *allocators.PEERS)
    if name not in known:
        raise LabError(f"alloc:{name}: unknown{nearest(name, known)}", f"Known are {', '.join(known)}.")
    path = allocators.find_peers()[name]
    if path is None:
        raise LabError(f"alloc:{name}: not installed", "Install it ('./dev setup --peers' brings the common ones).")
    return Allocator(name, "peer", path)


def _split_setting(token: str, options: dict[str, libhakmem.Option]) -> tuple[str, str]:
    """The variable and the value of `name=value` or `NAME=value`; checks that there is such an option."""
    name, equals, value = token.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise LabError(f"'{token}' is neither NAME=VALUE nor alloc:NAME nor lib:PATH", ADVICE)
    if name == name.lower():
        if name not in options:
            raise LabError(f"no option {name}{nearest(name, options)}", "docs/options.md lists them.")
        return options[name].variable, value
    if name.startswith(PREFIX) and name != "HAKMEM_CONF":
        variables = [each.variable for each in options.values()]
        if name not in variables:
            raise LabError(f"the library has no option {name}{nearest(name, variables)}", "docs/options.md lists them.")
    return name, value


def _check_values(configuration: Configuration) -> None:
    """Asks the library itself whether it accepts the values."""
    names = [name for name in configuration.settings if name.startswith(PREFIX)]
    if not names or configuration.allocator.shared_object is None:
        return
    asked = {k: v for k, v in configuration.settings.items() if k not in ("HAKMEM_STATS", "HAKMEM_STATS_SIGNAL")}
    said = libhakmem.warnings(configuration.allocator.shared_object, {**libhakmem.without_settings(), **asked})
    if said:
        raise LabError(
            f"{configuration.text}: the library says: {said}", "docs/options.md has the bounds of each option."
        )


def parse(text: str, label: str, hakmem: Path | None = None, checked: bool = True) -> Configuration:
    """A configuration from its text; a LabError that names the most similar option or allocator if it is wrong.

    hakmem: the library file if the text names none.  checked: ask the library whether it accepts the values."""
    try:
        tokens = shlex.split(text)
    except ValueError as error:
        raise LabError(f"'{text}': {error}", "Quote values as in a shell.") from error
    chosen: Allocator | None = None
    settings: list[str] = []
    program: tuple[str, ...] = ()
    for token in tokens:
        kind, colon, rest = token.partition(":")
        if colon and kind == "cmd":
            program = tuple(shlex.split(rest))
            if not program:
                raise LabError(f"'{text}': cmd: names no program", "Example: --a 'cmd:./old' --b 'cmd:./new'")
            continue
        if not colon or kind not in ("alloc", "lib"):
            settings.append(token)
            continue
        if chosen is not None:
            raise LabError(f"'{text}': more than one alloc: or lib:", ADVICE)
        chosen = find_allocator(rest, hakmem) if kind == "alloc" else library_file(rest)
    allocator = chosen or find_allocator(SYSTEM if program and not settings else HAKMEM, hakmem)
    ours = allocator.shared_object if allocator.kind == "ours" else None
    options = libhakmem.options(ours) if ours else {}
    pairs = dict(_split_setting(token, options) for token in settings) if options else _foreign(settings, allocator)
    configuration = Configuration(label, text, allocator, pairs, program)
    if checked and allocator.kind == "ours":
        _check_values(configuration)
    return configuration


def library_file(path: str) -> Allocator:
    """A library by its path: HAKMEM if it lists HAKMEM's options, otherwise a peer."""
    file = Path(path).expanduser()
    if not file.is_file():
        raise LabError(f"lib:{path}: no such file", "Give the path of a shared library that replaces malloc.")
    file = file.resolve()
    try:
        libhakmem.options(file)
    except LabError:
        return Allocator(file.name, "peer", file)
    return Allocator(HAKMEM, "ours", file)


def _foreign(settings: list[str], allocator: Allocator) -> dict[str, str]:
    """The settings of an allocator whose options the lab does not know."""
    pairs: dict[str, str] = {}
    for token in settings:
        name, equals, value = token.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise LabError(f"'{token}' is neither NAME=VALUE nor alloc:NAME nor lib:PATH", ADVICE)
        if name.startswith(PREFIX):
            raise LabError(f"{name} has no effect on {allocator.name}", "Leave out alloc: or lib:, or the variable.")
        pairs[name] = value
    return pairs


def require_loadable(configurations: Iterable[Configuration]) -> None:
    """A LabError unless every preloaded library really serves malloc on this machine."""
    probe = Path("/bin/true").resolve()
    preloaded = {each.allocator.shared_object for each in configurations}
    for shared_object in preloaded:
        if shared_object is None:
            continue
        allocator = Allocator(str(shared_object), "peer", shared_object)
        try:
            problem = allocators.why_not_loaded(allocator, probe)
        except (OSError, subprocess.SubprocessError) as error:
            problem = str(error)
        if problem is not None:
            raise LabError(
                f"{shared_object} does not serve malloc when preloaded: {problem}", "Build it anew, or choose another."
            )
