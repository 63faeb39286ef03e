"""Heap profiles of many hosts as one, by the query interface of Parca or Pyroscope: the mean over the hosts of each
one's last profile (Parca) or mean (Pyroscope) of an hour."""

from __future__ import annotations

import base64
import gzip
import json
import re
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from hakmem_lab.fleet import profiles
from hakmem_lab.profile import formats
from hakmem_lab.profile.formats import Report
from hakmem_lab.profile.heap_dumps import Profile
from hakmem_lab.terminal.errors import LabError

WINDOW_S = 3600
KIND = "inuse_space"
OFFSET = re.compile(r"\{?(.*?)\}?(?:\s+offset\s+(\d+)([smhdw]))?", re.DOTALL)
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def chosen(text: str, now: float) -> tuple[str, float]:
    """Label matchers and the time of 'service="web" offset 7d'."""
    found = OFFSET.fullmatch(text.strip())
    matchers, count, unit = found.groups(default="") if found else (text, "", "")
    return matchers, now - (int(count) * UNITS[unit] if count else 0)


@dataclass
class Server:
    """A server of profiles. `token` goes into the header Authorization."""

    url: str
    host_label: str = "instance"
    token: str = ""
    timeout_s: float = 120.0

    def mean(self, text: str) -> Report:
        """The mean heap of the hosts that the text chooses."""
        matchers, end = chosen(text, time.time())
        hosts = self._hosts(matchers, end)
        if not hosts:
            raise LabError(
                f"{self.url} has no heap profile of {{{matchers}}} in that hour", "Are labels and time right?"
            )
        samples: profiles.Samples = defaultdict(dict)
        interval = 0
        for parts in hosts.values():
            for content, share in parts:
                try:
                    interval = profiles.add(content, share / len(hosts), samples) or interval
                except (ValueError, IndexError, KeyError):
                    raise LabError(f"{self.url} answers with something else than a heap profile") from None
        return Report(dict(samples), ("live",), interval, Profile(interval, [], []))

    def _hosts(self, matchers: str, end: float) -> Mapping[str, Sequence[tuple[Any, float]]]:
        """By host its profiles, and how much of each counts."""
        raise NotImplementedError

    def _asked(self, path: str, body: Any = None, **parameters: Any) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        method = "GET" if body is None else "POST"
        try:
            answer = httpx.request(
                method,
                self.url.rstrip("/") + path,
                json=body,
                params=parameters,
                headers=headers,
                timeout=self.timeout_s,
            )
            found = answer.json()
        except (httpx.UnsupportedProtocol, httpx.InvalidURL):
            raise LabError(f"{self.url}: not an address", "Example: http://localhost:7070") from None
        except httpx.HTTPError as error:
            raise LabError(f"{self.url} cannot be asked: {error}", "Does it run, and is the address right?") from None
        except ValueError:
            raise LabError(f"{self.url}{path} answers {answer.status_code}, and no JSON") from None
        if answer.status_code != httpx.codes.OK or not isinstance(found, dict):
            said = found.get("message", answer.reason_phrase) if isinstance(found, dict) else "no object"
            raise LabError(f"{self.url} refuses {path}: {said}")
        return found


def labels(found: Any) -> dict[str, str]:
    return {each["name"]: each["value"] for each in found}


def selector(kind: str, **of: str) -> str:
    return f"{kind}{{{','.join(f'{name}={json.dumps(value)}' for name, value in of.items())}}}"


class Parca(Server):
    """The gateway of parca.query.v1alpha1.QueryService."""

    def _hosts(self, matchers: str, end: float) -> Mapping[str, Sequence[tuple[Any, float]]]:
        kind = self._kind()
        between = {"start": stamp(end - WINDOW_S), "end": stamp(end)}
        series = self._asked("/api/profiles/query_range", query=f"{kind}{{{matchers}}}", **between).get("series", [])
        hosts: dict[str, list[tuple[Any, float]]] = defaultdict(list)
        for each in series:
            of = labels(each["labelset"]["labels"])
            last = max(sample["timestamp"] for sample in each["samples"])
            one = {"single.query": selector(kind, **of), "single.time": last, "report_type": "REPORT_TYPE_PPROF"}
            found = self._asked("/api/profiles/query", mode="MODE_SINGLE_UNSPECIFIED", **one)
            hosts[of.get(self.host_label, str(of))].append((parsed(base64.b64decode(found.get("pprof", ""))), 1.0))
        return hosts

    def _kind(self) -> str:
        for each in self._asked("/api/profiles/types").get("types", []):
            if each["sampleType"] == KIND:
                parts = ("name", "sampleType", "sampleUnit", "periodType", "periodUnit")
                return ":".join(each[part] for part in parts)
        raise LabError(f"{self.url} has no heap profiles", "Does Parca scrape hakmem-exporter?")


def stamp(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def parsed(content: bytes) -> Any:
    found = formats.messages()["Profile"]()
    try:
        found.ParseFromString(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
    except Exception:  # of gzip or of the parser
        raise LabError("an answer of Parca is not in pprof's format") from None
    return found


class Pyroscope(Server):
    """Its documented querier.v1.QuerierService, in JSON."""

    PROFILE = f"memory:{KIND}:bytes:space:bytes"

    def _hosts(self, matchers: str, end: float) -> Mapping[str, Sequence[tuple[Any, float]]]:
        from google.protobuf import json_format

        asked = {"start": int(1000 * (end - WINDOW_S)), "end": int(1000 * end), "profileTypeID": self.PROFILE}
        mean = {"step": WINDOW_S, "groupBy": [self.host_label], "aggregation": "TIME_SERIES_AGGREGATION_TYPE_AVERAGE"}
        series = self._querier("SelectSeries", asked | mean | {"labelSelector": f"{{{matchers}}}"}).get("series", [])
        hosts: dict[str, list[tuple[Any, float]]] = {}
        for each in series:
            name = labels(each["labels"]).get(self.host_label, "")
            own = ",".join(filter(None, (matchers, f"{self.host_label}={json.dumps(name)}")))
            merged = self._querier("SelectMergeProfile", asked | {"labelSelector": f"{{{own}}}"})
            found = json_format.ParseDict(merged, formats.messages()["Profile"](), ignore_unknown_fields=True)
            # A merged profile is the sum of all scrapes; the series tells their mean.
            total = sum(sample.value[0] for sample in found.sample)
            values = [float(point.get("value", 0)) for point in each["points"]]
            if total and values:
                hosts[name] = [(found, sum(values) / len(values) / total)]
        return hosts

    def _querier(self, method: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._asked(f"/querier.v1.QuerierService/{method}", body)
