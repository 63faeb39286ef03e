"""What the suite runs: the rows of cases.toml and the micro benchmarks, and how each becomes a command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.append(str(HERE.parent))

from cases import CASES
from hakmem_lab.terminal.errors import LabError

LIST = HERE / "cases.toml"
MICRO, WRITTEN, REAL, FAMILY = "micro", "written", "real", "family"
PREPARE_S = 900
SHARED_MEMORY = Path("/dev/shm")


def data_folder() -> Path:
    """Where prepared programs and inputs stay: $HAKMEM_SUITE, or hakmem/suite in the user's cache."""
    given = os.environ.get("HAKMEM_SUITE")
    if given:
        return Path(given).absolute()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "hakmem" / "suite"


def python() -> str:
    """An interpreter that is a program and not a script that looks for one: such a script would be measured too."""
    system = Path("/usr/bin/python3")
    return str(system.resolve() if system.is_file() else Path(sys.executable).resolve())


@dataclass(frozen=True)
class Case:
    """One benchmark."""

    name: str
    group: str
    about: str
    program: str
    args: tuple[str, ...]
    quick: tuple[str, ...]
    prepare: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    carrier: bool = False
    needs: tuple[str, ...] = ()
    package: str = ""
    output: bool = False
    floor: str = ""  # the floor's loop for the same arguments, if it has one


@dataclass(frozen=True)
class Places:
    """What the names in braces stand for."""

    build: Path
    data: Path = field(default_factory=data_folder)

    def fill(self, text: str, fresh: Path | None = None) -> str:
        """The text with its names replaced."""
        own = self.build / "python3"
        names = {"{python}": str(own) if own.is_file() else python(), "{real}": str(HERE / "real"), "{data}": str(self.data), "{fresh}": str(fresh)}
        for name, place in names.items():
            text = text.replace(name, place)
        return text

    def program(self, text: str) -> str:
        """A program's path: a file of the build folder, a path, or a command in PATH; a LabError when there is none."""
        name = self.fill(text)
        own = self.build / name
        found = str(own) if "/" not in name and own.is_file() else shutil.which(name)
        if found is None:
            raise LabError(f"{name} is not there", "./dev setup --suite installs what the suite runs.")
        return found

    def command(self, case: Case, quick: bool, fresh: Path | None = None) -> list[str]:
        """The case's command line; a LabError when its program is missing."""
        return [self.program(case.program), *(self.fill(each, fresh) for each in (case.quick if quick else case.args))]

    def floor_command(self, case: Case, quick: bool) -> list[str] | None:
        """The same loop on the ideal allocator, where it has one."""
        if not case.floor:
            return None
        return [self.program("bench_floor"), case.floor, *(case.quick if quick else case.args)]


FIELDS = {each for each in Case.__dataclass_fields__ if each != "floor"}


def _case(row: dict[str, Any]) -> Case:
    unknown = sorted(set(row) - FIELDS)
    if unknown or not {"name", "group", "about", "program", "args", "quick"} <= row.keys():
        raise LabError(
            f"{LIST.name}: {row.get('name', 'a row')} "
            + (f"has no such field: {', '.join(unknown)}" if unknown else "lacks a field")
        )
    lists = {name: tuple(row.get(name, ())) for name in ("args", "quick", "prepare", "needs")}
    return Case(**{**row, **lists})


def load(path: Path = LIST) -> list[Case]:
    """All cases in the list's order, the micro benchmarks first."""
    listed = tomllib.loads(path.read_text(encoding="utf-8"))
    micro = {case.name: case for case in CASES}
    groups = {MICRO: listed["micro"]["cases"], FAMILY: listed.get("family", {"cases": []})["cases"]}
    unknown = sorted({name for names in groups.values() for name in names} - micro.keys())
    if unknown:
        raise LabError(f"{path.name}: bench/cases.py has no {', '.join(unknown)}")
    found = [
        Case(
            each.name,
            group,
            each.about,
            each.program,
            tuple(each.args.split()),
            tuple(each.quick_args.split()),
            floor=each.floor,
        )
        for group, names in groups.items()
        for each in (micro[name] for name in names)
    ]
    found += [_case(row) for row in listed["case"]]
    names = [case.name for case in found]
    if len(set(names)) < len(names):
        raise LabError(f"{path.name}: a name stands for two cases")
    return found


def prepare(case: Case, places: Places) -> str | None:
    """Makes what the case needs, once; None, or why it cannot take part."""
    try:
        for name in case.needs:
            places.program(name)
        if case.prepare:
            places.data.mkdir(parents=True, exist_ok=True)
            command = [places.program(case.prepare[0]), *(places.fill(each) for each in case.prepare[1:])]
            environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
            done = subprocess.run(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=PREPARE_S,
                check=False,
            )
            if done.returncode != 0:
                said = done.stdout.strip().splitlines()[-1:] or [f"status {done.returncode}"]
                return f"could not be prepared: {said[0]}"
        places.program(case.program)
    except LabError as error:
        return error.message
    except (OSError, subprocess.SubprocessError) as error:
        return f"could not be prepared: {error}"
    return None


def room() -> Path | None:
    """The folder in which {fresh} folders are made: in memory where that is possible, so that no disk is measured."""
    return SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
