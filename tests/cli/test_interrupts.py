"""Ctrl-C, and progress: in place on a terminal, lines in a pipe, nothing if quiet."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from time import monotonic

import pytest

from orsched.cli.commands import run
from orsched.cli.ending import kept_interrupts
from orsched.heuristics import pang


def test_a_swallowed_interrupt_is_raised_after_loading(monkeypatch, capsys):
    load = __import__("orsched.files.locate", fromlist=["load"]).load

    def swallowing(source):
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        return load(source)

    monkeypatch.setattr("orsched.files.locate.load", swallowing)
    assert run(["solve", "two-by-two"]) == 130
    assert capsys.readouterr().err.endswith("orsched: interrupted\n")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_foreign_handler_is_left_alone():
    heard = []
    before = signal.signal(signal.SIGINT, lambda *args: heard.append(args))
    try:
        with kept_interrupts():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(heard) == 1


@pytest.fixture
def interrupted_second_run(monkeypatch):
    """The search of hybrid is interrupted in its second iteration."""
    simulate, runs = pang.simulate_policy, []

    def simulate_or_stop(*args, **kwargs):
        runs.append(True)
        if len(runs) % 2 == 0:
            signal.raise_signal(signal.SIGINT)
        return simulate(*args, **kwargs)

    monkeypatch.setattr(pang, "simulate_policy", simulate_or_stop)


def test_an_interrupted_comparison_prints_what_is_done(interrupted_second_run, capsys):
    methods = "fcfs,hybrid,online"
    assert run(["compare", "pang-100x20", "--methods", methods, "--format", "json"]) == 130
    rows = json.loads(capsys.readouterr().out)
    assert [row["method"] for row in rows] == ["fcfs", "hybrid"]


def test_an_interrupted_first_seed_leaves_nothing_to_print(interrupted_second_run, capsys):
    arguments = ("--methods", "hybrid", "--set", "requests=50", "--set", "clients=10")
    assert run(["compare", "gsm8k", "--seeds", "0:3", *arguments]) == 130
    assert capsys.readouterr().out == ""


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="signals of POSIX")
def test_ctrl_c_while_the_commands_are_imported_is_quiet():
    script = (
        "import os, signal, sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'click':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from orsched.cli import main\n"
        "main(['info'])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "orsched: interrupted\n"


ENDING = """
import os, signal, sys

def press():
    os.kill(os.getpid(), signal.SIGINT)

class Late:
    def __del__(self, press=press):
        press()

import atexit
from orsched.cli import commands
inner = commands.run

def run(arguments):
    code = inner(arguments)
    {when}
    return code

commands.run = run
from orsched.cli import main
main(["info", "two-by-two"])
"""


@pytest.mark.parametrize(
    ("when", "code"),
    [
        ("press()", 130),
        ("atexit.register(press)", 130),
        ("import threading; threading.Thread(target=press).start()", 130),
        ("sys.modules['late'] = Late()", 0),  # all is done, and Python runs no handler any more
    ],
    ids=["run", "atexit", "thread", "modules"],
)
def test_ctrl_c_while_the_interpreter_ends(when, code):
    script = ENDING.format(when=when)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (code, "")
    assert "two-by-two" in done.stdout


def test_importing_the_command_line_leaves_ctrl_c_alone():
    script = (
        "import signal, orsched.cli; from orsched.cli import cli\n"
        "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
        "assert cli.name == 'cli'\n"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def test_a_second_ctrl_c_while_the_first_is_told(monkeypatch, capsys):
    def interrupted(source):
        raise KeyboardInterrupt

    def pressed_again(message, err):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("orsched.files.locate.load", interrupted)
    monkeypatch.setattr("orsched.cli.commands.click.echo", pressed_again)
    assert run(["solve", "two-by-two"]) == 130


PRESSED = """
import os, signal
from orsched.runner import execution
from orsched.runner.loop.live_loop import LiveLoop
from orsched.runner.devices.device import VirtualDevice

def press(function, times=1):
    def pressing(*arguments, **options):
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
        return function(*arguments, **options)
    return pressing

LiveLoop.serve = press(LiveLoop.serve, {first})
execution.check = press(execution.check)
from orsched.cli import main
main({arguments})
"""


def pressed(first, *arguments):
    """Run a command in which Ctrl-C is pressed before the first step, and while it is checked."""
    script = PRESSED.format(first=first, arguments=[str(each) for each in arguments])
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)


@pytest.mark.parametrize("first", [1, 2])
def test_a_run_without_a_step_is_written_reported_and_resumed(tmp_path, capsys, first):
    trace, page, whole = (tmp_path / name for name in ("t.json", "page.html", "whole.json"))
    options = ("--worker", "virtual", "-o")
    done = pressed(first, "run", "two-by-two", *options, trace, "--report", page)
    assert (done.returncode, "Traceback" in done.stderr) == (130, False), done.stderr
    assert page.exists()
    assert run(["check", "two-by-two", str(trace), "--times", "measured"]) == 0
    for kind, suffix in [("-o", "html"), ("--gantt", "svg"), ("--usage", "svg"),
                         ("--trace", "json"), ("--records", "csv")]:  # fmt: skip
        target = tmp_path / f"again{kind}.{suffix}"
        assert run(["report", "two-by-two", str(trace), kind, str(target)]) == 0
        assert target.exists()
    resume = ("--resume", str(trace), *options, str(whole))
    assert run(["run", "two-by-two", *resume]) == 0
    assert run(["check", "two-by-two", str(whole), "--times", "measured"]) == 0


COMMAND = [sys.executable, "-c", "from orsched.cli import main; main()"]
SEARCH = ["solve", "gsm8k-llama65b", "--method", "windows", "--time-limit"]
LIMIT_S = 60


def on_terminal(arguments, columns=80, press_after=None, **variables):
    """Run on a terminal, with Ctrl-C once a text appears; return output and exit code."""
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
