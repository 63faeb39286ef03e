"""What is compared between the groups: queries of one value per host and day, and how each counts for the verdict."""

from __future__ import annotations

import re
from typing import Literal

from hakmem_lab.measure.results import Model
from hakmem_lab.terminal.errors import LabError

Role = Literal["target", "guard"]
Scale = Literal["ratio", "difference"]


class Metric(Model):
    """One metric. In the query $host is the hosts' label, $select the selector of series, $step the resolution."""

    name: str
    query: str
    role: Role
    scale: Scale = "ratio"
    less_is_better: bool = True
    margin: float = 2.0  # of a guard: the harm that is tolerated, in % or, of differences, per host and day


def seconds(step: str) -> int:
    """A duration of Prometheus, such as 5m, of one unit."""
    found = re.fullmatch(r"(\d+)([smh])", step)
    value = int(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]] if found else 0
    if not 0 < value <= 43_200:
        raise LabError(f"--step {step}: not a time of at most 12h", "Example: --step 5m")
    return value


def filled(query: str, host_label: str, select: str, step: str) -> str:
    """A query with the label, the selector and the resolution in their places."""
    # Half a step less than a day: its samples, whether an engine counts a range's left end (Prometheus 2) or not
    # (Prometheus 3, VictoriaMetrics).
    found = query.replace("$day", f"{86_400_000 - 500 * seconds(step)}ms")
    found = found.replace("$host", host_label).replace("$step", step)
    return re.sub(r"\{([^{}]*),\s*\$select\}|\{\$select\}", lambda m: _selector(m.group(1), select), found)


def _selector(own: str | None, select: str) -> str:
    parts = [each for each in (own, select) if each]
    return "{" + ",".join(parts) + "}" if parts else ""


def _mean(expression: str) -> str:
    return f"avg_over_time(({expression})[$day:$step])"


def _counted(expression: str) -> str:
    return f"sum by ($host) ({expression})"


METRICS = (
    Metric(
        name="resident memory",
        query=_mean("sum by ($host) (hakmem_process_resident_bytes{$select})"),
        role="target",
    ),
    Metric(
        name="GiB-seconds",
        # Of the scrapes that arrived: lost ones lower nothing, one that found no process of the service counts as 0.
        query="sum_over_time((sum by ($host) (hakmem_process_resident_bytes{$select}) / 2^30)[$day:$step]) "
        "/ count_over_time((count by ($host) (hakmem_exporter_build))[$day:$step]) * 86400",
        role="guard",
    ),
    Metric(
        name="processor time",
        query=_counted("increase(hakmem_process_cpu_seconds_total{$select}[1d])"),
        role="guard",
    ),
    Metric(
        name="faults",
        query=_counted("increase(hakmem_process_faults_total{$select}[1d])"),
        role="guard",
        margin=25.0,
    ),
    Metric(
        name="restarts",
        # A process that restarts with another allocator or version begins another series, which VictoriaMetrics counts
        # as a change and Prometheus does not.
        query=_counted(
            "changes((max without (allocator, version) (hakmem_process_start_time_seconds{$select}))[1d:$step])"),
        role="guard",
        scale="difference",
        margin=0.1,
    ),
    Metric(
        name="kills",
        query=_counted('increase(hakmem_cgroup_memory_events_total{event="oom_kill",$select}[1d])'),
        role="guard",
        scale="difference",
        margin=0.05,
    ),
)
# 1 on a host whose processes of the service all run on HAKMEM, 0 where none does.
SERVED = (
    'avg_over_time((count by ($host) (hakmem_process_resident_bytes{allocator="hakmem",$select}) '
    "/ count by ($host) (hakmem_process_resident_bytes{$select}) "
    "or 0 * count by ($host) (hakmem_process_resident_bytes{$select}))[$day:$step])"
)
# How many times of the day the host was seen.
SEEN = "count_over_time((sum by ($host) (hakmem_process_resident_bytes{$select}))[$day:$step])"


def of_user(text: str, role: Role) -> Metric:
    """'NAME=QUERY' of a command line."""
    name, equals, query = text.partition("=")
    if not equals or not name.strip() or not query.strip():
        raise LabError(
            f"--{role} {text}: not NAME=QUERY",
            f"Example: --{role} 'p99=avg_over_time(host:latency_seconds:p99[1d])'",
        )
    return Metric(name=name.strip(), query=query.strip(), role=role)
