"""The pictures of docs/fleet.md show what the commands show today; bench/fleet/pictures.py draws them."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "fleet"))

import pictures

ROOT = pictures.ROOT
FOLDER = ROOT / "docs" / "fleet"
DRAW = "python bench/fleet/pictures.py draws them anew"


def test_terminals_are_current() -> None:
    for name, content in pictures.terminals().items():
        assert content == (FOLDER / name).read_text(encoding="utf-8"), f"docs/fleet/{name}: {DRAW}"


@pytest.mark.parametrize("name", ["page", "diff"])
def test_pages_say_what_their_pictures_say(name: str) -> None:
    """Without a browser: the words alone."""
    text = pictures.page(pictures.fleet()[1]) if name == "page" else pictures.difference()
    said = pictures.words(text)
    assert len(said) > 40
    for width in pictures.WIDTHS:
        shown = pictures.of_text((FOLDER / f"{name}-{width}.svg").read_text(encoding="utf-8"))
        assert said <= shown, f"{sorted(said - shown)}: {DRAW}"


def test_pictures_are_small_and_shown() -> None:
    page = (ROOT / "docs" / "fleet.md").read_text(encoding="utf-8")
    names = [f"{name}-{width}.svg" for name in ("plan", "verdict", "page", "diff") for width in pictures.WIDTHS]
    assert sorted(names) == sorted(each.name for each in FOLDER.iterdir())
    for name in names:
        path = FOLDER / name
        assert path.stat().st_size < 60_000 and f"(fleet/{name})" in page
        drawn = ElementTree.parse(path).getroot()
        assert drawn.get("width") == name.partition("-")[2].removesuffix(".svg") and len(drawn) > 2


def test_a_line_longer_than_the_screen_is_not_cut() -> None:
    from rich.segment import Segment

    row = [Segment("abc"), Segment("defgh")]
    assert ["".join(each.text for each in part) for part in pictures.wrapped(row, 3)] == ["abc", "def", "gh"]
    assert len(list(pictures.wrapped([], 3))) == 1
