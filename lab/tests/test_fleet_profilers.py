"""hakmem fleet diff from Parca's and Pyroscope's query interfaces: a real Parca if one is installed, small servers that
answer as both are documented to."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format

from hakmem_lab.fleet import profilers
from hakmem_lab.profile import formats
from hakmem_lab.terminal.errors import LabError
from tests import served
from tests.conftest import Hakmem

ROOT = Path(__file__).resolve().parents[2]
Answer = Callable[[str, Any], Any]


@contextlib.contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """A server: answer(path, parameters or body) is sent as JSON; None becomes a status 400."""

    class Handler(served.Quiet):
        def reply(self, path: str, asked: Any) -> None:
            found = answer(path, asked)
            self.send_response(400 if found is None else 200)
            self.end_headers()
            self.wfile.write(json.dumps({"message": "no such thing"} if found is None else found).encode())

        def do_GET(self) -> None:
            path, _, asked = self.path.partition("?")
            self.reply(path, dict(urllib.parse.parse_qsl(asked)))

        def do_POST(self) -> None:
            self.reply(self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    with served.by(Handler) as url:
        yield url


def heap(live: dict[str, int]) -> Any:
    """A profile of bytes in use, as both servers give it."""
    profile = formats.messages()["Profile"]()
    profile.sample_type.add(type=1, unit=2)
    for number, (_, size) in enumerate(live.items(), start=1):
        profile.function.add(id=number, name=number + 2)
        profile.location.add(id=number).line.add(function_id=number, line=1)
        profile.sample.add(location_id=[number], value=[size])
    profile.string_table.extend(["", "inuse_space", "bytes", *live])
    return profile


HEAPS = {"a": {"parse": 4000, "cache": 1000}, "b": {"parse": 4000, "cache": 3000}, "c": {"parse": 4000, "cache": 5000}}
TYPE = {"name": "memory", "sampleType": "inuse_space", "sampleUnit": "bytes", "periodType": "space"}


def parca(path: str, asked: dict[str, str]) -> Any:
    """One host without, two with HAKMEM; and a week ago none."""
    if path == "/api/profiles/types":
        return {"types": [TYPE | {"sampleType": "alloc_space"}, TYPE | {"periodUnit": "bytes"}]}
    if path == "/api/profiles/query_range":
        assert asked["query"].startswith("memory:inuse_space:bytes:space:bytes{arm=")
        recent = asked["end"] > profilers.stamp(time.time() - 1000)
        hosts = ("a",) if 'arm="control"' in asked["query"] else ("b", "c")
        times = ["2026-05-01T00:00:10.5Z", "2026-05-01T00:00:20.5Z"]
        return {"series": [series(host, times) for host in hosts] if recent else []}
    host = asked["single.query"].partition('instance="')[2][0]
    assert asked["single.time"].endswith("20.5Z") and asked["report_type"] == "REPORT_TYPE_PPROF"
    return {"pprof": base64.b64encode(gzip.compress(heap(HEAPS[host]).SerializeToString())).decode()}


def series(host: str, times: list[str]) -> Any:
    names = [{"name": "instance", "value": host}, {"name": "job", "value": "hakmem"}]
    return {"labelset": {"labels": names}, "samples": [{"timestamp": each, "value": "1"} for each in reversed(times)]}


def pyroscope(path: str, asked: Any) -> Any:
    """The same hosts, each with three scrapes, which a merged profile sums."""
    assert asked["profileTypeID"] == "memory:inuse_space:bytes:space:bytes"
    service, _, method = path.rpartition("/")
    assert service == "/querier.v1.QuerierService"
    if method == "SelectSeries":
        hosts = ("a",) if 'arm="control"' in asked["labelSelector"] else ("b", "c")
        return {
            "series": [
                {
                    "labels": [{"name": "instance", "value": host}],
                    "points": [{"timestamp": "1", "value": sum(HEAPS[host].values())}],
                }
                for host in hosts
            ]
        }
    host = asked["labelSelector"].partition('instance="')[2][0]
    return json_format.MessageToDict(heap({name: 3 * size for name, size in HEAPS[host].items()}))


@pytest.mark.parametrize("name", ["parca", "pyroscope"])
def test_the_difference_is_per_host(name: str, tmp_path: Path, hakmem: Hakmem) -> None:
    with answering(parca if name == "parca" else pyroscope) as url:
        made = profilers.Parca if name == "parca" else profilers.Pyroscope
        found = formats.difference(made(url).mean('arm="control"'), made(url).mean('{arm="hakmem"}'))
        said = hakmem(
            "fleet", "diff", f"--{name}", url, 'arm="control"', 'arm="hakmem"', "-o", "difference.html"
        ).stdout
    grown = {stack[0].name: round(values["growth"].bytes) for stack, values in found.stacks.items()}
    assert grown == {"parse": 0, "cache": 3000}
    assert said.startswith("3 KiB more per host") and "cache" in (tmp_path / "difference.html").read_text()


def test_what_is_not_there_is_said() -> None:
    with answering(parca) as url, pytest.raises(LabError, match=r"no heap profile of \{arm=.hakmem.\} in that hour"):
        profilers.Parca(url).mean('arm="hakmem" offset 7d')
    cases: list[tuple[Answer, str]] = [
        (lambda *_: {}, "has no heap profiles"),
        (lambda *_: None, "refuses /api/profiles/types: no such thing"),
        (lambda *_: [], "no object"),
        (lambda path, asked: {"pprof": "bm9uZQ=="} if path.endswith("/query") else parca(path, asked), "not in pprof"),
        (lambda path, asked: {"pprof": ""} if path.endswith("/query") else parca(path, asked), "something else than a"),
    ]
    for answer, said in cases:
        with answering(answer) as url, pytest.raises(LabError, match=said):
            profilers.Parca(url).mean('arm="hakmem"')
    with pytest.raises(LabError, match="cannot be asked"):
        profilers.Parca("http://127.0.0.1:9").mean("")
    with pytest.raises(LabError, match="not an address"):
        profilers.Pyroscope("parca:7070").mean("")


def test_an_offset_goes_back() -> None:
    assert profilers.chosen('{a="b"} offset 2d', 1e6) == ('a="b"', 1e6 - 172_800)
    assert profilers.chosen(' a="b" ', 1e6) == ('a="b"', 1e6)
    assert profilers.chosen("", 5.0) == ("", 5.0)


# --- a real Parca -----------------------------------------------------------------------------------------------------

PROGRAM = """#include <stdlib.h>
#include <string.h>
#include <unistd.h>
void *volatile kept[20000];
__attribute__((noinline)) void cache_fill(int i) { kept[i] = memset(malloc(4000), 1, 4000); }
__attribute__((noinline)) void serve(void) { for (int i = 0; i < 20000; i++) cache_fill(i); }
int main(void) { serve(); for (;;) { void *volatile p = malloc(100); free(p); usleep(5000); } }
"""
CONFIG = """object_storage: {{bucket: {{type: FILESYSTEM, config: {{directory: ./data}}}}}}
scrape_configs:
  - job_name: hakmem
    scrape_interval: 2s
    params: {{pid: ["{pid}"]}}
    profiling_config:
      pprof_config:
        memory: {{path: /debug/pprof/heap}}
        block: {{enabled: false}}
        goroutine: {{enabled: false}}
        mutex: {{enabled: false}}
        process_cpu: {{enabled: false}}
    static_configs: [{{targets: ["{exporter}"]}}]
"""


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def exporter() -> str:
    built = ROOT / "rust" / "target" / "release" / "hakmem-exporter"
    return shutil.which("hakmem-exporter") or (
        str(built) if built.exists() else pytest.skip("no hakmem-exporter is built")
    )


def test_a_real_parca_scrapes_the_exporter(tmp_path: Path, hakmem: Hakmem, hakmem_library: Path) -> None:
    """From a profiled process by the exporter and Parca's own scraper to its queries: functions have their names."""
    server = shutil.which("parca") or pytest.skip("no parca in PATH")
    exports = exporter()
    (tmp_path / "server.c").write_text(PROGRAM)
    compiler = shutil.which("gcc") or pytest.skip("no gcc")
    subprocess.run([compiler, "-g", "-O1", "server.c", "-o", "server"], cwd=tmp_path, check=True)
    ports = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    environment = os.environ | {"LD_PRELOAD": str(hakmem_library), "HAKMEM_PROFILE": "1"}
    with contextlib.ExitStack() as ended:

        def started(*command: str, env: dict[str, str] | None = None) -> int:
            quiet = subprocess.DEVNULL
            process = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=quiet, stderr=quiet)
            ended.callback(process.wait)
            ended.callback(process.kill)
            return process.pid

        pid = started("./server", env=environment)
        started(exports, "--listen", ports[0])
        (tmp_path / "parca.yaml").write_text(CONFIG.format(pid=pid, exporter=ports[0]))
        started(server, "--config-path=parca.yaml", f"--http-address={ports[1]}", "--storage-active-memory=67108864")
        report = until_known(f"http://{ports[1]}")
        stack = max(report.stacks, key=lambda each: report.stacks[each]["live"].bytes)
        assert [frame.name for frame in stack[:3]] == ["cache_fill", "serve", "main"]
        assert stack[0].file.endswith("server.c") and stack[0].line == 5
        assert report.total("live").bytes == pytest.approx(80e6, rel=0.4)  # 150 samples
        words = ["--parca", f"http://{ports[1]}", 'job="hakmem"', 'job="hakmem"', "-o", "same.html"]
        assert hakmem("fleet", "diff", *words).stdout.startswith("0 B more per host")


def until_known(url: str) -> formats.Report:
    """What Parca knows, once it has scraped."""
    until = time.monotonic() + 60
    while True:
        try:
            return profilers.Parca(url).mean('job="hakmem"')
        except LabError:
            if time.monotonic() > until:
                with urllib.request.urlopen(f"{url}/api/targets") as answer:
                    pytest.fail(answer.read().decode())
            time.sleep(0.5)
