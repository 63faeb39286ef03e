"""hakmem fleet: experiments on many machines, planned and judged by what Prometheus knows of them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hakmem_lab.commands import options as opt
from hakmem_lab.terminal.errors import LabError

if TYPE_CHECKING:
    from hakmem_lab.fleet.plan import Plan
    from hakmem_lab.fleet.prometheus import Prometheus
    from hakmem_lab.fleet.verdict import FleetVerdict

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

Each folder holds pprof files, one per host or more, as /debug/pprof/heap of hakmem-exporter or 'hakmem profile -o
FILE.pb.gz' makes them. Red is more in the second folder.

Example:

  hakmem fleet diff control/ hakmem/ -o difference.html
"""

Url = Annotated[str, typer.Option("--prometheus", metavar="URL", help="Prometheus, or what speaks its protocol.")]
Token = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="FILE", help="A file with a bearer token for it.", show_default=False),
]
Timeout = Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="The longest wait for one answer.")]


def _prometheus(url: str, token: Path | None, timeout: float) -> Prometheus:
    from hakmem_lab.fleet.prometheus import Prometheus

    try:
        text = token.read_text(encoding="utf-8").strip() if token else ""
    except OSError as error:
        raise LabError(f"{token}: {error.strerror}") from None
    return Prometheus(url, text, timeout)


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
        raise LabError(f"--as {as_}: not one of {', '.join(plans.FORMATS)}")
    if looks not in ("daily", "end"):
        raise LabError(f"--looks {looks}: neither daily nor end")
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
    try:
        out.write_text(made.model_dump_json(indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise LabError(f"cannot write {out}: {error.strerror}", "Choose another place with --out.") from None
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
        raise LabError(f"--start {text}: not a date", "Example: --start 2026-05-04") from None


def _show_plan(made: Plan, out: Path) -> None:
    from rich.table import Table

    from hakmem_lab.terminal import console, tables
    from hakmem_lab.terminal.amounts import counted

    arms = [each.arm for each in made.hosts]
    blocks = len({each.block for each in made.hosts})
    console.out.print(
        f"{counted(arms.count('hakmem'), 'host')} with HAKMEM, {arms.count('control')} without, "
        f"in {counted(blocks, 'block')}; "
        f"seed {made.seed}",
        soft_wrap=True,
    )
    table = Table(title="What it can find", title_justify="left")
    for name in ("metric", "worth", "error", "power", "found with 80 %", "hosts needed", "days needed"):
        table.add_column(name, justify="left" if name == "metric" else "right")
    units = {each.name: " %" if each.scale == "ratio" else "" for each in made.metrics}
    for each in made.power:
        unit = units[each.metric]
        figures = [f"{value:.3g}{unit}" for value in (each.worth, each.error)]
        figures += [f"{100 * each.power:.0f} %", f"{each.smallest:.3g}{unit}"]
        needed = [f"{each.hosts_needed:,}" if each.hosts_needed else "-", str(each.days_needed or f"> {made.days}")]
        table.add_row(each.metric, *figures, *needed)
    tables.show(console.out, table)
    console.out.print(f"plan: {out}", markup=False, soft_wrap=True)


def verdict(
    prometheus: Url,
    plan: Annotated[Path, typer.Option(metavar="FILE.json", help="The plan.")],
    json: opt.Json = False,
    token_file: Token = None,
    timeout: Timeout = 120.0,
) -> None:
    from hakmem_lab.decide.exports import STATUS
    from hakmem_lab.fleet import verdict as verdicts

    made = load(plan)
    source = _prometheus(prometheus, token_file, timeout)
    source.check_clock()
    found = verdicts.decide(made, source, time.time())
    if json:
        opt.print_json(_finite(found))
    else:
        _show(found)
    raise typer.Exit(STATUS[found.verdict])


def _finite(found: FleetVerdict) -> dict[str, object]:
    import math

    def cleaned(value: object) -> object:
        if isinstance(value, float):
            return value if math.isfinite(value) else None
        if isinstance(value, dict):
            return {name: cleaned(each) for name, each in value.items()}
        return [cleaned(each) for each in value] if isinstance(value, list | tuple) else value

    document = cleaned(found.model_dump())
    assert isinstance(document, dict)
    return document


def load(path: Path) -> Plan:
    """A plan's file."""
    from pydantic import ValidationError

    from hakmem_lab.fleet.plan import Plan

    try:
        return Plan.model_validate_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LabError(f"{path}: {error.strerror}", "'hakmem fleet plan' makes a plan.") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(each) for each in first["loc"])
        raise LabError(f"{path} is not a plan: {where}: {first['msg']}", "'hakmem fleet plan' makes one.") from None


def _show(found: FleetVerdict) -> None:
    from rich.table import Table

    from hakmem_lab.terminal import console, tables

    console.out.print(f"{found.verdict}: {found.reason}", markup=False, soft_wrap=True)
    for each in found.refusals[1:]:
        console.out.print(f"  and {each}", markup=False, soft_wrap=True)
    console.out.print(
        f"day {found.day} of {found.days}; {found.hosts} hosts, {found.treated} of them with HAKMEM", soft_wrap=True
    )
    for each in found.notes:
        console.out.print(each, markup=False, soft_wrap=True)
    if not found.rows:
        return
    table = Table()
    for name in ("metric", "as", "gain", "from", "to", "p", "verdict"):
        table.add_column(name, justify="left" if name in ("metric", "as", "verdict") else "right")
    for row in found.rows:
        form = "{:+.2f} %" if row.scale == "ratio" else "{:+.4f}"
        figures = [form.format(each) for each in (row.gain, row.low, row.high)]
        table.add_row(row.metric, row.role, *figures, f"{row.p:.2g}", row.word)
    tables.show(console.out, table)


def page(
    file: Annotated[Path, typer.Argument(metavar="VERDICT.json", help="What 'hakmem fleet verdict --json' printed.")],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE.html", help="Where the page goes.")] = Path(
        "fleet.html"
    ),
    single: Annotated[bool, typer.Option("--single", help="Put the chart library into the page.")] = False,
) -> None:
    from pydantic import ValidationError

    from hakmem_lab.fleet.verdict import FleetVerdict
    from hakmem_lab.pages import fleet as pages
    from hakmem_lab.terminal import console

    try:
        found = FleetVerdict.model_validate_json(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise LabError(f"{file}: {error.strerror}") from None
    except ValidationError:
        raise LabError(f"{file} is not a verdict on a fleet", "'hakmem fleet verdict --json' prints one.") from None
    pages.write(found, out, single)
    console.out.print(f"page: {out}", markup=False, soft_wrap=True)


def diff(
    before: Annotated[Path, typer.Argument(metavar="FOLDER", help="pprof files of the group without.")],
    after: Annotated[Path, typer.Argument(metavar="FOLDER", help="pprof files of the group with HAKMEM.")],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE.html", help="Where the page goes.")] = Path(
        "difference.html"
    ),
) -> None:
    from hakmem_lab.fleet import profiles
    from hakmem_lab.pages import flame
    from hakmem_lab.terminal import console
    from hakmem_lab.terminal.amounts import in_bytes

    found = profiles.difference(profiles.folder(before), profiles.folder(after))
    try:
        out.write_text(flame.page(found, "growth", f"{after} against {before}, per host"), encoding="utf-8")
    except OSError as error:
        raise LabError(f"cannot write {out}: {error.strerror}", "Choose another place with --out.") from None
    console.out.print(f"{in_bytes(found.total('growth').bytes)} more per host, or less", soft_wrap=True)
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
