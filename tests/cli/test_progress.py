"""Progress of commands: in place on a terminal, lines in a pipe, nothing if quiet."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from time import monotonic

import pytest

from orsched.cli.commands import run

COMMAND = [sys.executable, "-c", "from orsched.cli import main; main()"]
SEARCH = ["solve", "gsm8k-llama65b", "--method", "windows", "--time-limit"]
LIMIT_S = 60


def on_terminal(arguments, columns=80, press_after=None, **variables):
    """Run a command on a terminal; return what it showed and its exit code.

    ``press_after``: a text after whose first appearance Ctrl-C is pressed.
    """
    terminal, end_of_child = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    child = subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=end_of_child,
        stdout=end_of_child,
        stderr=end_of_child,
        env={**os.environ, "TERM": "xterm", **variables},
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # Ctrl-C goes to it
    )
    os.close(end_of_child)
    shown, end = "", monotonic() + LIMIT_S
    try:
        while monotonic() < end:
            if select.select([terminal], [], [], 0.1)[0]:
                try:
                    part = os.read(terminal, 1 << 16).decode()
                except OSError:  # it has ended
                    break
                shown += part
            if press_after is not None and press_after in shown:
                os.write(terminal, b"\x03")
                press_after = None
        return shown, child.wait(max(1, end - monotonic()))
    finally:
        child.kill()
        child.wait()
        os.close(terminal)


def screen(shown):
    """Return the lines that a terminal shows in the end, as it reads \\r and \\n."""
    lines = []
    for line in shown.split("\n"):
        cells = []
        for part in line.split("\r"):
            cells[: len(part)] = part
        lines.append("".join(cells).rstrip())
    return lines


@pytest.mark.full
def test_a_terminal_shows_one_line_that_is_renewed():
    shown, code = on_terminal([*SEARCH, "8"])
    assert code == 0, shown
    assert "\x1b" not in shown
    status = re.findall(r"\r([^\r\n]*windows[^\r\n]*best[^\r\n]*)", shown.partition("method")[0])
    assert len(status) > 3
    for text in status:
        assert re.match(
            r"\d+ s: windows: (iteration \d+, )?best 1\d\d\.\d\d s, bound 1\d\d\.\d\d s, "
            r"gap \d\.\d\d %, \d+ s left *$",
            text,
        ), text
        assert len(text) < 80
    lines = screen(shown)
    assert lines[0].startswith("machine: ")  # nothing is left of the status
    assert lines[1].split()[0] == "method"
    assert lines[3].startswith("windows")


@pytest.mark.full
@pytest.mark.parametrize("columns", [30, 60])
def test_a_narrow_terminal_loses_pieces_and_is_never_too_small(columns):
    shown, code = on_terminal([*SEARCH, "8"], columns)
    assert code == 0
    status = re.findall(r"\r([^\r\n]*windows[^\r\n]*)", shown.partition("method")[0])
    assert any("best" in text for text in status)
    assert all(len(text) < columns for text in status)
    assert not any("iteration" in text for text in status)


@pytest.mark.full
def test_ctrl_c_on_a_terminal_prints_the_best_so_far():
    shown, code = on_terminal([*SEARCH, "50"], press_after="best")
    assert code == 130
    assert "Traceback" not in shown
    lines = screen(shown)
    assert lines[0].startswith("machine: ")
    assert lines[1].split()[0] == "method"
    assert lines[3].startswith("windows")


@pytest.mark.full
def test_a_dumb_terminal_has_lines():
    shown, code = on_terminal([*SEARCH, "8"], TERM="dumb")
    assert code == 0
    assert re.search(r"orsched: \d s: windows: iteration", shown)


@pytest.mark.full
def test_a_pipe_has_plain_lines_and_a_quiet_command_none():
    done = subprocess.run([*COMMAND, *SEARCH, "8"], capture_output=True, text=True)
    lines = done.stderr.splitlines()
    assert lines
    assert all(re.match(r"orsched: \d+ s: ", line) for line in lines[:-1])
    assert lines[-1].startswith("machine: ")
    assert any("bound 17" in line and "gap " in line and " left" in line for line in lines)
    assert "\r" not in done.stderr + done.stdout
    done = subprocess.run([*COMMAND, *SEARCH, "3", "--quiet"], capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout


@pytest.mark.parametrize("where", ["before", "behind"])
def test_quiet_leaves_remarks_out_and_keeps_errors(where, capsys):
    def quiet(*arguments):
        return run(["-q", *arguments] if where == "before" else [*arguments, "--quiet"])

    assert run(["solve", "two-by-two", "--method", "exact"]) == 0
    assert "note: " in capsys.readouterr().err
    assert quiet("solve", "two-by-two", "--method", "exact") == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert "exact" in shown.out
    assert quiet("solve", "nothing-there") == 2
    assert "there is no shipped instance" in capsys.readouterr().err


@pytest.mark.parametrize("where", ["before", "behind"])
def test_quiet_says_neither_what_was_read_nor_what_was_written(where, capsys, tmp_path):
    (tmp_path / "r.csv").write_text("prompt_tokens,output_tokens\n5,6\n")
    asked = ["solve", f"{tmp_path}/r.csv", "--clients", "2", "-o", f"{tmp_path}/s.json"]
    assert run(asked) == 0
    shown = capsys.readouterr().err
    assert "r.csv, format requests: 1 of 1 requests" in shown
    assert "written to" in shown
    assert run(["-q", *asked] if where == "before" else [*asked, "-q"]) == 0
    assert capsys.readouterr().err == ""
