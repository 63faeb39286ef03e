"""The index of a folder of results: every result with its verdict, its page and its runs, the newest first."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from hakmem_lab.measure.results import Experiment
from hakmem_lab.pages import report
from hakmem_lab.pages.page import Cell, Link, Page, Word
from hakmem_lab.pages.report import Item
from hakmem_lab.terminal.amounts import counted


def _when(item: Item) -> datetime:
    """When the result was begun; if it does not say so, when its file was written."""
    content = item.source.content
    if isinstance(content, Experiment):
        return content.head.created
    return datetime.fromtimestamp(item.source.path.stat().st_mtime, timezone.utc)


def _beside(path: Path, folder: Path) -> str:
    return os.path.relpath(path.resolve(), folder.resolve())


def write(folder: Path, items: Sequence[Item], problems: Sequence[str], single: bool) -> Path:
    """Writes index.html into the folder, and missing or outdated pages of its results."""
    rows: list[list[Cell]] = []
    for each in sorted(items, key=_when, reverse=True):
        path = each.source.path
        target = path.with_suffix(".html")
        if not target.exists() or target.stat().st_mtime < path.stat().st_mtime:
            report.write([each], each.verdict.of, target, single)
        commit = each.source.content.head.commit if isinstance(each.source.content, Experiment) else ""
        rows.append(
            [
                Link(path.name if each.verdict.of == str(path) else each.verdict.of, _beside(target, folder)),
                Word(each.verdict.word),
                each.verdict.figure,
                _when(each).strftime("%Y-%m-%d %H:%M"),
                commit,
                Link("runs", _beside(path, folder)),
            ]
        )
    about = f"{counted(len(items), 'result')}, the newest first; times are UTC"
    page = Page(f"Results in {folder.resolve().name}", about)
    page.table(["result", "verdict", "figure", "begun", "commit", "file"], rows)
    for said in problems:
        page.text(said, "problem")
    path = folder / "index.html"
    page.write(path, single)
    return path
