"""The page of a profile: a flame graph that needs no network, of each kind by bytes or by blocks, or by the lifetime of
freed blocks; it can be zoomed, searched and inverted. The difference of two profiles has two colours: red for more,
blue for less. Above it is the memory of the process over time."""

from __future__ import annotations

import html
import importlib.resources
import json
from typing import Any

from hakmem_lab.profile.formats import Numbers, Report
from hakmem_lab.profile.heap_dumps import ABOUT, Estimate, Profile
from hakmem_lab.terminal.amounts import counted, in_bytes


def tree(report: Report) -> dict[str, Any]:
    """The stacks as a tree from the outermost function."""
    names, nodes = Numbers(0), Numbers(0)
    parents: list[int] = []
    frames: list[int] = []
    ends: list[int] = []
    for stack in report.stacks:
        node = -1
        for frame in reversed(stack):
            key = (node, names(frame.says))
            node = nodes(key)
            if node == len(parents):
                parents.append(key[0])
                frames.append(key[1])
        ends.append(node)

    def column(kind: str, what: str) -> list[int]:
        return [round(getattr(values.get(kind, Estimate()), what)) for values in report.stacks.values()]

    values = {kind: {what: column(kind, what) for what in ("bytes", "objects")} for kind in report.kinds}
    return {
        "names": list(names.of),
        "parents": parents,
        "frames": frames,
        "ends": ends,
        "values": values,
        "growth": "growth" in report.kinds,
        "lifetimes": [[round(each) for each in report.lifetimes.get(stack, ())] for stack in report.stacks],
    }


WIDTH, HEIGHT = 1000, 90


def memory_chart(profile: Profile) -> str:
    """The resident memory over time, with the times of the dump and of the peak, if it was recorded."""
    if len(profile.memory) < 2:
        return ""
    first, last = profile.memory[0][0], max(profile.memory[-1][0], profile.time_ms)
    most = max(resident for _, resident in profile.memory)
    span = max(last - first, 1)

    def across(at_ms: int) -> float:
        return WIDTH * (at_ms - first) / span

    points = " ".join(f"{across(at):.1f},{HEIGHT * (1 - value / most):.1f}" for at, value in profile.memory)
    moments = [("peak", profile.peak_ms, "peak"), ("dump", profile.time_ms, "this profile")]
    known = [(kind, at, name) for kind, at, name in moments if first <= at <= last]
    lines = "".join(
        f'<line class="{kind}" x1="{across(at):.1f}" x2="{across(at):.1f}" y1="0" y2="{HEIGHT}"/>'
        for kind, at, _ in known
    )
    said = "; ".join(f'<span class="{kind}">{name}</span> at {(at - first) / 1000:.2f} s' for kind, at, name in known)
    return f"""<figure class="memory"><div class="up"><span>{in_bytes(most)}</span><span>0</span></div>
<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img"
aria-label="Resident memory over {span / 1000:.2f} seconds, at most {in_bytes(most)}">
<polygon points="0,{HEIGHT} {points} {across(profile.memory[-1][0]):.1f},{HEIGHT}"/>{lines}</svg>
<div class="across"><span>0 s</span><span>{span / 2000:.3g} s</span><span>{span / 1000:.3g} s</span></div>
<figcaption>Resident memory, at most {in_bytes(most)}, over {span / 1000:.2f} s: {said or "no peak or dump recorded"}
</figcaption></figure>"""


def asset(name: str) -> str:
    return importlib.resources.files("hakmem_lab.pages").joinpath(name).read_text(encoding="utf-8")


def page(report: Report, kind: str, title: str) -> str:
    """The whole page."""
    data = json.dumps(tree(report), separators=(",", ":")).replace("</", "<\\/")
    options = "".join(
        f'<option value="{each}"{" selected" if each == kind else ""}>{each}: {ABOUT[each]}</option>'
        for each in report.kinds
    )
    total = report.total(kind)
    error = f" ± {in_bytes(total.error)}" if total.error else ""  # profiles of other tools do not tell it
    lifetime = '<option value="lifetime">lifetime of freed blocks</option>' if report.lifetimes else ""
    missed = f" {counted(report.profile.missed, 'sample')} missing." if report.profile.missed else ""
    about = f" It began while the process ran: {report.profile.about}." if report.profile.about else ""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">
<title>Heap of {html.escape(title)}</title>
<style>{asset("page.css")}{asset("flame.css")}</style></head>
<body class="flame"><main>
<h1>Heap of {html.escape(title)}</h1>
<p class="soft">Estimated from a sample of one block in {report.interval} bytes: {in_bytes(total.bytes)}{error}
{ABOUT[kind]}.{missed}{html.escape(about)}
A frame's width is what it and the functions it called allocated; click to zoom, or use the
arrow keys, Enter and Escape.</p>
{memory_chart(report.profile)}
<div class="tools">
<label>Show <select id="kind">{options}</select></label>
<label>by <select id="what">
<option value="bytes">bytes</option><option value="objects">blocks</option>{lifetime}</select></label>
<label><input type="checkbox" id="invert"> innermost function first</label>
<label>Search <input type="search" id="search" placeholder="part of a name, or a pattern"></label>
<button id="reset" type="button">Whole graph</button>
</div>
<p id="said" aria-live="polite"></p>
<canvas id="flame" tabindex="0" role="application" aria-describedby="said"
aria-label="Flame graph: arrow keys move between frames, Enter zooms, Escape shows all"></canvas>
<script type="application/json" id="data">{data}</script>
<script>{asset("flame.js")}</script>
</main></body></html>
"""
