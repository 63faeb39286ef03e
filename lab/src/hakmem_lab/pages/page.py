"""HTML pages that need no network: verdict first, charts by plotly, tables sorted by a click on a column's head.

The chart library is two megabytes, so the pages of a folder share one file of it."""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import html
import importlib.resources
import os
import re
import statistics
import urllib.parse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from hakmem_lab.measure.results import Head
from hakmem_lab.terminal.amounts import number
from hakmem_lab.terminal.errors import LabError
from hakmem_lab.terminal.files import write_whole

COLOURS = ("#2563eb", "#ea580c", "#16a34a", "#9333ea", "#db2777", "#0891b2", "#ca8a04", "#475569", "#dc2626")
MOST_SERIES = 12  # of a chart that its description mentions


@dataclass(frozen=True)
class Link:
    """A cell that links to a page or a file beside this one."""

    text: str
    target: str


class Word(str):
    """A cell with a verdict, in its colour."""


FIGURE = re.compile(r"[-+]?[\d.,∞]+ %(?: \.\. [-+]?[\d.,∞]+ %)?|\d{4}-\d\d-\d\d(?: \d\d:\d\d)?")
Cell = str | int | float | Link | None


@dataclass(frozen=True)
class Verdict:
    """The box with a result's verdict at the top of a page."""

    of: str
    word: str
    figure: str
    sentences: Sequence[str]


@dataclass
class Page:
    """A page that is being composed; `write` makes the file."""

    title: str
    subtitle: str = ""
    parts: list[str] = field(default_factory=list)

    def heading(self, text: str, anchor: str = "") -> None:
        attribute = f' id="{html.escape(anchor)}"' if anchor else ""
        self.parts.append(f"<h2{attribute}>{_heading(text)}</h2>")

    def open(self, style: str) -> None:
        """Begins a group of parts; `close` ends it."""
        self.parts.append(f'<div class="{style}">')

    def close(self) -> None:
        self.parts.append("</div>")

    def text(self, text: str, style: str = "") -> None:
        attribute = f' class="{style}"' if style else ""
        self.parts.append(f"<p{attribute}>{_whole(text)}</p>")

    def command(self, text: str) -> None:
        self.parts.append(f'<code class="command">{html.escape(text)}</code>')

    def verdict(self, found: Verdict, anchor: str = "", raw: str | None = None) -> None:
        """The verdict box; with an anchor, also the name of the result and a link to it.

        raw: the address of the runs behind it, relative to the page."""
        said = "".join(f"<p>{_whole(each)}</p>" for each in found.sentences)
        if raw is not None:
            said += f'<p class="raw"><a href="{html.escape(raw)}">Every run, as a file</a></p>'
        of = f'<p class="of"><a href="#{html.escape(anchor)}">{html.escape(found.of)}</a></p>' if anchor else ""
        self.parts.append(
            f'<div class="verdict {found.word}">{of}<span class="word">{html.escape(found.word)}</span>'
            f'<span class="figure">{_whole(found.figure)}</span>{said}</div>'
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
        said = html.escape(alternative(figure, caption))
        number = sum('class="chart"' in part for part in self.parts) + 1
        self.parts.append(
            f'<div class="chart"><div class="plot" role="img" aria-labelledby="chart-{number}"></div>'
            f'<p class="alternative" id="chart-{number}">{said}</p>'
            f'<script type="application/json">{data}</script></div>'
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

    def render(self, single: bool = True) -> str:
        """The page's HTML; a single file includes the chart library, which otherwise lies beside it."""
        charts = any('class="chart"' in part for part in self.parts)
        script = ""
        if charts:
            script = f"<script>{chart_library()}</script>" if single else f'<script src="{chart_file()}"></script>'
        subtitle = f'<p class="soft">{html.escape(self.subtitle)}</p>' if self.subtitle else ""
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
            f"<title>{html.escape(self.title)}</title>\n<style>\n{_asset('page.css')}</style></head>\n"
            f'<body data-chart-file="{chart_file() if charts else ""}"><main>'
            f"<h1>{_heading(self.title)}</h1>{subtitle}\n"
            + "\n".join(self.parts)
            + f"\n</main>\n{script}\n<script>\n{_asset('page.js')}</script>\n</body></html>\n"
        )

    def write(self, path: Path, single: bool = False) -> None:
        """Writes the page, and beside it the chart library, once for all pages of the folder.

        single: the library is in the page instead.  A LabError if it cannot be written."""
        content = self.render(single)
        library = path.parent / chart_file()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if library.name in content and not single and not library.exists():
                write_whole(library, chart_library().encode("ascii"))  # another lab may be writing it, too
            write_whole(path, content.encode(errors="replace"))
        except OSError as error:
            raise LabError(f"cannot write {path}: {error.strerror}", "Choose another place with --page.") from error


def _heading(text: str) -> str:
    """Text in which paths may break after a slash, and nowhere else."""
    return html.escape(text).replace("/", "/<wbr>")


def alternative(figure: go.Figure, caption: str) -> str:
    """A chart in words: its title, its axes, and the number and the range of each series' values."""
    layout = figure.layout
    said = [f"Chart: {layout.title.text or 'without a title'}."]
    axes = [
        f"{name}: {axis.title.text}"
        for name, axis in (("across", layout.xaxis), ("up", layout.yaxis))
        if axis.title.text
    ]
    if axes:
        said.append(f"{'; '.join(axes)}.")
    said += [sentence for trace in figure.data if (sentence := _series_in_words(trace))]
    return " ".join([*said[: MOST_SERIES + 2], caption]).strip()


def _series_in_words(trace: Any) -> str:
    """One series: its name, and the range of its numbers."""
    values: list[float] = []
    for name in ("y", "x", "z"):
        found = [each for each in _flat(getattr(trace, name, None)) if isinstance(each, int | float)]
        if found:
            values = [float(each) for each in found]
            break
    if not values:
        return ""
    name = trace.name or "Values"
    if len(values) == 1:
        return f"{name}: {values[0]:.5g}."
    middle = statistics.median(values)
    return f"{name}: {len(values)} values from {min(values):.5g} to {max(values):.5g}, the median {middle:.5g}."


def _flat(values: Any) -> list[Any]:
    """The numbers of a series, in any of plotly's containers."""
    listed = values.tolist() if hasattr(values, "tolist") else list(values) if values is not None else []
    return [each for row in listed for each in (row if isinstance(row, list | tuple) else [row]) if each is not None]


def _whole(text: str) -> str:
    """A text for a page in which percentages, intervals and dates do not break."""
    return FIGURE.sub(r'<span class="whole">\g<0></span>', html.escape(text))


def _cell(value: Cell, style: str) -> str:
    if value is None:
        return f"<td {style}></td>"
    if isinstance(value, Link):
        target = html.escape(urllib.parse.quote(value.target))
        return f'<td {style}><a href="{target}">{html.escape(value.text)}</a></td>'
    if isinstance(value, Word):
        return f'<td {style}><span class="verdict-word {html.escape(value)}">{html.escape(value)}</span></td>'
    if isinstance(value, str):
        return f"<td {style}>{_whole(value)}</td>"
    return f'<td {style} data-value="{value!r}">{number(value)}</td>'


def link_to(file: Path | None, page: Path) -> str | None:
    """The address of a file relative to the page; None for no file."""
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


@functools.cache
def chart_file() -> str:
    """The file name of the chart library, which includes its version."""
    return f"hakmem-charts-{hashlib.sha256(get_plotlyjs().encode()).hexdigest()[:12]}.js"


def provenance(page: Page, head: Head) -> None:
    """The end of every page: the command, the configurations and the machine behind the figures."""
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
