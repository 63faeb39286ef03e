"""The search space of `hakmem tune`: the values to try for each option, from the library's own list and bounds.

Sizes, counts and times are tried in steps of a factor of two around the value in force, from a sixteenth of it to
sixteen times it, within the option's bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hakmem_lab.target import libhakmem
from hakmem_lab.target.configuration import nearest
from hakmem_lab.target.libhakmem import Option
from hakmem_lab.terminal.errors import LabError, UsageError

# The tunable options, if the library has them; neither diagnostics nor safety limits.
TUNED = (
    "preset",
    *(f"tiny_unified_c{band}" for band in range(1, 8)),
    *(f"tiny_c{band}_local_cache" for band in range(2, 7)),
    "l2_ring_cap",
    "l25_ring_cap",
    "refill_count",
    "warm_pool_prefill",
    "ring_adapt",
    "thread_budget",
    "tiers",
    "reserve",
    "return",
)
BANDS = "tiny_unified_c"  # set by the preset, and searched only with the usual preset
OCTAVES = 4
UNITS = ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K"))


@dataclass(frozen=True)
class Axis:
    """One option and its values in order, as text that the library accepts."""

    name: str
    values: tuple[str, ...]
    standard: str  # the value in force without the search


def in_units(size: int) -> str:
    """Bytes with the largest unit that divides them."""
    for unit, letter in UNITS:
        if size and size % unit == 0:
            return f"{size // unit}{letter}"
    return str(size)


def written(option: Option, value: int) -> str:
    """A value as the library reads it."""
    kind, amount = option.form_of(value)
    if kind == "bytes":
        return in_units(amount)
    return f"{amount}ms" if kind == "time" else str(amount)


def _around(option: Option) -> list[int]:
    """Steps of a factor of two around the value in force."""
    least = max(option.least, option.value >> OCTAVES, 1)
    most = min(option.most, option.value << OCTAVES)
    found = {option.value, most}
    for step in range(1, OCTAVES + 1):
        found |= {option.value >> step, option.value << step}
    chosen = {value for value in found if least <= value <= most}
    if option.kind in ("bytes", "time") and option.least == 0:
        chosen.add(0)
    return sorted(chosen)


def axis(option: Option, presets: Sequence[str]) -> Axis | None:
    """The values to try for one option; None if it cannot be searched."""
    if option.kind == "flag":
        return Axis(option.name, ("0", "1"), str(option.value))
    if option.kind == "preset":
        return Axis(option.name, tuple(presets), option.word or "") if len(presets) > 1 else None
    if option.kind not in ("count", "bytes", "time", "percent") or option.value == 0:
        return None
    values = tuple(written(option, value) for value in _around(option))
    return Axis(option.name, values, written(option, option.value)) if len(values) > 1 else None


def axes(file: Path, settings: dict[str, str], names: Sequence[str]) -> list[Axis]:
    """The options to search on a library that runs with these settings; without names, all of TUNED that it has and
    that the settings leave free.  A LabError for a name that it lacks or that has no range to search."""
    known = libhakmem.options(file, {**libhakmem.without_settings(), **settings})
    presets = libhakmem.presets(file)
    if not names:
        free = [name for name in TUNED if name in known and known[name].variable not in settings]
        return [found for name in free if (found := axis(known[name], presets)) is not None]
    chosen = []
    for name in dict.fromkeys(each.strip().lower().removeprefix("hakmem_") for each in names):
        if name not in known:
            raise UsageError(f"--options: no option {name}{nearest(name, known)}", "docs/options.md lists them.")
        found = axis(known[name], presets)
        if found is None:
            raise LabError(
                f"--options {name}: its value, {known[name].word or written(known[name], known[name].value)}, "
                "gives no range to search",
                f"Leave it out, or give it a value to start from: --with '{name}=VALUE'.",
            )
        chosen.append(found)
    return chosen


def size(searched: Sequence[Axis]) -> int:
    """An upper bound of the number of different settings."""
    product = 1
    for each in searched:
        product *= len(each.values)
    return product


def depends(searched: Sequence[Axis], each: Axis, values: dict[str, str]) -> bool:
    """Whether an option is searched, given the earlier ones: another preset sets the bands itself."""
    preset = next((other for other in searched if other.name == "preset"), None)
    return preset is None or not each.name.startswith(BANDS) or values.get("preset") == preset.standard


def text(searched: Sequence[Axis], values: dict[str, str]) -> str:
    """The settings that differ from the values in force, as a configuration."""
    return " ".join(
        f"{each.name}={values[each.name]}"
        for each in searched
        if each.name in values and values[each.name] != each.standard
    )
