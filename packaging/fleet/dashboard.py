#!/usr/bin/env python3
"""Prints dashboard.json, by Grafana's own typed library (grafana-foundation-sdk): dashboard.py > dashboard.json"""
from typing import Any

from grafana_foundation_sdk.builders import common, prometheus, timeseries
from grafana_foundation_sdk.builders import dashboard as boards
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import StackingMode
from grafana_foundation_sdk.models.dashboard import DataSourceRef

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
CHOSEN = 'service=~"$service"'
PARTS = ("live", "huge", "cached", "free_in_slabs", "empty", "metadata", "not_ours")
RETURNS = ("supers", "slabs", "pages", "regretted_supers", "regretted_slabs", "regretted_pages")
PLACE = "{{instance}} {{service}}/{{process}}"


def panel(title, unit, queries, about, stacked=False):
    """A chart of some queries, each with its legend."""
    made = timeseries.Panel().title(title).unit(unit).description(about).datasource(SOURCE).height(8).span(12)
    for query, legend in queries:
        made = made.with_target(prometheus.Dataquery().expr(query).legend_format(legend))
    if stacked:
        mode: Any = StackingMode.NORMAL
        made = made.stacking(common.StackingConfig().mode(mode)).fill_opacity(30)
    return made


def per_host(expression):
    return [(f"avg by (allocator) (sum by (instance, allocator) ({expression}))", "{{allocator}}")]


def top(expression):
    return [(f"topk(10, {expression})", PLACE)]


PANELS = (
    "By allocator",
    panel("Resident memory per host", "bytes", per_host(f"hakmem_process_resident_bytes{{{CHOSEN}}}"), "Mean over hosts."),
    panel("Processor time per host", "none", per_host(f"rate(hakmem_process_cpu_seconds_total{{{CHOSEN}}}[5m])"), "Processors in use."),
    panel("Page faults per host", "cps", per_host(f"rate(hakmem_process_faults_total{{{CHOSEN}}}[5m])"), "Minor and major."),
    panel("Restarts and kills", "none", [
        (f"sum by (allocator) (changes(hakmem_process_start_time_seconds{{{CHOSEN}}}[1h]))", "restarts, {{allocator}}"),
        (f'sum by (service) (increase(hakmem_cgroup_memory_events_total{{event="oom_kill",{CHOSEN}}}[1h]))', "killed, {{service}}"),
    ], "Within an hour."),
    "What HAKMEM's memory is",
    panel("The ledger", "bytes", [(f"sum(hakmem_ledger_{each}_bytes{{{CHOSEN}}})", each.replace("_", " ")) for each in PARTS],
          "Resident bytes by state; the states add up to resident memory.", stacked=True),
    panel("Pinned by live blocks", "bytes", top(f"hakmem_pinned_bytes{{{CHOSEN}}}"),
          "Free blocks whose pages cannot be returned, because live ones lie beside them."),
    panel("Returned, and used again", "Bps",
          [(f"sum(rate(hakmem_returns_{each}_bytes_total{{{CHOSEN}}}[5m]))", each.replace("_", " ")) for each in RETURNS],
          "What was returned to the system, and what of it was used again within a minute."),
    panel("Growth of live memory", "bytes", top(f"instance:hakmem_live_bytes:slope6h{{{CHOSEN}}}"),
          "Per hour, over six hours; needs the recording rules."),
    "Limits",
    panel("Use of the memory limit", "percentunit",
          top(f"hakmem_cgroup_memory_bytes{{{CHOSEN}}} / hakmem_cgroup_memory_limit_bytes{{{CHOSEN}}}"), "By control group."),
    panel("Waiting for memory", "percentunit",
          top(f'rate(hakmem_cgroup_memory_stalled_seconds_total{{tasks="some",{CHOSEN}}}[5m])'),
          "The share of time in which some task waited."),
)


def board():
    """The whole dashboard."""
    services = boards.QueryVariable("service").query("label_values(hakmem_process_resident_bytes, service)")
    made = boards.Dashboard("HAKMEM: a fleet").uid("hakmem-fleet").tags(["hakmem"]).refresh("1m").time("now-24h", "now")
    made = made.timezone("browser").with_variable(boards.DatasourceVariable("datasource").type("prometheus").label("Data source"))
    made = made.with_variable(services.datasource(SOURCE).multi(True).include_all(True).label("Service"))
    for each in PANELS:
        made = made.with_row(boards.Row(each)) if isinstance(each, str) else made.with_panel(each)
    return made.build()


print(JSONEncoder(sort_keys=True, indent=1).encode(board()))
