"""Servers with clients: readiness, measuring with children, stopping; and latencies."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hakmem_lab.decide import latency_shifts
from hakmem_lab.measure import latencies, one_run, server_runner
from hakmem_lab.measure.results import Experiment
from hakmem_lab.terminal.errors import LabError
from tests.conftest import Hakmem, make_experiment

# Listens on a port; with prefork, three children answer besides, each with 20 MiB of its own.
SERVER = """
import os, socket, sys, time
port, mode = int(sys.argv[1]), sys.argv[2]
listening = socket.socket()
listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listening.bind(("127.0.0.1", port))
if mode == "daemon" and os.fork():
    os._exit(0)
if mode == "daemon":
    os.setsid()
if mode == "slow":
    time.sleep(0.3)
listening.listen(64)
held = b""
if mode in ("prefork", "daemon"):
    told, tell = os.pipe()
    for _ in range(3):
        if os.fork() == 0:
            held = b"x" * (20 << 20)
            os.write(tell, b"1")
            break
    else:
        for _ in range(3):
            os.read(told, 1)
if not held:
    print("ready now", flush=True)
limit = int(sys.argv[3]) if len(sys.argv) > 3 else 1 << 30
while limit:
    limit -= 1
    connection, _ = listening.accept()
    line = connection.recv(100)
    spent = sum(range(int(line or b"0")))
    connection.sendall(b"done\\n")
    connection.close()
"""
CLIENT = """
import socket, sys, time
port, count, work = map(int, sys.argv[1:4])
for _ in range(count):
    began = time.perf_counter()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"%d" % work)
        assert connection.recv(10)
    print(f"took {1000 * (time.perf_counter() - began):.4f} ms")
"""


@pytest.fixture
def port() -> int:
    """A free port below those that the system gives to clients, so that no client takes it first."""
    return next(each for each in random.sample(range(12_000, 32_000), 1000) if is_free(each))


@pytest.fixture
def texts(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "client.py").write_text(CLIENT)
    return str(tmp_path / "server.py"), str(tmp_path / "client.py")


def run(texts: tuple[str, str], port: int, mode: str, ready: str, client: str = "", limit: str = "") -> one_run.Outcome:
    command = [sys.executable, texts[0], str(port), mode, *([limit] if limit else [])]
    asked = client or f"{sys.executable} {texts[1]} {port} 20 1000"
    return server_runner.run(command, dict(os.environ), asked, ready, timeout_s=30)


def is_free(port: int) -> bool:
    with socket.socket() as found:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


@pytest.mark.parametrize("ready", ["port:{}", "output:^ready"])
def test_the_client_runs_when_the_server_is_ready(texts: tuple[str, str], port: int, ready: str) -> None:
    found = run(texts, port, "slow", ready.format(port))
    assert found.status == 0 and found.output.count("took") == 20
    assert 0 < found.wall_s < 20 and found.peak_rss_bytes > 2 << 20
    assert is_free(port), "the server has ended"


@pytest.mark.parametrize("mode", ["prefork", "daemon"])
def test_memory_is_that_of_all_children_and_all_end(texts: tuple[str, str], port: int, mode: str) -> None:
    client = f"sleep 1; {sys.executable} {texts[1]} {port} 5 10"
    found = run(texts, port, mode, "output:^ready", client)
    assert found.status == 0 and 60 << 20 < found.peak_rss_bytes < 140 << 20
    until = time.monotonic() + 60
    while not is_free(port) and time.monotonic() < until:
        time.sleep(0.05)
    assert is_free(port), "every child has ended"


def test_children_whose_parent_leaves_them_are_asked_to_end(
    texts: tuple[str, str], port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent ends at SIGTERM without telling its children; stopping it does not wait for them."""
    monkeypatch.setattr(server_runner, "STOP_S", 60.0)
    began = time.monotonic()
    run(texts, port, "prefork", f"port:{port}")
    assert time.monotonic() - began < 60


def test_processor_time_is_the_server_s(texts: tuple[str, str], port: int) -> None:
    client = f"{sys.executable} {texts[1]} {port} 3 6000000"
    found = run(texts, port, "plain", f"port:{port}", client)
    assert 0.05 < found.cpu_s < 20 and found.switches > 0
    idle = run(texts, port, "plain", f"port:{port}", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done")
    assert idle.cpu_s <= 0.05, "the client's own work does not count"


@pytest.mark.parametrize(
    ("mode", "ready", "client", "limit", "part"),
    [
        ("plain", "output:never", "true", "0", "the server ended before it was ready"),
        ("plain", "port:{}", "", "3", "the server ended while the client ran"),
    ],
)
def test_a_server_that_does_not_last_is_an_error(
    texts: tuple[str, str], port: int, mode: str, ready: str, client: str, limit: str, part: str
) -> None:
    asked = client or f"{sys.executable} {texts[1]} {port} 2 10; sleep 0.5"
    with pytest.raises(one_run.RunFailed, match=part):
        run(texts, port, mode, ready.format(port), asked, limit)
    assert is_free(port)


def test_time_limits(texts: tuple[str, str], port: int) -> None:
    command = [sys.executable, texts[0], str(port), "plain"]
    with pytest.raises(one_run.RunFailed, match="was not ready"):
        server_runner.run(command, dict(os.environ), "true", "output:never", timeout_s=0.5)
    with pytest.raises(one_run.RunFailed, match="no end of the client after"):
        server_runner.run(command, dict(os.environ), "sleep 60", f"port:{port}", timeout_s=3)
    assert is_free(port)


@pytest.mark.parametrize("text", ["", "port:", "port:x", "port:99999", "output:(", "soon", "file:"])
def test_mistakes_in_ready(text: str) -> None:
    with pytest.raises(LabError, match="--ready"):
        server_runner.parse_ready(text)


def test_quantiles_of_what_is_printed() -> None:
    output = "\n".join(f"took {each}.0 ms" for each in range(1, 1001))
    found = latencies.quantiles(r"took ([0-9.]+) ms", output)
    assert (
        found["count"] == 1000 and found["p50"] == pytest.approx(500.5) and found["p99"] == pytest.approx(990, abs=0.1)
    )
    assert "p99.9" not in found, "a single value is no quantile"
    with pytest.raises(LabError, match="has no match"):
        latencies.quantiles("nothing (.*)", output)
    with pytest.raises(LabError, match="not a number"):
        latencies.quantiles("(took)", output)
    for wrong in ("(", "took", "(a)(b)"):
        with pytest.raises(LabError, match="--latency"):
            latencies.check(wrong)


def test_a_quantile_needs_ten_values_beyond() -> None:
    def of(*values: float) -> dict[str, float]:
        return latencies.quantiles(r"^([-0-9.]+)$", "\n".join(map(str, values)))

    assert list(of(*[1.0] * 20)) == ["p50", "count"] and list(of(*[1.0] * 99)) == ["p50", "count"]
    assert list(of(*[1.0] * 100)) == ["p10", "p50", "p90", "count"] and "p95" not in of(*[1.0] * 199)
    assert list(of(*[1.0] * 200)) == ["p10", "p50", "p90", "p95", "count"] and "p99" not in of(*[1.0] * 998)
    whole = of(*range(1, 10_002))
    assert whole == {"p10": 1001, "p50": 5001, "p90": 9001, "p95": 9501, "p99": 9901, "p99.9": 9991, "count": 10_001}
    for wrong in ([1.0] * 19, [*[1.0] * 20, 0.0], [*[1.0] * 20, -1.0]):
        with pytest.raises(LabError, match=rf"has {len(wrong)} matches above 0 of at least 20"):
            of(*wrong)


def test_shifts_are_of_all_rounds_and_quantiles_that_all_have() -> None:
    made = with_quantiles(2.0, 1, 4)
    del made.runs[2].quantiles["p90"]  # type: ignore[union-attr]
    found = latency_shifts.shifts(made)
    assert [each.quantile for each in found] == ["p50", "p99"] and found[0].confidence == pytest.approx(0.975)
    runs: dict[str, list[float]] = {"A": [], "B": []}
    for each in made.runs:
        runs[each.label].append(each.quantiles["p99"])  # type: ignore[index]
    assert (found[1].base, found[1].other) == (np.median(runs["A"]), np.median(runs["B"]))
    assert [each.gain for each in latency_shifts.shifts(made, "B", "A")] == pytest.approx(
        [100 / (1 + each.gain / 100) - 100 for each in found]
    )
    assert latency_shifts.shifts(with_quantiles(1.0, 1, 1)) == [] and latency_shifts.shifts(with_quantiles(1.0, 1, 2))
    assert latency_shifts.shifts(made, "A", "C") == []


def with_quantiles(tail: float, seed: int, rounds: int = 10) -> Experiment:
    """Experiments in which B's tail is longer, and its median is the same."""
    chance = np.random.default_rng(seed)
    made = make_experiment({"A": [1.0] * rounds, "B": [1.0] * rounds})
    for run_ in made.runs:
        values = np.exp(chance.normal(0, 0.01, 3)) * [1.0, 2.0, 5.0 * (tail if run_.label == "B" else 1.0)]
        run_.quantiles = {**dict(zip(("p50", "p90", "p99"), values.tolist(), strict=True)), "count": 1000.0}
    return made


def test_the_shift_is_in_the_tail_alone() -> None:
    found = {each.quantile: each for each in latency_shifts.shifts(with_quantiles(1.2, 1))}
    assert list(found) == ["p50", "p90", "p99"]
    assert found["p50"].low < 0 < found["p50"].high and found["p99"].high < -10
    assert found["p99"].gain == pytest.approx(100 * (1 / 1.2 - 1), abs=2)
    assert found["p50"].confidence == pytest.approx(1 - 0.05 / 3)
    made = with_quantiles(1.2, 1)
    made.runs[3].quantiles = None
    assert latency_shifts.shifts(made) == []


def test_all_quantiles_hold_together() -> None:
    """Of 300 experiments without a shift, at most 5 % (and chance) have any quantile's interval beside 0."""
    wrong = sum(
        any(each.low > 0 or each.high < 0 for each in latency_shifts.shifts(with_quantiles(1.0, seed)))
        for seed in range(300)
    )
    assert wrong <= 300 * 0.05 + 2 * (300 * 0.05 * 0.95) ** 0.5


def test_ab_of_a_server(
    hakmem_library: Path, hakmem: Hakmem, texts: tuple[str, str], port: int, tmp_path: Path
) -> None:
    client = f"{sys.executable} {texts[1]} {port} 200 10"
    arguments = ["--a", "alloc:system", "--b", "", "--runs", "2", "--warmup", "0", "--no-noise-check"]
    asked = ["--client", client, "--ready", "output:^ready", "--latency", r"took ([0-9.]+) ms"]
    program = ["--", sys.executable, texts[0], str(port), "prefork"]
    done = hakmem("ab", *arguments, *asked, "--metric", "p90", "--json", *program, status=None)
    document = json.loads(done.stdout)
    assert [each["quantile"] for each in document["shifts"]] == ["p10", "p50", "p90", "p95"]
    lines = (tmp_path / document["files"]["results"]).read_text().splitlines()
    values = [json.loads(line)["data"] for line in lines if '"run"' in line]
    assert len(values) == 4 and all(each["value"] == each["quantiles"]["p90"] for each in values)
    assert all(each["peak_rss_bytes"] > 60 << 20 for each in values)
    assert "Shift of latencies" in (tmp_path / document["files"]["page"]).read_text()
    for wrong, part in ((asked[:2], "--client needs --ready"), (asked[2:4], "need --client")):
        said = hakmem("ab", *arguments, *wrong, *program, status=2).stderr
        assert part in " ".join(said.split())
    said = hakmem("ab", *arguments, "--metric", "p99", "--", "true", status=1).stderr
    assert "needs the latencies of a client" in " ".join(said.split())


def test_a_client_that_starts_is_not_the_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample after the client was started, but before its id is known, waits for that id."""
    begun, popen = threading.Event(), subprocess.Popen

    def started_slowly(*arguments: Any, **named: Any) -> subprocess.Popen[bytes]:
        child: subprocess.Popen[bytes] = popen(*arguments, **named)
        begun.set()
        time.sleep(0.5)
        return child

    def looks() -> None:
        begun.wait()
        for _ in range(20):
            server.look()
            time.sleep(0.02)

    ballast = f"{sys.executable} -c 'import time; kept = bytearray(100 << 20); time.sleep(1)'"
    with server_runner.Server(["/bin/sleep", "60"], os.environ, None) as server, tempfile.TemporaryFile() as output:
        monkeypatch.setattr(subprocess, "Popen", started_slowly)
        thread = threading.Thread(target=looks)
        thread.start()
        client = server.start_client(ballast, output)
        thread.join()
        server.look()
        client.wait()
    assert 0 < server.peak < 20 << 20
