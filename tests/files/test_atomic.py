import importlib.util
import os
import stat

import pytest

from orsched.files.document import opened, write_bytes, write_text
from tests.refusals import refusal


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_writer_that_ends_early_leaves_the_old_file_and_no_other(tmp_path, error):
    def chunks(half):
        yield half
        raise error

    write_text(tmp_path / "a.txt", "old\n")
    with pytest.raises(error):
        write_text(tmp_path / "a.txt", chunks("half"))
    with pytest.raises(error):
        write_bytes(tmp_path / "b.txt", chunks(b"half"))
    assert (tmp_path / "a.txt").read_bytes() == b"old\n"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_chunks_are_joined_and_the_mode_is_kept(tmp_path):
    target = tmp_path / "a.bin"
    write_bytes(target, b"first")
    os.chmod(target, 0o640)
    write_bytes(target, (b"a", b"\r\n", b"b"))
    assert target.read_bytes() == b"a\r\nb"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["a.bin"]


def test_a_link_stays_a_link_and_a_device_is_written_directly(tmp_path):
    (tmp_path / "real.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to("real.txt")
    write_text(tmp_path / "link.txt", "new")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "new"
    write_text(os.devnull, "gone")
    assert not stat.S_ISREG(os.stat(os.devnull).st_mode)


@pytest.mark.parametrize("name", ["missing/a.txt", "file.txt/a.txt", "folder", "a\0b", "x" * 300])
def test_what_cannot_be_written_is_an_input_error(tmp_path, name):
    (tmp_path / "file.txt").write_text("")
    (tmp_path / "folder").mkdir()
    assert refusal(write_text, os.path.join(tmp_path, name), "text").file is not None
    assert sorted(os.listdir(tmp_path)) == ["file.txt", "folder"]


def test_a_folder_without_permission_is_an_input_error(tmp_path, monkeypatch):
    def refuse(source, target):
        raise PermissionError(13, "Permission denied", source)

    monkeypatch.setattr(os, "replace", refuse)
    assert "Permission denied" in str(refusal(write_text, tmp_path / "a.txt", "text"))
    assert os.listdir(tmp_path) == []


def test_an_error_of_another_file_is_not_blamed_on_the_target(tmp_path):
    with pytest.raises(FileNotFoundError), opened(tmp_path / "a.txt"):
        (tmp_path / "other.txt").read_text()
    assert os.listdir(tmp_path) == []


def as_in_another_process():
    """The module as a process would have it that has the same number (in another container)."""
    spec = importlib.util.find_spec("orsched.files.document")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_processes_of_one_number_do_not_take_each_others_files(tmp_path):
    first, second = as_in_another_process(), as_in_another_process()
    with first.opened(tmp_path / "a.txt") as a, second.opened(tmp_path / "b.txt") as b:
        a.write("a")
        b.write("b")
    assert (tmp_path / "a.txt").read_text() == "a"
    assert (tmp_path / "b.txt").read_text() == "b"
    assert sorted(os.listdir(tmp_path)) == ["a.txt", "b.txt"]


def test_a_name_that_is_taken_is_left_alone(tmp_path, monkeypatch):
    numbers = iter([b"\0" * 8, b"\1" * 8])
    monkeypatch.setattr(os, "urandom", lambda size: next(numbers))
    (tmp_path / f".orsched-{'00' * 8}.tmp").write_text("somebody's")
    write_text(tmp_path / "a.txt", "text")
    assert (tmp_path / f".orsched-{'00' * 8}.tmp").read_text() == "somebody's"
    assert (tmp_path / "a.txt").read_text() == "text"


@pytest.mark.parametrize(("before", "mask"), [(0o600, 0o022), (0o666, 0o077), (None, 0o027)])
def test_nobody_may_read_it_earlier_than_later(tmp_path, before, mask):
    """The mode is that of the old file, else what the umask leaves, while it is written too."""
    target = tmp_path / "a.txt"
    if before is not None:
        target.touch()
        target.chmod(before)
    usual = os.umask(mask)
    try:
        with opened(target) as stream:
            (temporary,) = tmp_path.glob(".*")
            meanwhile = stat.S_IMODE(temporary.stat().st_mode)
            stream.write("secret")
    finally:
        os.umask(usual)
    assert meanwhile == stat.S_IMODE(target.stat().st_mode) == (before or 0o666 & ~mask)
