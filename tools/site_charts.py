"""The charts of the site's pages: what is a picture in the tree can be pointed at, zoomed and thinned out on the site.

The figures are those of the tables on the same page and of the files of medians that it names."""
import csv
import re

from package_common import ROOT, Failed

UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
OURS, REFERENCE, OTHERS_SHADE = "hakmem", "system", "#8a8f98"
# Ours stands out; the others are told apart on paper and on slate.
PALETTE = ["#4f7cd8", "#d99a00", "#2f9e63", "#9a6be0", "#00a3b4", "#a9714b", "#7d8794", "#8aa300", "#c2649a", "#5b8fa8"]
OURS_COLOUR = "#d6336c"
SCRIPT = "plotly.min.js"
LINES, TAIL = "Messages by threads", "Single calls"
CALLS = {"p50": 2, "p99": 100, "p99_9": 1000, "p99_99": 10000, "p99_999": 100000}  # one call in so many takes longer


def tables(text):
    """{heading: rows of the first table below it}, each row a {column: cell}; cells have no padding."""
    found, heading, columns = {}, "", None
    for line in text.splitlines():
        if line.startswith("#"):
            heading, columns = line.lstrip("# "), None
        elif line.startswith("| "):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if columns is None:
                columns = cells
            elif not set("".join(cells)) <= set("-: ") and len(cells) == len(columns):
                found.setdefault(heading, []).append(dict(zip(columns, cells)))
    return found


def medians():
    """{heading: rows}, as from tables, of the comma-separated files beside docs/benchmarks.md and docs/scaling.md."""
    found = {}
    for heading, name in (("Time", "benchmarks/time.csv"), ("Peak memory", "benchmarks/peak-memory.csv"), (LINES, "scaling/lines.csv"),
                          (TAIL, "benchmarks/tail.csv")):
        with (ROOT / "docs" / name).open(encoding="utf-8", newline="") as file:
            found[heading] = list(csv.DictReader(file))
    return found


def amount(cell):
    """A cell's figure, in seconds where it has a unit; None where there is none."""
    match = re.fullmatch(r"([0-9.,]+(?:e[+-]?\d+)?)(?: ([a-z]+))?", cell)
    if match is None:
        return None
    return float(match.group(1).replace(",", "")) * (UNITS[match.group(2)] if match.group(2) else 1)


def colours(names):
    others = [name for name in names if name != OURS]
    return {OURS: OURS_COLOUR, **{name: PALETTE[i % len(PALETTE)] for i, name in enumerate(others)}}


def layout(figure, height):
    figure.update_layout(height=height, margin={"l": 8, "r": 8, "t": 24, "b": 8}, template="plotly_white", paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)",
                         legend={"orientation": "h", "y": -0.08, "yanchor": "top"}, font={"size": 12})
    return figure


def means(found):
    """Time against peak memory, a point for each allocator."""
    rows = found["Geometric means"]
    import plotly.graph_objects as graph

    figure = graph.Figure()
    colour = colours([row["allocator"] for row in rows])
    for row in rows:
        name = row["allocator"]
        figure.add_scatter(x=[amount(row["time"])], y=[amount(row["peak memory"])], name=name, mode="markers+text", text=[name],
                           textposition="top center", cliponaxis=False, marker={"size": 11, "color": colour[name]},
                           hovertemplate=f"{name}<br>time %{{x}}<br>peak memory %{{y}}<extra></extra>")
    figure.update_layout(showlegend=False)   # names stand at the points
    figure.update_xaxes(title="time")
    figure.update_yaxes(title="peak memory")
    return layout(figure, 480)


def times(found):
    """A line for each benchmark, a point on it for each allocator, as a part of the system's."""
    import plotly.graph_objects as graph

    rows = [row for row in found["Time"] if amount(row.get(REFERENCE, "")) and amount(row.get(OURS, ""))]
    names = [name for name in rows[0] if name not in ("benchmark", "floor", REFERENCE) and not name.startswith(("ratio", "95", "best", "leanest"))]
    colour = colours(names)
    figure = graph.Figure()
    for name in sorted(names, key=lambda each: each == OURS):   # ours is drawn last, above the others
        points = [(row["benchmark"], amount(row[name]), amount(row[REFERENCE]), row[name]) for row in rows if amount(row[name])]
        figure.add_scatter(x=[value / reference for _, value, reference, _ in points], y=[benchmark for benchmark, *_ in points], name=name,
                           customdata=[shown for *_, shown in points], mode="markers",
                           marker={"size": 10 if name == OURS else 7, "color": colour[name]},
                           hovertemplate=f"{name}, %{{y}}<br>%{{customdata}}, %{{x:.3f}} of the system's<extra></extra>")
    figure.add_vline(x=1, line_width=1, line_color=OTHERS_SHADE)
    figure.update_xaxes(type="log", title=None)
    figure.update_yaxes(autorange="reversed", title=None)
    return layout(figure, 200 + 19 * len(rows))


def panels(groups, points_of, unit):
    """A panel for each group of rows {title: rows}, a curve in it for each allocator; points_of gives a row's pairs."""
    from plotly.subplots import make_subplots

    names = [row["allocator"] for row in next(iter(groups.values()))]
    colour = colours(names)
    figure = make_subplots(rows=len(groups), cols=1, subplot_titles=list(groups), vertical_spacing=0.16 / len(groups))
    for place, rows in enumerate(groups.values(), 1):
        for row in rows:
            points = [(x, value) for x, value in points_of(row) if value is not None]
            name = row["allocator"]
            figure.add_scatter(x=[x for x, _ in points], y=[value for _, value in points], name=name, legendgroup=name,
                               showlegend=place == 1, mode="lines+markers", row=place, col=1,
                               line={"color": colour[name], "width": 3 if name == OURS else 1.5},
                               hovertemplate=f"{name}<br>{unit}<extra></extra>")
    return layout(figure, 120 + 250 * len(groups))


def lines(found):
    """Messages per operation over threads, by pattern."""
    patterns = {}
    for row in found[LINES]:
        patterns.setdefault(row["pattern"], []).append(row)
    figure = panels(patterns, lambda row: [(int(column.split()[0]), amount(cell)) for column, cell in row.items() if column.endswith(" threads")],
                    "%{x} threads: %{y}")
    figure.update_xaxes(type="log", dtick=0.30103)
    figure.update_yaxes(rangemode="tozero")
    return figure


def tail(found):
    """Quantiles of single calls, by call and pattern."""
    calls = {}
    for row in found[TAIL]:
        calls.setdefault(f"{row['call']}: {row['pattern']}", []).append(row)
    figure = panels(calls, lambda row: [(count, amount(row[name])) for name, count in CALLS.items()], "one call in %{x}: %{y} ns")
    figure.update_xaxes(type="log", dtick=1)
    figure.update_yaxes(type="log", dtick=1)
    return figure


# {picture: (what stands in its place, its title)}, from the page's tables.
CHARTS = {
    "benchmarks/time-memory.svg": (means, f"Time against peak memory, geometric means, {REFERENCE} = 1"),
    "benchmarks/ratios.svg": (times, f"Time of each benchmark, {REFERENCE} = 1"),
    "benchmarks/tail.svg": (tail, "One call in so many takes longer than so many ns"),
    "scaling/lines.svg": (lines, "Messages per operation by threads"),
}
HINT = "Point at a mark for its figures and drag to zoom; below, a click on a name hides it and a double click leaves it alone."


def interactive(text, script):
    """A page's text with charts in place of its pictures; a browser without scripts shows the pictures."""
    found = {**medians(), **tables(text)}
    for picture, (draw, title) in CHARTS.items():
        match = re.search(rf"^!\[([^\]]*)\]\((?:\.\./)*{re.escape(picture)}\)$", text, re.MULTILINE)
        if match is None:
            continue
        try:
            chart = draw(found)
        except (KeyError, IndexError, StopIteration) as missing:
            raise Failed(f"the tables beside {picture} are not those that its chart is drawn from: {missing!r}") from missing
        name = picture.rpartition("/")[2].removesuffix(".svg")
        html = chart.to_html(full_html=False, include_plotlyjs=False, div_id=f"chart-{name}", default_width="100%",
                             config={"responsive": True, "displayModeBar": False})
        once = f'<script src="{script}"></script>\n' if script not in text else ""
        fallback = f'<noscript><img src="{match.group()[match.end(1) - match.start() + 2:-1]}" alt="{match.group(1)}"></noscript>'
        text = text.replace(match.group(), f"**{title}.** {HINT if chart.layout.showlegend is not False else ''}\n\n{once}{html}\n{fallback}")
    return text


def write_script(folder):
    from plotly.offline import get_plotlyjs

    (folder / SCRIPT).write_text(get_plotlyjs(), encoding="utf-8")
