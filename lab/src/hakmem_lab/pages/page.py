"""One HTML page without a network: verdict first, charts by plotly, tables that a click on a head sorts."""

from __future__ import annotations

import base64
import functools
import gzip
import html
import importlib.resources
import os
import urllib.parse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from hakmem_lab.errors import LabError
from hakmem_lab.results import Head

COLOURS = ("#2563eb", "#ea580c", "#16a34a", "#9333ea", "#db2777", "#0891b2", "#ca8a04", "#475569", "#dc2626")


@dataclass(frozen=True)
class Link:
    """A cell that leads elsewhere: to a page or a file beside this one."""

    text: str
    target: str


Cell = str | int | float | Link | None


@dataclass(frozen=True)
class Verdict:
    """What a reader is to know of a result before anything else."""

    of: str
    word: str
    figure: str
    sentences: Sequence[str]


@dataclass
class Page:
    """What is gathered while a page is composed; `write` makes the file."""

    title: str
    subtitle: str = ""
    parts: list[str] = field(default_factory=list)

    def heading(self, text: str, anchor: str = "") -> None:
        attribute = f' id="{html.escape(anchor)}"' if anchor else ""
        self.parts.append(f"<h2{attribute}>{html.escape(text)}</h2>")

    def open(self, style: str) -> None:
        """Begins a group of parts; `close` ends it."""
        self.parts.append(f'<div class="{style}">')

    def close(self) -> None:
        self.parts.append("</div>")

    def text(self, text: str, style: str = "") -> None:
        attribute = f' class="{style}"' if style else ""
        self.parts.append(f"<p{attribute}>{html.escape(text)}</p>")

    def command(self, text: str) -> None:
        self.parts.append(f'<code class="command">{html.escape(text)}</code>')

    def verdict(self, found: Verdict, anchor: str = "", raw: str | None = None) -> None:
        """The box that a reader sees first; with an anchor, of what, and the way there.

        raw: the address of the runs that it follows from, relative to the page."""
        said = "".join(f"<p>{html.escape(each)}</p>" for each in found.sentences)
        if raw is not None:
            said += f'<p class="raw"><a href="{html.escape(raw)}">Every run, as a file</a></p>'
        of = f'<p class="of"><a href="#{html.escape(anchor)}">{html.escape(found.of)}</a></p>' if anchor else ""
        self.parts.append(
            f'<div class="verdict {found.word}">{of}<span class="word">{html.escape(found.word)}</span>'
            f'<span class="figure">{html.escape(found.figure)}</span>{said}</div>'
        )

    def chart(self, figure: go.Figure, caption: str = "") -> None:
        """A plotly figure, and a sentence on how to read it."""
        figure.update_layout(
            template="plotly_white",
            colorway=COLOURS,
            margin={"l": 70, "r": 30, "t": 40, "b": 60},
            font={"family": "system-ui, sans-serif", "size": 13},
        )
        data = figure.to_json().replace("</", "<\\/")
        self.parts.append(
            f'<div class="chart"><div class="plot"></div><script type="application/json">{data}</script></div>'
        )
        if caption:
            self.text(caption, "soft")

    def table(self, heads: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
        """A table that can be sorted; numbers are aligned and sorted as such, None is an empty cell."""
        cells = [list(row) for row in rows]
        words = [any(isinstance(row[place], str | Link) for row in cells) for place in range(len(heads))]
        style = ['class="text"' if each else "" for each in words]
        head = "".join(
            f'<th {style[place]}><button type="button">{html.escape(name)}</button></th>'
            for place, name in enumerate(heads)
        )
        body = "".join(
            "<tr>" + "".join(_cell(value, style[place]) for place, value in enumerate(row)) + "</tr>" for row in cells
        )
        self.parts.append(
            f'<div class="table"><table class="sortable"><thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>"
        )

    def render(self) -> str:
        """The page, with its chart library when it has charts."""
        charts = f"<script>{chart_library()}</script>" if any('class="chart"' in part for part in self.parts) else ""
        subtitle = f'<p class="soft">{html.escape(self.subtitle)}</p>' if self.subtitle else ""
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
            f"<title>{html.escape(self.title)}</title>\n<style>\n{_asset('page.css')}</style></head>\n<body><main>"
            f"<h1>{html.escape(self.title)}</h1>{subtitle}\n"
            + "\n".join(self.parts)
            + f"\n</main>\n{charts}\n<script>\n{_asset('page.js')}</script>\n</body></html>\n"
        )

    def write(self, path: Path) -> None:
        """Writes the page; a LabError when it cannot be written."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.render(), encoding="utf-8")
        except OSError as error:
            raise LabError(f"cannot write {path}: {error.strerror}", "Choose another place for the page.") from error


def _cell(value: Cell, style: str) -> str:
    if value is None:
        return f"<td {style}></td>"
    if isinstance(value, Link):
        target = html.escape(urllib.parse.quote(value.target))
        return f'<td {style}><a href="{target}">{html.escape(value.text)}</a></td>'
    if isinstance(value, str):
        return f"<td {style}>{html.escape(value)}</td>"
    shown = f"{value:,}" if isinstance(value, int) else f"{value:,.5g}" if abs(value) < 1e5 else f"{value:,.0f}"
    return f'<td {style} data-value="{value!r}">{shown}</td>'


def link_to(file: Path | None, page: Path) -> str | None:
    """The address of a file, relative to the page beside which it lies; None for no file."""
    if file is None:
        return None
    return urllib.parse.quote(os.path.relpath(file.resolve(), page.resolve().parent))


def _asset(name: str) -> str:
    return importlib.resources.files("hakmem_lab.pages").joinpath(name).read_text(encoding="utf-8")


@functools.cache
def chart_library() -> str:
    """plotly.js, compressed, as a script that page.js unpacks."""
    packed = gzip.compress(get_plotlyjs().encode(), 9, mtime=0)
    return f'window.hakmemCharts = "{base64.b64encode(packed).decode()}";'


def provenance(page: Page, head: Head) -> None:
    """How the figures were made: command, configurations, machine; the end of every page."""
    page.heading("How this was measured")
    page.command(head.plan.typed)
    page.table(
        ["configuration", "text", "allocator", "what it is"],
        [[each.label, each.text or "(as it is)", each.allocator, each.description] for each in head.series],
    )
    machine = head.machine
    facts: list[list[Cell]] = [[name, value] for name, value in machine.facts.items()]
    facts += [
        ["memory", f"{machine.memory_bytes / 2**30:.1f} GiB, pages of {machine.page_bytes // 1024} KiB"],
        ["commit", head.commit or "unknown"],
        ["begun", head.created.isoformat()],
        ["seed", str(head.plan.seed)],
        ["versions", ", ".join(f"{name} {version}" for name, version in machine.versions.items())],
    ]
    page.table(["machine", ""], facts)
