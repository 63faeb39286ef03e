"""Several programs in one experiment: a TOML file of cases, or one program with values for its parameters.

    runs = 10                     # optional, for all cases; by default the command line's
    [[case]]
    name = "parse"
    command = "./parse {size}"    # or a list of words; {size} is a parameter
    params = { size = [1, 100] }  # optional: one case for each combination of values
    metric = "time"               # optional, as metric, threshold, prepare, cleanup, input and the rest below

Each case is a separate experiment with its own file.  A round runs every case, so that the machine's drift affects them
all equally.  The cases share the error rate; see `overall`.
"""

from __future__ import annotations

import itertools
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hakmem_lab.terminal.errors import LabError, UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Value = str | int | float
NAME = r"[A-Za-z0-9][A-Za-z0-9_.=, +-]*"
EXAMPLE = 'Example: [[case]] name = "parse"  command = "./parse big.json"; docs/lab.md has all keys.'
PLACE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


class Case(BaseModel):
    """One program of an experiment, as in the file."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=f"^{NAME}$", max_length=80)
    command: str | list[str]
    params: dict[str, list[Value]] = Field(default_factory=dict)
    metric: str | None = None
    lower_is_better: bool = False
    threshold: float | None = Field(default=None, ge=0)
    timeout: float | None = Field(default=None, gt=0)
    prepare: str | None = None
    cleanup: str | None = None
    input: str | None = None
    client: str | None = None
    ready: str | None = None
    latency: str | None = None

    @property
    def words(self) -> list[str]:
        return shlex.split(self.command) if isinstance(self.command, str) else list(self.command)


class Cases(BaseModel):
    """The whole file."""

    model_config = ConfigDict(extra="forbid")

    runs: int | None = Field(default=None, ge=2)
    warmup: int | None = Field(default=None, ge=0)
    case: list[Case] = Field(min_length=1)


def parse_params(given: Sequence[str]) -> dict[str, list[Value]]:
    """Parses 'name=1,2,4'; each name and each of its values may occur once."""
    found: dict[str, list[Value]] = {}
    for text in given:
        name, equals, values = text.partition("=")
        listed: list[Value] = [each.strip() for each in values.split(",") if each.strip()]
        if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or not listed:
            raise UsageError(f"--param {text}: not NAME=VALUE,VALUE", "Example: --param size=1,2,4 -- ./program {size}")
        if name in found or len(set(listed)) != len(listed):
            raise UsageError(f"--param {text}: given twice", "Give each name and each of its values once.")
        found[name] = listed
    return found


def _filled(text: str, values: Mapping[str, Value]) -> str:
    """The text with its parameters replaced; other braces stay, since shells and JSON use them too."""
    return PLACE.sub(lambda found: str(values.get(found.group(1), found.group(0))), text)


def _label(values: Mapping[str, Value]) -> str:
    """The parameters as a part of the case's name, and so of its file's."""
    return " ".join(re.sub(r"[^A-Za-z0-9_.=, +-]", "_", f"{name}={value}") for name, value in values.items())


def expand(case: Case) -> list[Case]:
    """The case once for each combination of its parameters' values."""
    if not case.params:
        return [case]
    texts = [*case.words, case.prepare or "", case.cleanup or "", case.input or "", case.client or "", case.ready or ""]
    used = {found for text in texts for found in PLACE.findall(text)}
    for name in case.params:
        if name not in used:
            raise LabError(f"{case.name}: the parameter {name} is not used", f"Write {{{name}}} in the command.")
    found = []
    for combination in itertools.product(*case.params.values()):
        values = dict(zip(case.params, combination, strict=True))
        filled: dict[str, Any] = {
            key: _filled(text, values)
            for key in ("prepare", "cleanup", "input", "client", "ready")
            if (text := getattr(case, key)) is not None
        }
        filled |= {"name": f"{case.name} {_label(values)}", "command": [_filled(word, values) for word in case.words]}
        found.append(case.model_copy(update={**filled, "params": {}}))
    return found


def _checked(cases: Sequence[Case]) -> list[Case]:
    names = [each.name for each in cases]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise LabError(f"{', '.join(twice)}: more than one case of that name", "Give each case a different name.")
    for each in cases:
        if not each.words:
            raise LabError(f"{each.name}: no command", EXAMPLE)
    return list(cases)


def of_program(command: Sequence[str], params: Mapping[str, list[Value]], **more: Any) -> list[Case]:
    """The cases of one program from the command line."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", Path(command[0]).name).lstrip("_.-") or "program"
    return _checked(expand(Case(name=name, command=list(command), params=dict(params), **more)))


def read(path: Path) -> tuple[Cases, list[Case]]:
    """The file, and its cases with their parameters filled in; a LabError that says where the file is wrong."""
    try:
        parsed = Cases.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
        return parsed, _checked([each for case in parsed.case for each in expand(case)])
    except OSError as error:
        raise LabError(f"--cases {path}: {error.strerror}", EXAMPLE) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LabError(f"--cases {path}: not TOML: {error}", EXAMPLE) from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if not isinstance(part, int) or part >= 0)
        raise LabError(f"--cases {path}: {where}: {first['msg']}", EXAMPLE) from error
    except ValueError as error:
        raise LabError(f"--cases {path}: {error}", "Quote commands as in a shell.") from error


# --- the verdict on all of them ---------------------------------------------------------------------------------------

Word = Literal["GO", "NO-GO", "INCONCLUSIVE"]


def overall(words: Sequence[str], worse: Sequence[str], better: Sequence[str]) -> tuple[Word, str]:
    """One verdict on all cases, each judged with its share of the error rate.

    worse, better: the cases that are shown to be worse by the threshold, and those that are GO.  One worse case is
    enough for a NO-GO, since the change would apply to all programs."""
    if worse:
        return "NO-GO", f"shown to be worse: {', '.join(worse)}"
    if better:
        rest = len(words) - len(better)
        return "GO", f"better: {', '.join(better)}" + ("; none is shown to be worse" if rest else "")
    if all(word == "NO-GO" for word in words):
        return "NO-GO", "no case reaches the threshold"
    return "INCONCLUSIVE", "no case is GO, and not all are NO-GO"
