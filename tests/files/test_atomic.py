from __future__ import annotations

import os
import stat

import pytest

from orsched.errors import InputError
from orsched.files.atomic import opened, write_bytes, write_text


def test_a_failing_writer_leaves_the_old_file_and_no_other(tmp_path):
    target = tmp_path / "a.txt"
    write_text(target, "old\n")

    def chunks():
        yield "half"
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        write_text(target, chunks())
    assert target.read_bytes() == b"old\n"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_an_interrupt_leaves_nothing(tmp_path):
    def interrupted():
        yield b"half"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_bytes(tmp_path / "a.txt", interrupted())
    assert os.listdir(tmp_path) == []


def test_chunks_are_joined_and_the_mode_is_kept(tmp_path):
    target = tmp_path / "a.bin"
    write_bytes(target, b"first")
    os.chmod(target, 0o640)
    write_bytes(target, (b"a", b"\r\n", b"b"))
    assert target.read_bytes() == b"a\r\nb"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["a.bin"]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to("real.txt")
    write_text(tmp_path / "link.txt", "new")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "new"


def test_a_device_is_written_directly():
    write_text(os.devnull, "gone")
    assert not stat.S_ISREG(os.stat(os.devnull).st_mode)


@pytest.mark.parametrize("name", ["missing/a.txt", "file.txt/a.txt", "folder", "a\0b", "x" * 300])
def test_what_cannot_be_written_is_an_input_error(tmp_path, name):
    (tmp_path / "file.txt").write_text("")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError) as caught:
        write_text(os.path.join(tmp_path, name), "text")
    assert caught.value.file is not None
    assert sorted(os.listdir(tmp_path)) == ["file.txt", "folder"]


def test_a_folder_without_permission_is_an_input_error(tmp_path, monkeypatch):
    def refuse(source, target):
        raise PermissionError(13, "Permission denied", source)

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(InputError, match="Permission denied"):
        write_text(tmp_path / "a.txt", "text")
    assert os.listdir(tmp_path) == []


def test_an_error_of_another_file_is_not_blamed_on_the_target(tmp_path):
    with pytest.raises(FileNotFoundError), opened(tmp_path / "a.txt"):
        (tmp_path / "other.txt").read_text()
    assert os.listdir(tmp_path) == []
