"""Files that commands write appear whole or not at all."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from hakmem_lab.commands import profile
from hakmem_lab.profile import formats
from hakmem_lab.profile.heap_dumps import Profile
from hakmem_lab.terminal.errors import LabError
from hakmem_lab.terminal.files import write_whole
from tests.conftest import files_of_at_most
from tests.inside import hakmem


def test_a_full_disk_leaves_the_former_profile(tmp_path: Path) -> None:
    report = formats.Report({}, ("live",), 1000, Profile(1000, [], [], text="x" * 5000))
    path = tmp_path / "h.heap"
    profile.write(report, path, "live", "")
    former = path.read_bytes()
    with files_of_at_most(100), pytest.raises(LabError, match="File too large"):
        profile.write(report, path, "live", "")
    assert path.read_bytes() == former and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("ending", profile.ENDINGS)
def test_what_can_be_read_again(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"x{ending}"
    profile.write(formats.Report({}, ("live",), 1000, Profile(1000, [], [])), path, "live", "")
    done = hakmem("profile", path)
    if ending == ".heap":
        assert done.returncode == 0 and "no block was sampled" in done.stderr, done.stderr
    else:
        assert done.returncode == 1 and "is not a profile that can be read again" in done.stderr.replace("\n", " ")


def test_links_and_modes_stay(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_bytes(b"former")
    file.chmod(0o640)
    link.symlink_to(file.name)
    write_whole(link, b"new")
    assert link.is_symlink() and file.read_bytes() == b"new" and file.stat().st_mode & 0o777 == 0o640


def test_a_pipe_is_written_itself(tmp_path: Path) -> None:
    pipe, found = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    write_whole(pipe, b"new")
    reader.join(10)
    assert found == [b"new"] and pipe.is_fifo()
