"""Answers that are slow, broken, partial, of another time or not a Prometheus's: a line, and no verdict."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from hakmem_lab.fleet.prometheus import Prometheus
from hakmem_lab.terminal.errors import LabError
from tests import served


@contextmanager
def answering(status: int, content: bytes, wait: float = 0.0, wait_each: float = 0.0) -> Iterator[str]:
    """A server that answers everything so, after a while, or byte by byte."""

    class Handler(served.Quiet):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            time.sleep(wait)
            self.send_response(status)
            self.end_headers()
            with suppress(OSError):  # the client may have given up
                for part in (bytes([each]) for each in content) if wait_each else (content,):
                    self.wfile.write(part)
                    time.sleep(wait_each)

    with served.by(Handler) as url:
        yield url


def test_half_of_an_answer_is_none() -> None:
    whole = {"status": "success", "data": {"resultType": "matrix", "result": []}}
    cases = [
        (200, json.dumps(whole | {"warnings": ["store-2 is down"]}).encode(), "answers in part: store-2 is down"),
        (200, json.dumps(whole | {"isPartial": True}).encode(), "answers in part"),
        (422, b'{"status": "error", "error": "query processing would load too many samples"}', "too many samples"),
        (502, b"<html>bad gateway</html>", "answers 502, and not as Prometheus does"),
        (200, b'{"status": "success"}', "without a result"),
    ]
    for status, content, said in cases:
        with answering(status, content) as url, pytest.raises(LabError, match=said):
            Prometheus(url).daily("up", "instance", 0, 3)
    with (
        answering(200, json.dumps(whole).encode(), wait=1.0) as url,
        pytest.raises(LabError, match=r"not answered for 0\.2 s"),
    ):
        Prometheus(url, timeout_s=0.2).daily("up", "instance", 0, 3)
    with (
        answering(200, json.dumps(whole).encode(), wait_each=0.1) as url,
        pytest.raises(LabError, match=r"not answered for 0\.5 s"),
    ):
        Prometheus(url, timeout_s=0.5).daily("up", "instance", 0, 3)
    with pytest.raises(LabError, match="cannot be asked"):
        Prometheus("http://127.0.0.1:9").daily("up", "instance", 0, 3)
    with pytest.raises(LabError, match="not an address"):
        Prometheus("prometheus:9090").daily("up", "instance", 0, 3)
    late = {"status": "success", "data": {"resultType": "scalar", "result": [0, str(time.time() - 900)]}}
    with (
        answering(200, json.dumps(late).encode()) as url,
        pytest.raises(LabError, match=r"clock of .* differs by -90[0-9] s"),
    ):
        Prometheus(url).check_clock()


def test_an_answer_of_another_form_is_no_traceback() -> None:
    name = {"instance": "a"}
    results: list[Any] = [
        None,
        5,
        [5],
        [0, "1"],
        [{"metric": name}],
        [{"values": []}],
        [{"metric": name, "histograms": []}],
    ]
    results += [[{"metric": name, "values": values}] for values in ([[86_400, "abc"]], [["NaN", "1"]], [5], [[1]], 5)]
    for result in results:
        content = {"status": "success", "data": {"resultType": "matrix", "result": result}}
        with answering(200, json.dumps(content).encode()) as url:
            with pytest.raises(LabError, match="answers up in another form"):
                Prometheus(url).daily("up", "instance", 0, 3)
            with pytest.raises(LabError, match="answers up in another form"):
                Prometheus(url).instant("up", 0)
    with answering(200, b'{"status": "success", "data": {"resultType": "vector", "result": []}}') as url:
        with pytest.raises(LabError, match="in another form"):
            Prometheus(url).check_clock()
        assert Prometheus(url).daily("up", "instance", 0, 3) == {}
