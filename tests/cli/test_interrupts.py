"""Ctrl-C: never swallowed, ends a comparison, keeps what is done."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress

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
