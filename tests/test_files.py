from __future__ import annotations

import errno
import os
import resource
import signal
from pathlib import Path

import pytest

from elastic_dit.errors import SaveError
from elastic_dit.files import check_target, write_atomically


def test_replaces_a_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "clip.bin"
    target.write_bytes(b"old")
    assert write_atomically(target, b"new") == target
    assert target.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [target]


def test_no_room_keeps_the_old_file(tmp_path: Path) -> None:
    # A limit on file size is the kernel's own refusal in the middle of a write, as a full disk is.
    target = tmp_path / "clip.bin"
    target.write_bytes(b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(SaveError, match=r"clip\.bin: File too large"):
            write_atomically(target, b"x" * 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("kind", [OSError, KeyboardInterrupt])
def test_whatever_breaks_the_write_leaves_nothing(
    kind: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(descriptor: int) -> None:
        raise kind(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", broken)
    wanted = SaveError if kind is OSError else kind
    with pytest.raises(wanted, match="No space left on device"):
        write_atomically(tmp_path / "clip.bin", b"x")
    assert list(tmp_path.iterdir()) == []


def test_target_is_a_directory(tmp_path: Path) -> None:
    (tmp_path / "clip.bin").mkdir()
    with pytest.raises(SaveError, match="directory"):
        write_atomically(tmp_path / "clip.bin", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["clip.bin"]


def test_check_target(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    check_target(tmp_path / "new")
    check_target(tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    for wrong, cause in [
        (tmp_path, "Is a directory"),
        (tmp_path / "file" / "new", "Not a directory"),
        (tmp_path / "missing" / "new", "No such file"),
    ]:
        with pytest.raises(SaveError, match=cause):
            check_target(wrong)
