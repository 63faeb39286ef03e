"""The output of commands on a full disk, in a limited encoding, in a job's log and on a narrow terminal; and users' own
texts, which are printed unchanged."""

from __future__ import annotations

import io
import itertools
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hakmem_lab import cli
from hakmem_lab.decide import result_tables
from hakmem_lab.decide.allocator_comparison import analyse
from hakmem_lab.terminal import amounts, console, progress, tables
from tests.conftest import Hakmem, make_experiment
from tests.pages import snapshot

BARE = {"PATH": os.environ.get("PATH", os.defpath), "HOME": os.environ.get("HOME", "/")}
COMMANDS = (
    ("--version",),
    ("--help",),
    ("run", "--help"),
    ("stats", "s.json"),
    ("stats", "--json", "s.json"),
    ("doctor",),
    ("doctor", "--json"),
    ("path",),
    ("translate", "MALLOC_CONF=narenas:4"),
    ("serve", "--dashboard"),
    ("profile", "--", "true"),
    ("leaks", "--", "true"),
    ("compare", "--alloc", "system,hakmem", "--runs", "2", "--warmup", "0", "--", "true"),
    ("ab", "--a", "", "--b", "", "--runs", "2", "--warmup", "0", "--json", "--", "true"),
)


def hakmem_into(output: Path, folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs the command in an otherwise empty environment, with its output in a file."""
    (folder / "s.json").write_text(snapshot())
    with output.open("w") as file:
        return subprocess.run(
            [sys.executable, "-m", "hakmem_lab", *words],
            cwd=folder,
            env=BARE | more,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            check=False,
            timeout=100,
        )


@pytest.mark.usefixtures("hakmem_library")
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_full_output_is_said_by_every_command(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = hakmem_into(Path("/dev/full"), tmp_path, *words)
    assert done.returncode == 1, done.stderr
    assert "hakmem: cannot write: [Errno 28] No space left on device" in done.stderr
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


def test_a_reader_that_has_gone_is_no_error(tmp_path: Path) -> None:
    for words in (("stats", "s.json"), ("stats", "--json", "s.json"), ("--help",)):
        reading, writing = os.pipe()
        os.close(reading)
        with os.fdopen(writing, "w") as file:
            (tmp_path / "s.json").write_text(snapshot())
            done = subprocess.run(
                [sys.executable, "-m", "hakmem_lab", *words],
                cwd=tmp_path, env=BARE, stdout=file, stderr=subprocess.PIPE, text=True, check=False,
            )  # fmt: skip
        assert done.stderr == "", words


@pytest.mark.usefixtures("hakmem_library")
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_an_output_of_ascii_is_written(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = hakmem_into(tmp_path / "out", tmp_path, *words, PYTHONIOENCODING="ascii")
    assert "Traceback" not in done.stderr, done.stderr
    said = (tmp_path / "out").read_bytes()
    assert said.isascii() and said.strip() and b"\\u" not in said, said


def test_signs_that_an_encoding_has_not_are_put_into_others() -> None:
    console.write_anything()
    assert "7 MiB ± 1 … √2 █▁".encode("ascii", "hakmem") == b"7 MiB +- 1 ... sqrt2 #_"
    assert "naïve \udcff".encode("ascii", "hakmem") == rb"na\xefve \udcff"
    assert "\udcff".encode("utf-8", "hakmem") == rb"\udcff"  # a name of a file that is no text


NAMES = (":x:", "a :warning: b", "[bold]no[/]", "ops=([a-z]+)", "a[red]b", "[/x]", ":100:")


@pytest.mark.parametrize("name", NAMES)
def test_users_texts_are_printed_as_they_are(capsys: pytest.CaptureFixture[str], name: str) -> None:
    """Emoji codes and style marks in texts are not interpreted, in messages, tables and lines."""
    console.complain(f"{name} is wrong", f"Give another than {name}.")
    console.remark(name)
    said = capsys.readouterr().err
    assert said.count(name) == 3, said
    made = make_experiment({name: [1.0, 1.1, 1.2], "B": [1.0, 1.1, 1.2]}, higher=True)
    made.head.metric.name = name
    file = io.StringIO()
    plain = console.make_console(file, 300)
    plain.print(result_tables.summary_table(made, made.labels))
    tables.lines(plain, result_tables.summary_table(made, made.labels))
    assert file.getvalue().count(name) >= 4, file.getvalue()
    result_tables.compare(made, analyse(made))
    assert name in capsys.readouterr().out


@pytest.mark.usefixtures("hakmem_library")
def test_a_programs_words_are_printed_as_they_are(hakmem: Hakmem) -> None:
    done = hakmem("ab", "--a", "", "--b", "", "--", "sh", "-c", "echo ':x: [bold]so[/]'; exit 3", status=1)
    assert ":x: [bold]so[/]" in done.stderr
    done = hakmem("run", "--", ":x:", status=127)
    assert "hakmem: :x: no such" in done.stderr or "hakmem: :x:: no such" in done.stderr


def test_one_is_one() -> None:
    assert [amounts.counted(number, "block") for number in (0, 1, 2, 1234)] == [
        "0 blocks",
        "1 block",
        "2 blocks",
        "1,234 blocks",
    ]
    assert amounts.counted(1, "class") == "1 class" and amounts.counted(2, "class") == "2 classes"
    assert amounts.counted(2, "entry") == "2 entries"


def test_no_text_has_a_number_before_a_plural_by_itself() -> None:
    words = "heap|thread|round|trial|sample|setting|result|case|look|function|stack|block|classe|processe"
    found = []
    for path in Path(cli.__file__).parent.rglob("*.py"):
        for line in path.read_text().splitlines():
            # Sizes of blocks and "{size} bytes" apart, which are never 1.
            if re.search(rf"\}} (more |complete |child )?({words})s\b", line) and "hovertemplate" not in line:
                found.append(f"{path.name}: {line.strip()}")
    assert sorted(found) == [
        'blocks.py: said = f"of {span.blocks} blocks of {size} bytes from {span.start:#x} on"',
        'inside.py: word[slab] = f"{size:,} bytes: {taken:,} of {blocks:,} blocks used"',
    ]


# --- help -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_help_breaks_lines_where_the_terminal_ends(hakmem: Hakmem, name: str) -> None:
    """No paragraph has a short line in its middle, and a continued example has a backslash."""
    app = cli.build_app(name)
    text = "\n".join(each.help or "" for each in [*app.registered_commands, *cli.of_groups(app)])
    for paragraph in text.split("\n\n"):
        lines = [re.sub(r"\[/?bold\]", "", line).replace(r"\[", "[") for line in paragraph.split("\n")]
        if not lines[0].startswith(" "):
            assert len(lines) == 1, lines
        for line in lines:
            assert not line.startswith(" ") or len(line) <= cli.LINE, line
    shown = subprocess.run(
        [sys.executable, "-m", "hakmem_lab", name, "--help"],
        env={**BARE, "COLUMNS": "80", "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    head = [line.rstrip() for line in shown.partition("Arguments")[0].partition("Options ─")[0].splitlines()]
    assert all(len(line) <= 80 for line in head)
    for before, line in itertools.pairwise(head):
        words = line.split()
        if before.startswith(" ") and words and before[1:2].isalpha() and line[1:2].isalpha():
            assert len(before) + 1 + len(words[0]) >= 79, f"broken too early: {before!r}"


def test_a_long_example_is_one_that_a_shell_reads() -> None:
    line = (
        "  hakmem ab --a '' --b 'x=1' --client 'a program with words' --metric rss --no-noise-check -- ./server --p 7"
    )
    found = cli.shell_lines(line)
    assert len(found) > 1 and all(len(each) <= cli.LINE for each in found)
    assert all(each.endswith("\\") for each in found[:-1]) and not any(
        each.endswith(("--client", "--p")) for each in found
    )
    assert re.sub(r"\\\n\s+", "", "\n".join(found)) == line
    assert cli.shell_lines("  short") == ["  short"]
    assert cli.in_lines("One\ntwo.\n\nThree\n  kept\n  too\n") == "One two.\n\nThree\n  kept\n  too"


# --- off a terminal ---------------------------------------------------------------------------------------------------


def test_a_long_command_says_how_far_it_is(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A line appears now and then, even during a single long run."""
    monkeypatch.setattr(progress, "FIRST_S", 0.2)
    with progress.of(8, "runs") as tell:
        time.sleep(0.3)
        tell("round 1")
        tell("[a]")
        time.sleep(0.5)
        time.sleep(0.2)
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("hakmem: begun: 0 of 8 runs after 0 s"), said
    assert said[1] == "hakmem: [a]: 2 of 8 runs after 1 s, about 2 s left", said
    assert len(said) == 2  # twice as long after each
    with progress.of(600, "s") as tell:
        tell("trial 7", 60.0)
        assert isinstance(tell, progress.Lines)
        tell.began -= 3600
        assert tell.line() == "hakmem: trial 7: 60 of 600 s after 60 min, about 9.0 h left"


@pytest.mark.usefixtures("hakmem_library")
def test_an_experiment_says_so_off_a_terminal(tmp_path: Path) -> None:
    code = "from hakmem_lab import cli; from hakmem_lab.terminal import progress; progress.FIRST_S = 0.1; cli.main()"
    plan = ("ab", "--a", "", "--b", "", "--runs", "2", "--warmup", "0", "--no-noise-check", "--", "sleep", "0.5")
    for words in (plan, (*plan[:-3], "--param", "t=0.5,0.6", "--", "sleep", "{t}")):
        done = subprocess.run(
            [sys.executable, "-c", code, *words], cwd=tmp_path, env=BARE, capture_output=True, text=True, check=False
        )
        assert re.search(r"^hakmem: .*: \d of [48] runs after", done.stderr, re.MULTILINE), done.stderr
