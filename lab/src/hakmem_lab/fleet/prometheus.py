"""Prometheus' query interface, and that of what speaks it (Thanos, Mimir, VictoriaMetrics). Sums over time run in the
engine; what arrives here is one value per host and day.

An answer that is late, partial or not Prometheus' is an error: no verdict is made from half of the data."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np

from hakmem_lab.fleet.inference import Array
from hakmem_lab.terminal.errors import LabError

TIMEOUT_S = 120.0
CLOCKS_S = 300.0  # by which the engine's clock may differ
DAY_S = 86_400


@dataclass
class Prometheus:
    """One server. `token` goes into the header Authorization."""

    url: str
    token: str = ""
    timeout_s: float = TIMEOUT_S
    client: httpx.Client = field(init=False, repr=False)

    def __post_init__(self) -> None:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        try:
            self.client = httpx.Client(base_url=self.url.rstrip("/"), headers=headers, timeout=self.timeout_s)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol):
            raise self._no_url() from None

    def _no_url(self) -> LabError:
        return LabError(f"--prometheus {self.url}: not an address", "Example: --prometheus http://localhost:9090")

    def _get(self, path: str, **parameters: Any) -> Any:
        asked = str(parameters.get("query", path))[:200]
        try:
            answer, text = self._answer(path, parameters)
        except (httpx.UnsupportedProtocol, httpx.InvalidURL):
            raise self._no_url() from None
        except httpx.TimeoutException:
            raise LabError(
                f"{self.url} has not answered for {self.timeout_s:g} s: {asked}",
                "Add the recording rules of packaging/fleet/rules.yaml, or give a larger --timeout.",
            ) from None
        except httpx.HTTPError as error:
            raise LabError(f"{self.url} cannot be asked: {error}", "Does it run, and is the address right?") from None
        try:
            content = json.loads(text)
        except ValueError:
            raise LabError(f"{self.url} answers {answer.status_code}, and not as Prometheus does") from None
        if not isinstance(content, dict) or content.get("status") != "success":
            said = content.get("error", answer.reason_phrase) if isinstance(content, dict) else "no object"
            raise LabError(f"{self.url} refuses the query {asked}: {said}")
        if content.get("warnings") or content.get("isPartial"):
            said = "; ".join(content.get("warnings") or ["partial data"])
            raise LabError(f"{self.url} answers in part: {said}", "Wait until all of its stores answer, and repeat.")
        data = content.get("data")
        if not isinstance(data, dict) or "result" not in data:
            raise LabError(f"{self.url} answers {asked} without a result: is it Prometheus?")
        return data

    def _answer(self, path: str, parameters: dict[str, Any]) -> tuple[httpx.Response, bytes]:
        """The answer, which is late if its last byte is."""
        until = time.monotonic() + self.timeout_s
        parts = []
        with self.client.stream("POST", f"/api/v1/{path}", data=parameters) as answer:
            for part in answer.iter_bytes():
                parts.append(part)
                if time.monotonic() > until:
                    raise httpx.ReadTimeout("its last byte is late")
        return answer, b"".join(parts)

    @contextmanager
    def _reading(self, query: str) -> Iterator[None]:
        """What is read in it has the form of Prometheus' answers, or it is a LabError."""
        try:
            yield
        except (AttributeError, IndexError, KeyError, TypeError, ValueError, OverflowError):
            raise LabError(f"{self.url} answers {query[:200]} in another form than Prometheus") from None

    def check_clock(self) -> None:
        """Refuses an engine whose clock is not ours: days would be cut at other times."""
        found = self._get("query", query="time()")
        is_scalar = found.get("resultType") == "scalar"
        with self._reading("time()"):
            theirs = float(found["result"][1] if is_scalar else found["result"][0]["value"][1])
        if abs(theirs - time.time()) > CLOCKS_S:
            raise LabError(
                f"the clock of {self.url} differs by {theirs - time.time():+.0f} s from this machine's",
                "Set both by NTP.",
            )

    def daily(self, query: str, host_label: str, first_day: int, days: int) -> dict[str, Array]:
        """For each host the query's value at the end of each day; NaN where there is none.

        first_day: the Unix time at which the first day begins."""
        if days < 1:
            return {}
        found = self._get("query_range", query=query, start=first_day + DAY_S, end=first_day + days * DAY_S, step=DAY_S)
        with self._reading(query):
            return self._rows(found["result"], query, host_label, first_day, days)

    def _rows(self, result: Any, query: str, host_label: str, first_day: int, days: int) -> dict[str, Array]:
        rows: dict[str, Array] = {}
        for series in result:
            host = series["metric"].get(host_label)
            if host is None:
                raise LabError(
                    f"a series without the label {host_label}: {query[:200]}", "Choose it with --host-label."
                )
            if host in rows:
                raise LabError(f"two series for host {host}: {query[:200]}", f"Sum it: sum by ({host_label}) (...)")
            row = rows[host] = np.full(days, math.nan)
            for at, value in series["values"]:
                day = round((float(at) - first_day) / DAY_S) - 1
                if 0 <= day < days:
                    row[day] = float(value)
        return rows

    def instant(self, query: str, at: float) -> list[tuple[dict[str, str], float]]:
        """Labels and values at one moment."""
        found = self._get("query", query=query, time=at)
        with self._reading(query):
            return [(dict(each["metric"]), float(each["value"][1])) for each in found["result"]]


def table(rows: dict[str, Array], hosts: list[str], days: int) -> Array:
    """The rows in the order of the hosts; a host without one has NaN."""
    missing = np.full(days, math.nan)
    return np.stack([rows.get(host, missing) for host in hosts]) if hosts else np.zeros((0, days))
