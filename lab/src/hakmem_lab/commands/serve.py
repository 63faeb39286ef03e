"""hakmem serve: a running process's figures for Prometheus."""

from __future__ import annotations

from typing import Annotated

import typer

from hakmem_lab.terminal.errors import LabError

HELP = """Serve a running process's figures to Prometheus, as OpenMetrics over HTTP.

The process needs no preparation and is not stopped: each request takes a snapshot from outside, like 'hakmem stats
PID', with the names of HAKMEM_STATS=prom. The command ends when the process does, with status 0.

Any program that can reach the address can read the figures; by default only programs on this machine can.

Examples:

  hakmem serve $(pgrep -n redis-server)

  hakmem serve 4711 --listen 0.0.0.0:9797

  hakmem serve --dashboard > hakmem-dashboard.json
"""


def serve(
    pid: Annotated[int | None, typer.Argument(metavar="PID", help="The process id.", min=1, show_default=False)] = None,
    listen: Annotated[
        str, typer.Option(metavar="[HOST:]PORT", help="Where to listen; port 0 means any free one.")
    ] = "127.0.0.1:9797",
    dashboard: Annotated[
        bool, typer.Option("--dashboard", help="Print a dashboard to import into Grafana instead.")
    ] = False,
) -> None:
    from hakmem_lab.terminal.console import out, remark

    if dashboard:
        import importlib.resources

        content = importlib.resources.files("hakmem_lab.inspect").joinpath("dashboard.json").read_text(encoding="utf-8")
        out.file.write(content)
        return
    if pid is None:
        raise LabError("no process given", "Example: hakmem serve $(pgrep -n redis-server)")
    from hakmem_lab.inspect.metrics_server import Endpoint

    endpoint = Endpoint(pid, listen)
    out.print(f"serving process {pid} at {endpoint.url}", markup=False, soft_wrap=True)
    out.file.flush()
    try:
        endpoint.run()
    except KeyboardInterrupt:
        return
    remark(f"hakmem: process {pid} has ended")


def register(app: typer.Typer) -> None:
    app.command("serve", help=HELP)(serve)
