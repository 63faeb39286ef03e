"""The figures of a running process over HTTP, and the dashboard that draws them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hakmem_lab.inspect import metrics_server, openmetrics
from hakmem_lab.inspect.snapshots import Snapshot
from hakmem_lab.terminal.errors import LabError
from tests.conftest import Hakmem, killed_after
from tests.inside import LIBRARY
from tests.pages import figures

DASHBOARD = Path(openmetrics.__file__).with_name("dashboard.json")


def promtool() -> str:
    return shutil.which("promtool") or pytest.skip("no promtool: './dev setup' installs it (Debian's prometheus)")


@contextmanager
def served(environment: dict[str, str] | None = None) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A process on HAKMEM and the address of its figures."""
    preloaded = {**os.environ, "LD_PRELOAD": str(LIBRARY), **(environment or {})}
    with killed_after(["sleep", "100"], env=preloaded) as child:
        command = [sys.executable, "-m", "hakmem_lab", "serve", str(child.pid), "--listen", "0"]
        with killed_after(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
            assert server.stdout and server.stderr
            line = server.stdout.readline()
            assert line.startswith("serving process"), server.stderr.read()
            yield child, line.split()[-1]
            child.kill()
            assert server.wait(20) == 0
            assert "has ended" in server.stderr.read()


def fetched(url: str, accept: str = "") -> tuple[str, str]:
    request = urllib.request.Request(url, headers={"Accept": accept} if accept else {})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def heads(text: str) -> dict[str, tuple[str, str]]:
    """The families of a page: type and help by name."""
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    helps = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.M))
    return {name: (kind, helps[name]) for name, kind in types.items()}


def test_endpoint_speaks_both_formats_and_ends_with_the_process() -> None:
    with served() as (_, url):
        kind, text = fetched(url, "application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
        assert kind == openmetrics.OPEN and text.endswith("# EOF\n")
        assert re.search(r"^hakmem_system_calls_mmap_total [1-9]", text, re.M)
        assert re.search(r"^hakmem_ledger_rss_bytes [1-9]", text, re.M)
        assert "# TYPE hakmem_class_misses counter" in text and "# UNIT hakmem_memory_live_bytes bytes" in text
        kind, text = fetched(url)
        assert kind == openmetrics.PLAIN and "# EOF" not in text
        assert "# TYPE hakmem_class_misses_total counter" in text
        checked = subprocess.run(
            [promtool(), "check", "metrics"], input=text, capture_output=True, text=True, check=False
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr
        with pytest.raises(urllib.error.HTTPError, match="404"):
            fetched(url.replace("/metrics", "/elsewhere"))


def test_families_are_those_of_the_library_itself(tmp_path: Path) -> None:
    target = tmp_path / "own.prom"
    settings = {"HAKMEM_STATS": f"prom:{target}", "HAKMEM_STATS_LEDGER": "1", "LD_PRELOAD": str(LIBRARY)}
    subprocess.run(["ls"], env={**os.environ, **settings}, stdout=subprocess.DEVNULL, check=True)
    own = heads(target.read_text())
    with served() as (_, url):
        ours = heads(fetched(url, "application/openmetrics-text")[1])
    known = {each.metric for each in openmetrics.metrics()}
    assert own and set(own) <= known
    # From outside, free blocks are known by counters only, and include the ends of slabs.
    outside = {"hakmem_ledger_unread_spans", "hakmem_ledger_huge_pages_bytes", "hakmem_ledger_frontier_slack_bytes"}
    assert set(own) - set(ours) <= outside
    assert all(own[name] == ours[name] for name in own if name in ours)


def test_histograms_and_counts_of_exact_statistics(tmp_path: Path) -> None:
    text = openmetrics.text(Snapshot.model_validate(figures()))
    buckets = re.findall(r'^hakmem_slow_malloc_nanoseconds_bucket\{le="(\S+)"\} (\d+)$', text, re.M)
    assert buckets == [("1.0", "0"), ("2.0", "1"), ("4.0", "6"), ("+Inf", "8")]
    assert "hakmem_slow_malloc_nanoseconds_count 8\nhakmem_slow_malloc_nanoseconds_sum 100\n" in text
    assert 'hakmem_class_mallocs_total{size="64"} 90000' in text
    # A newer library's figure, whose type is unknown here, is not a metric.
    assert "future" not in openmetrics.text(Snapshot.model_validate({**figures(), "future": {"x": 1}}))


@pytest.mark.parametrize(
    ("text", "found"), [("9797", ("127.0.0.1", 9797)), ("0.0.0.0:1", ("0.0.0.0", 1)), ("[::1]:0", ("::1", 0))]
)
def test_addresses(text: str, found: tuple[str, int]) -> None:
    assert metrics_server.address(text) == found


@pytest.mark.parametrize("text", ["", "x", "1:", ":1", "99999"])
def test_no_addresses(text: str) -> None:
    with pytest.raises(LabError, match="neither PORT nor HOST:PORT"):
        metrics_server.address(text)


def test_refusals(hakmem: Hakmem) -> None:
    assert "no process given" in hakmem("serve", status=1).stderr
    assert "there is no process" in hakmem("serve", "999999999", status=1).stderr
    with killed_after(["sleep", "100"]) as child:
        said = hakmem("serve", str(child.pid), status=1).stderr
    assert "HAKMEM" in said and "Traceback" not in said


def expressions(document: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in document["panels"] for target in panel["targets"]]


def test_dashboard_draws_what_there_is() -> None:
    document = json.loads(DASHBOARD.read_text())
    known = {each.sample for each in openmetrics.metrics()}
    drawn = {name for each in expressions(document) for name in re.findall(r"hakmem_\w+", each)}
    assert drawn and drawn <= known, drawn - known
    identities = [panel["id"] for panel in document["panels"]]
    assert len(set(identities)) == len(identities)


def test_dashboard_s_queries_are_promql(tmp_path: Path) -> None:
    """promtool parses every query as the expression of a rule; variables of Grafana have their values."""
    rows = []
    for number, each in enumerate(expressions(json.loads(DASHBOARD.read_text()))):
        plain = each.replace("$__rate_interval", "1m").replace("$job", ".*").replace("$instance", ".*")
        rows.append({"record": f"x:number_{number}", "expr": plain})
    rules = tmp_path / "rules.yml"
    rules.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rows}]}))  # JSON is YAML
    done = subprocess.run([promtool(), "check", "rules", str(rules)], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and f"{len(rows)} rules found" in done.stdout, done.stdout + done.stderr
    rules.write_text(rules.read_text().replace("sum(", "sum((", 1))
    assert subprocess.run([promtool(), "check", "rules", str(rules)], capture_output=True, check=False).returncode != 0


def lost(given: Any, kept: Any, path: str = "") -> list[str]:
    """The parts of a document that another one lacks."""
    if isinstance(given, dict):
        return [
            said
            for name, each in given.items()
            for said in (lost(each, kept[name], f"{path}/{name}") if name in kept else [f"{path}/{name}"])
        ]
    if isinstance(given, list):
        pairs = list(zip(given, kept, strict=True))
        return [said for place, (one, other) in enumerate(pairs) for said in lost(one, other, f"{path}/{place}")]
    return [] if given == kept else [path]


def test_dashboard_is_of_grafana_s_schema() -> None:
    """Grafana's own library reads it into its types and writes it back without a loss: no field is misspelt."""
    pytest.importorskip("grafana_foundation_sdk")
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    given = json.loads(DASHBOARD.read_text())
    again = json.loads(JSONEncoder().encode(Dashboard.from_json(given)))
    assert lost(given, again) == []
    given["panels"][0]["gridPosition"] = given["panels"][0].pop("gridPos")
    assert lost(given, json.loads(JSONEncoder().encode(Dashboard.from_json(given)))) == ["/panels/0/gridPosition"]


def test_dashboard_is_printed_as_it_is(hakmem: Hakmem) -> None:
    assert hakmem("serve", "--dashboard").stdout == DASHBOARD.read_text()
