#!/usr/bin/env python3
"""The pictures of docs/fleet.md: each screen of `hakmem fleet` at two widths, from a simulated fleet that is always the same.

  pictures.py [FOLDER]     by default docs/fleet; needs Chromium for the two pages"""

from __future__ import annotations

import html
import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.sax.saxutils import escape

import simulated
import truth
from hakmem_lab.commands import fleet as commands
from hakmem_lab.fleet import metrics, verdict
from hakmem_lab.fleet import plan as plans
from hakmem_lab.fleet.prometheus import DAY_S
from hakmem_lab.pages import flame
from hakmem_lab.pages import fleet as pages
from hakmem_lab.profile import formats
from hakmem_lab.profile.formats import Estimates, Report, Stack
from hakmem_lab.profile.heap_dumps import Estimate, Labels, Profile
from hakmem_lab.profile.symbols import Frame
from hakmem_lab.terminal import console
from rich.console import Console
from rich.segment import Segment

ROOT = Path(__file__).resolve().parents[2]
WIDTHS = (400, 1400)
START = 1_767_571_200  # 5 January 2026
KIND = simulated.Kind(hosts=200, days=28, step_s=6 * 3600)
SERVER = "http://prometheus:9090"

# By their light colours in page.css; a picture follows its reader's scheme as the page does.
COLOURS = {"ink": ("#1c2330", "#e6e9ef"), "soft": ("#5b6575", "#9aa5b5"), "line": ("#dfe3ea", "#323a48"), "paper": ("#ffffff", "#1a202b"),
           "ground": ("#f5f6f9", "#11151d"), "go": ("#15803d", "#4ade80"), "link": ("#1d4ed8", "#93b4ff")}
EDGE, CHARACTER, LINE = 12, 0.6, 1.3  # of a terminal, in pixels and sizes of its font
FONTS = {400: 12.0, 1400: 16.0}


def fleet() -> tuple[plans.Plan, verdict.FleetVerdict]:
    """A fleet that gains 5 % of its memory, and its verdict after all days."""
    made = simulated.make(1, START, KIND)
    plan = truth.planned(made, 7, metrics.METRICS)
    truth.switched_on(made, plan, {"resident memory": truth.log_of(5.0)})
    return plan, verdict.decide(plan, simulated.InMemory(made, plan.step, plan.select), START + 28 * DAY_S)


# --- pages ------------------------------------------------------------------------------------------------------------

STACKS = {
    "serve handle_request parse_json": (410, 400),
    "serve handle_request render_page": (230, 180),
    "serve handle_request session_store load_session": (620, 660),
    "serve cache_fill decode_image": (900, 640),
    "serve cache_fill insert rehash_table": (340, 345),
    "serve log_line append_buffer": (90, 20),
    "refresh fetch_prices build_index insert rehash_table": (480, 470),
    "refresh fetch_prices build_index intern_names": (260, 330),
}


def profiles() -> Report:
    """The mean heaps of two groups, in MiB."""

    def of(side: int) -> Report:
        samples: dict[tuple[Stack, Labels], Estimates] = {}
        for stack, sizes in STACKS.items():
            frames = tuple(Frame(name) for name in reversed(f"main {stack}".split()))
            samples[frames, ()] = {"live": Estimate(1000, sizes[side] * 2.0**20)}
        return Report(samples, ("live",), 512 << 10, Profile(512 << 10, [], []))

    return formats.difference(of(0), of(1))


def page(found: verdict.FleetVerdict) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fleet.html"
        pages.write(found, path, single=True)
        return path.read_text(encoding="utf-8")


def difference() -> str:
    return flame.page(profiles(), "growth", "hakmem against control, per host")


def words(text: str) -> set[str]:
    """The words that a page shows: without its controls and what only a screen reader says."""
    return of_text(re.sub(r"<(title|select)\b.*?</\1>|<p class=\"alternative\".*?</p>", " ", text, flags=re.DOTALL))


def of_text(text: str) -> set[str]:
    """The words between the marks of HTML or SVG."""
    text = re.sub(r"<(script|style)\b.*?</\1>", " ", text, flags=re.DOTALL)
    return set(html.unescape(re.sub(r"<[^>]*>", " ", text)).split())


def pictured(text: str, width: int) -> str:
    """The page as a browser of this width shows it."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        sys.exit("no chromium: './dev setup' installs it")
    script = (Path(__file__).with_suffix(".js")).read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        # A frame is as narrow as wanted; a window is not.
        inner = text.replace("<head>", f"<head><script>{script}</script>", 1)
        (Path(folder) / "inner.html").write_text(inner, encoding="utf-8")
        outer = (f'<body style="margin:0"><iframe src="inner.html" style="border:0;width:{width}px;height:2000px"></iframe><pre id="out"></pre>'
                 '<script>const look = () => { const said = document.querySelector("iframe").contentDocument?.getElementById("picture");'
                 'if (said) document.getElementById("out").textContent = said.textContent; else setTimeout(look, 50); }; look();</script>')
        (Path(folder) / "outer.html").write_text(outer, encoding="utf-8")
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--allow-file-access-from-files",
                   f"--user-data-dir={folder}/profile", "--window-size=1500,2100", "--virtual-time-budget=20000", "--dump-dom",
                   (Path(folder) / "outer.html").as_uri()]
        dumped = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
    said = re.search(r'<pre id="out">(.*?)</pre>', dumped, re.DOTALL)
    if not said or not said[1]:
        sys.exit("the page was not drawn")
    found = json.loads(html.unescape(said[1]))
    return document(found["width"], round(found["height"]), "\n".join(map(recoloured, found["parts"])), "ground")


def recoloured(text: str) -> str:
    """Names of colours in place of those of the light scheme."""
    def name(match: re.Match[str]) -> str:
        colour = "#" + "".join(f"{int(each):02x}" for each in match.groups())
        return next((f"var(--{name})" for name, (light, _) in COLOURS.items() if light == colour), colour)

    return re.sub(r"rgb\((\d+), (\d+), (\d+)\)", name, text)


# --- terminals --------------------------------------------------------------------------------------------------------


def terminal(command: str, shows: Callable[[], None], width: int) -> str:
    """What the command prints, on a terminal of this width."""
    size = FONTS[width]
    columns = int((width - 2 * EDGE) / (CHARACTER * size))
    screen, before = Console(file=io.StringIO(), force_terminal=True, width=columns, highlight=False, emoji=False, record=True), console.out
    console.out = screen
    try:
        screen.print(f"$ {command}", style="bold", markup=False)
        shows()
    finally:
        console.out = before
    rows = [part for row in Segment.split_lines(Segment.filter_control(screen._record_buffer)) for part in wrapped(row, columns)]
    while rows and not "".join(each.text for each in rows[-1]).strip():
        rows.pop()
    parts = [part for place, row in enumerate(rows) for part in row_of(row, size, EDGE + LINE * size * (place + 0.8))]
    content = "\n".join([f'<g class="m" font-size="{size:g}">', *parts, "</g>"])
    return document(width, round(2 * EDGE + LINE * size * len(rows)), content, "paper")


def wrapped(row: list[Segment], columns: int) -> Iterator[list[Segment]]:
    """The rows that a line takes up."""
    ends = range(columns, max(sum(each.cell_length for each in row), 1) + columns, columns)
    return iter(list(Segment.divide(row, ends)))


def row_of(row: list[Segment], size: float, y: float) -> Iterator[str]:
    """A line; each piece stands in its own columns, whatever the reader's font."""
    column = 0
    for text, style, _ in row:
        for piece in re.finditer(r"\S+(?: \S+)*", text):
            x, long = EDGE + CHARACTER * size * (column + piece.start()), CHARACTER * size * len(piece[0])
            bold = ' font-weight="700"' if style and style.bold else ""
            yield (f'<text x="{x:.1f}" y="{y:.1f}" textLength="{long:.1f}" lengthAdjust="spacingAndGlyphs"{bold}>'
                   f"{escape(piece[0])}</text>")
        column += len(text)


def document(width: int, height: int, content: str, ground: str) -> str:
    def scheme(side: int) -> str:
        return ";".join(f"--{name}:{both[side]}" for name, both in COLOURS.items() if f"--{name}" in content or name in (ground, "ink"))

    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">\n'
            f"<style>:root{{{scheme(0)}}}@media (prefers-color-scheme:dark){{:root{{{scheme(1)}}}}}"
            f"text{{fill:var(--ink);font-family:system-ui,sans-serif}}.m,.m text{{font-family:ui-monospace,monospace}}</style>\n"
            f'<rect width="{width}" height="{height}" rx="6" style="fill:var(--{ground})"/>\n{content}\n</svg>\n')


# --- all of them ------------------------------------------------------------------------------------------------------


def terminals() -> dict[str, str]:
    """The pictures that need no browser, by their names."""
    plan, found = fleet()
    asked = {"plan": (f"hakmem fleet plan --prometheus {SERVER} --select '{plan.select}' -o plan.json",
                      lambda: commands._show_plan(plan, Path("plan.json"))),
             "verdict": (f"hakmem fleet verdict --prometheus {SERVER} --plan plan.json", lambda: commands._show(found))}
    return {f"{name}-{width}.svg": terminal(*each, width) for name, each in asked.items() for width in WIDTHS}


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "fleet"
    folder.mkdir(parents=True, exist_ok=True)
    found = terminals()
    for name, text in (("page", page(fleet()[1])), ("diff", difference())):
        found |= {f"{name}-{width}.svg": pictured(text, width) for width in WIDTHS}
    for name, content in found.items():
        (folder / name).write_text(content, encoding="utf-8")
        print(f"{len(content.encode()):7,} bytes  {name}")


if __name__ == "__main__":
    main()
