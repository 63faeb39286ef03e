"""The page of a tuning: the decision as in an A/B experiment, and the search that led to it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import plotly.graph_objects as go

from hakmem_lab.decide.sweep import number
from hakmem_lab.decide.verdict import Comparison
from hakmem_lab.measure.results import Experiment, Trial
from hakmem_lab.pages import ab
from hakmem_lab.pages.page import Cell, Page, Verdict, link_to
from hakmem_lab.terminal.amounts import counted

STANDS = "The default stands."


def search_chart(trials: Sequence[Trial]) -> go.Figure:
    """The gain of every setting in the order of the trials, and the best so far."""
    figure = go.Figure()
    for state, name, symbol in (
        ("complete", "fully measured", "circle"),
        ("pruned", "given up early", "circle-open"),
    ):
        chosen = [each for each in trials if each.state == state and each.gain is not None]
        if chosen:
            figure.add_scatter(
                x=[each.number for each in chosen],
                y=[each.gain for each in chosen],
                text=[each.text for each in chosen],
                mode="markers",
                name=name,
                marker={"symbol": symbol, "size": 9},
            )
    best, line = 0.0, []
    for each in trials:
        if each.state == "complete" and each.gain is not None:
            best = max(best, each.gain)
        line.append(best)
    figure.add_scatter(
        x=[each.number for each in trials], y=line, mode="lines", name="best so far", line={"shape": "hv"}
    )
    figure.add_hline(y=0, line={"color": "#5b6575"})
    figure.update_layout(title="The search", xaxis_title="trial", yaxis_title="gain over the default, %", height=400)
    return figure


def options_chart(trials: Sequence[Trial]) -> go.Figure:
    """The gain at each value of each option, whatever the others were: it shows which options matter."""
    names = list(dict.fromkeys(name for each in trials for name in each.values))
    figure = go.Figure()
    for place, name in enumerate(names):
        chosen = [each for each in trials if name in each.values and each.gain is not None]
        order = sorted({each.values[name] for each in chosen}, key=lambda text: (number(text) is None, number(text)))
        figure.add_scatter(
            x=[each.values[name] for each in chosen],
            y=[each.gain for each in chosen],
            text=[each.text for each in chosen],
            mode="markers",
            name=name,
            visible=place == 0,
            marker={"size": 8, "opacity": 0.7},
            meta=order,
        )
    shown = [
        {
            "label": name,
            "method": "update",
            "args": [
                {"visible": [other == name for other in names]},
                {"xaxis.title.text": name, "xaxis.categoryarray": figure.data[place].meta},
            ],
        }
        for place, name in enumerate(names)
    ]
    figure.update_xaxes(
        type="category", title=names[0], categoryorder="array", categoryarray=list(figure.data[0].meta or ())
    )
    figure.update_layout(
        title="By option",
        yaxis_title="gain over the default, %",
        height=420,
        showlegend=False,
        updatemenus=[{"buttons": shown, "x": 1.0, "xanchor": "right", "y": 1.2}],
    )
    return figure


def verdict(experiment: Experiment, found: Comparison) -> Verdict:
    """The verdict at the top: the best setting, and whether it is worth having."""
    first = ab.verdict(experiment, found)
    outcome = f"Best of {counted(len(experiment.trials), 'setting')}: {experiment.head.find('B').text}."
    sentences = [outcome, *first.sentences] if found.verdict == "GO" else [f"{STANDS} {outcome}", *first.sentences]
    return Verdict(first.of, first.word, first.figure, sentences)


def body(page: Page, experiment: Experiment, found: Comparison) -> None:
    """Everything below the verdict."""
    if experiment.trials:
        page.chart(
            search_chart(experiment.trials),
            "A trial has a few rounds, each with the default. The best of many trials looks better than it is, so only "
            "the decision counts.",
        )
        page.chart(options_chart(experiment.trials), "The menu chooses the option; the others varied as well.")
        rows: list[list[Cell]] = [
            [each.number, each.text, each.gain, len(each.gains), each.state] for each in experiment.trials
        ]
        page.heading("Every setting tried")
        page.table(["trial", "setting", "gain %", "rounds", "state"], rows)
        page.heading("The decision")
    ab.body(page, experiment, found)


def compose(experiment: Experiment, found: Comparison, raw: str | None = None) -> Page:
    """The whole page."""
    head = experiment.head
    page = Page(f"Tuning: {shlex.join(head.plan.command)}", f"metric: {head.metric.title}")
    page.verdict(verdict(experiment, found), raw=raw)
    body(page, experiment, found)
    return page


def write(experiment: Experiment, found: Comparison, path: Path, results: Path | None = None) -> None:
    """Writes the page.  results: the file of the runs, to which it links."""
    compose(experiment, found, link_to(results, path)).write(path)
