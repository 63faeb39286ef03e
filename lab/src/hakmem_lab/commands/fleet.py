"""hakmem fleet: experiments on many machines, planned and judged by what Prometheus knows of them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from hakmem_lab.commands import options as opt
from hakmem_lab.terminal.errors import LabError, UsageError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from hakmem_lab.fleet.plan import Plan
    from hakmem_lab.fleet.prometheus import Prometheus
    from hakmem_lab.fleet.verdict import FleetVerdict

Loaded = TypeVar("Loaded", bound="BaseModel")
ABOUT = "Plan an experiment on many machines, and judge it by what Prometheus knows of them."

PLAN = """Plan who gets HAKMEM: blocks of hosts that resemble one another, and half of each block by lot.

The hosts' own history in Prometheus, from hakmem-exporter on each, tells which resemble one another, and how large an
effect the experiment can find. Install the library on all hosts, switch it on where the plan says so, and restart both
groups in the same step, before the start. The plan is a file: 'hakmem fleet verdict' needs it.

Examples:

  hakmem fleet plan --prometheus http://prometheus:9090 --select 'service="redis-server"' -o plan.json

  hakmem fleet plan --prometheus http://prometheus:9090 --days 7 --as ansible -o plan.json > inventory.ini
"""

VERDICT = """Judge an experiment on many machines, on any day of it.

The verdicts, with their exit statuses:

  [bold]GO[/] (0): a target's gain reaches the threshold, its interval lies above 0, and every guard rail holds
  [bold]NO-GO[/] (3): no target can reach it any more, or a guard rail is broken
  [bold]INCONCLUSIVE[/] (4): neither, yet
  [bold]REFUSED[/] (1): the groups cannot be compared, or the data are not whole; it says why

Hosts are the units. The intervals hold together at all days and for all targets, so looking every day is allowed.

Examples:

  hakmem fleet verdict --prometheus http://prometheus:9090 --plan plan.json

  hakmem fleet verdict --prometheus http://prometheus:9090 --plan plan.json --json | jq .verdict
"""

PAGE = """Draw a verdict as one HTML page that needs no network.

Example:

  hakmem fleet verdict --prometheus URL --plan plan.json --json > verdict.json; hakmem fleet page verdict.json
"""

DIFF = """Draw the difference of two groups' heap profiles as a flame graph, per host.

Each group is a folder of pprof files, one per host or more, as /debug/pprof/heap of hakmem-exporter or 'hakmem profile
-o FILE.pb.gz' makes them; or, with --parca or --pyroscope, label matchers of what that server has, with an offset for
an earlier time. Red is more in the second group.

Examples:

  hakmem fleet diff control/ hakmem/ -o difference.html

  hakmem fleet diff --parca http://parca:7070 'service="web" offset 7d' 'service="web"'
"""

Url = Annotated[str, typer.Option("--prometheus", metavar="URL", help="Prometheus, or what speaks its protocol.")]
Token = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="FILE", help="A file with a bearer token for the server.", show_default=False),
]
Timeout = Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="The longest wait for one answer.")]


def _prometheus(url: str, token: Path | None, timeout: float) -> Prometheus:
    from hakmem_lab.fleet.prometheus import Prometheus

    return Prometheus(url, _token(token), timeout)


def _token(file: Path | None) -> str:
    try:
        return file.read_text(encoding="ascii").strip() if file else ""
    except (OSError, ValueError) as error:
        raise LabError(f"--token-file {file}: {getattr(error, 'strerror', 'no token')}") from None


def plan(
    prometheus: Url,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE.json", help="Where the plan goes.")],
    select: Annotated[str, typer.Option(metavar="SELECTOR", help="Which processes: PromQL's label matchers.")] = "",
    days: Annotated[int, typer.Option(min=1, max=365, help="How long it runs at most.")] = 14,
    history: Annotated[int, typer.Option(min=2, max=365, help="Days of history to use.")] = 14,
    start: Annotated[
        str, typer.Option(metavar="DATE", help="The first day (UTC), by default tomorrow.", show_default=False)
    ] = "",
    threshold: opt.Threshold = 1.0,
    looks: Annotated[str, typer.Option(metavar="daily|end", help="When the verdict may be asked for.")] = "daily",
    target: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=QUERY", help="Another target, a value per host and day.", show_default=False),
    ] = None,
    guard: Annotated[
        list[str] | None, typer.Option(metavar="NAME=QUERY", help="Another guard rail.", show_default=False)
    ] = None,
    stratum: Annotated[
        str, typer.Option(metavar="LABEL", help="Only hosts with the same value of this label share a block.")
    ] = "",
    host_label: Annotated[str, typer.Option(metavar="LABEL", help="The label that names a host.")] = "instance",
    step: Annotated[str, typer.Option(metavar="TIME", help="The resolution of means over a day.")] = "5m",
    seed: opt.Seed = None,
    as_: Annotated[
        str, typer.Option("--as", metavar="labels|ansible|kubernetes", help="Print the assignment in this form.")
    ] = "",
    token_file: Token = None,
    timeout: Timeout = 120.0,
) -> None:
    import secrets

    from hakmem_lab.fleet import metrics
    from hakmem_lab.fleet import plan as plans
    from hakmem_lab.fleet.history import read
    from hakmem_lab.terminal import console

    if as_ and as_ not in plans.FORMATS:
        raise UsageError(f"--as {as_}: not one of {', '.join(plans.FORMATS)}")
    if looks not in ("daily", "end"):
        raise UsageError(f"--looks {looks}: neither daily nor end")
    wanted = [*metrics.METRICS, *(metrics.of_user(each, "target") for each in target or [])]
    wanted += [metrics.of_user(each, "guard") for each in guard or []]
    settings = {
        "seed": secrets.randbelow(2**31) if seed is None else seed,
        "host_label": host_label,
        "select": select,
        "step": step,
        "start": first_day(start),
        "days": days,
        "history_days": history,
        "threshold": threshold,
        "looks": looks,
    }
    source = _prometheus(prometheus, token_file, timeout)
    source.check_clock()
    known = read(source, settings, wanted, stratum)
    made = plans.make(known.hosts, known.strata, known.values, known.metrics, settings)
    written(out, made.model_dump_json(indent=1) + "\n")
    for each in known.notes:
        console.remark(f"hakmem: {each}")
    if as_:
        opt.print_plain(plans.FORMATS[as_](made), aside=False)
        return
    _show_plan(made, out)


def first_day(text: str) -> int:
    """The Unix time of a date's midnight (UTC); tomorrow's without one."""
    from datetime import datetime, timezone

    if not text:
        return (int(time.time()) // 86_400 + 1) * 86_400
    try:
        return int(datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=timezone.utc).timestamp())
    except ValueError:
        raise UsageError(f"--start {text}: not a date", "Example: --start 2026-05-04") from None


def _show_plan(made: Plan, path: Path) -> None:
    from hakmem_lab.terminal.amounts import counted

    arms = [each.arm for each in made.hosts]
    blocks = counted(len({each.block for each in made.hosts}), "block")
    with_it = f"{counted(arms.count('hakmem'), 'host')} with HAKMEM, {arms.count('control')} without"
    _say(f"{with_it}, in {blocks}; seed {made.seed}")
    units = {each.name: " %" if each.scale == "ratio" else "" for each in made.metrics}
    rows = []
    for each in made.power:
        figures = (each.worth, each.error, each.smallest)
        worth, error, smallest = (f"{value:.3g}{units[each.metric]}" for value in figures)
        needed = (f"{each.hosts_needed:,}" if each.hosts_needed else "-", str(each.days_needed or f"> {made.days}"))
        rows.append((each.metric, worth, error, f"{100 * each.power:.0f} %", smallest, *needed))
    heads = ("metric", "worth", "error", "power", "found with 80 %", "hosts needed", "days needed")
    _print_table("What it can find", heads, rows)
    rest = [each.name for each in made.metrics if each.name not in {of.metric for of in made.power}]
    if rest:
        _say(f"nothing to measure, for hosts have had none or hardly any: {', '.join(rest)}")
    _say(f"plan: {path}")


def _say(text: str) -> None:
    """Prints a sentence; a terminal breaks it between words."""
    from hakmem_lab.terminal.console import out

    out.print(text, markup=False, soft_wrap=not out.is_terminal)


def _print_table(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich import box

    from hakmem_lab.terminal import console, tables

    tables.show(console.out, tables.made(title, heads, rows, ("metric", "as", "verdict"), box.HEAVY_HEAD))


def verdict(
    prometheus: Url,
    plan: Annotated[Path, typer.Option(metavar="FILE.json", help="The plan.")],
    as_json: opt.Json = False,
    token_file: Token = None,
    timeout: Timeout = 120.0,
) -> None:
    from hakmem_lab.decide.exports import STATUS
    from hakmem_lab.fleet import verdict as verdicts
    from hakmem_lab.fleet.plan import Plan

    made = load(plan, Plan, "a plan", "plan")
    source = _prometheus(prometheus, token_file, timeout)
    source.check_clock()
    found = verdicts.decide(made, source, time.time())
    if as_json:
        opt.print_json(json.loads(found.model_dump_json()))
    else:
        _show(found)
    raise typer.Exit(STATUS[found.verdict])


def load(path: Path, model: type[Loaded], what: str, maker: str) -> Loaded:
    """What an earlier command wrote; a LabError if the file is none of it."""
    from pydantic import ValidationError

    advice = f"'hakmem fleet {maker}' makes one."
    try:
        return model.model_validate_json(path.read_bytes())
    except OSError as error:
        raise LabError(f"{path}: {error.strerror}", advice) from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(each) for each in first["loc"])
        raise LabError(f"{path} is not {what}: {where + ': ' if where else ''}{first['msg']}", advice) from None


def written(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise LabError(f"cannot write {path}: {error.strerror}", "Choose another place with --out.") from None


def _show(found: FleetVerdict) -> None:
    said = [f"{found.verdict}: {found.reason}", *(f"  and {each}" for each in found.refusals[1:])]
    said += [f"day {found.day} of {found.days}; {found.hosts} hosts, {found.treated} of them with HAKMEM", *found.notes]
    for each in said:
        _say(each)
    rows = []
    for row in found.rows:
        form = "{:+.2f} %" if row.scale == "ratio" else "{:+.4f}"
        gain, low, high = (form.format(each) for each in (row.gain, row.low, row.high))
        rows.append((row.metric, row.role, gain, low, high, f"{row.p:.2g}", row.word))
    if rows:
        _print_table("", ("metric", "as", "gain", "from", "to", "p", "verdict"), rows)


def page(
    file: Annotated[Path, typer.Argument(metavar="VERDICT.json", help="What 'hakmem fleet verdict --json' printed.")],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE.html", help="Where the page goes.")] = Path(
        "fleet.html"
    ),
    single: Annotated[bool, typer.Option("--single", help="Put the chart library into the page.")] = False,
) -> None:
    from hakmem_lab.fleet.verdict import FleetVerdict
    from hakmem_lab.pages import fleet as pages
    from hakmem_lab.terminal import console

    pages.write(load(file, FleetVerdict, "a verdict on a fleet", "verdict --json"), out, single)
    console.out.print(f"page: {out}", markup=False, soft_wrap=True)


def diff(
    before: Annotated[str, typer.Argument(metavar="GROUP", help="The group without: a folder, or label matchers.")],
    after: Annotated[str, typer.Argument(metavar="GROUP", help="The group with HAKMEM.")],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE.html", help="Where the page goes.")] = Path(
        "difference.html"
    ),
    parca: Annotated[str, typer.Option(metavar="URL", help="Take the profiles from Parca.", show_default=False)] = "",
    pyroscope: Annotated[
        str, typer.Option(metavar="URL", help="Take the profiles from Pyroscope.", show_default=False)
    ] = "",
    host_label: Annotated[str, typer.Option(metavar="LABEL", help="The label that names a host.")] = "instance",
    token_file: Token = None,
    timeout: Timeout = 120.0,
) -> None:
    from hakmem_lab.fleet import profilers, profiles
    from hakmem_lab.pages import flame
    from hakmem_lab.profile import formats
    from hakmem_lab.terminal import console
    from hakmem_lab.terminal.amounts import in_bytes

    if parca and pyroscope:
        raise UsageError("--parca and --pyroscope: one of them at a time")
    if parca or pyroscope:
        made = profilers.Parca if parca else profilers.Pyroscope
        server = made(parca or pyroscope, host_label, _token(token_file), timeout)
        found = formats.difference(server.mean(before), server.mean(after))
    else:
        found = formats.difference(profiles.folder(Path(before)), profiles.folder(Path(after)))
    written(out, flame.page(found, "growth", f"{after} against {before}, per host"))
    grown = found.total("growth").bytes
    console.out.print(f"{in_bytes(abs(grown))} {'more' if grown >= 0 else 'less'} per host", soft_wrap=True)
    console.out.print(f"page: {out}", markup=False, soft_wrap=True)


def register(app: typer.Typer) -> None:
    fleet = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")
    for name, command, about in (
        ("plan", plan, PLAN),
        ("verdict", verdict, VERDICT),
        ("page", page, PAGE),
        ("diff", diff, DIFF),
    ):
        fleet.command(name, help=about)(command)
    app.add_typer(fleet, name="fleet", help=ABOUT)
