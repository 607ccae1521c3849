"""Ctrl-C, and progress: in place on a terminal, lines in a pipe, nothing if quiet."""

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
from pathlib import Path
from time import monotonic
from unittest.mock import Mock

import pytest

from orsched.cli.ending import kept_interrupts
from orsched.files import locate
from orsched.heuristics import pang


def test_a_swallowed_interrupt_is_raised_after_loading(monkeypatch, call):
    load = locate.load

    def swallowing(source):
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        return load(source)

    monkeypatch.setattr("orsched.files.locate.load", swallowing)
    code, _, err = call("solve two-by-two")
    assert (code, err.endswith("orsched: interrupted\n")) == (130, True)
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


def test_an_interrupted_comparison_prints_what_is_done(interrupted_second_run, call):
    code, out, _ = call("compare pang-100x20 --methods fcfs,hybrid,online --format json")
    assert code == 130
    assert [row["method"] for row in json.loads(out)] == ["fcfs", "hybrid"]


def test_an_interrupted_first_seed_leaves_nothing_to_print(interrupted_second_run, call):
    few = "--set requests=50 --set clients=10"
    assert call(f"compare gsm8k --seeds 0:3 --methods hybrid {few}")[:2] == (130, "")


def python(script):
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)


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
    done = python(script)
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
    done = python(script)
    assert (done.returncode, done.stderr) == (code, "")
    assert "two-by-two" in done.stdout


def test_importing_the_command_line_leaves_ctrl_c_alone():
    script = (
        "import signal, orsched.cli; from orsched.cli import cli\n"
        "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
        "assert cli.name == 'cli'\n"
    )
    assert python(script).returncode == 0


def test_a_second_ctrl_c_while_the_first_is_told(monkeypatch, call):
    def pressed_again(message, err):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("orsched.files.locate.load", Mock(side_effect=KeyboardInterrupt))
    monkeypatch.setattr("orsched.cli.commands.click.echo", pressed_again)
    assert call("solve two-by-two")[0] == 130


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


@pytest.mark.parametrize("first", [1, 2])
def test_a_run_without_a_step_is_written_reported_and_resumed(done, first):
    """Ctrl-C is pressed before the first step, and while what there is is checked."""
    words = ["run", "two-by-two", "--worker", "virtual", "-o", "t.json", "--report", "page.html"]
    found = python(PRESSED.format(first=first, arguments=words))
    assert (found.returncode, "Traceback" in found.stderr) == (130, False), found.stderr
    assert Path("page.html").exists()
    done("check two-by-two t.json --times measured")
    for option in ("-o a.html", "--gantt g.svg", "--usage u.svg", "--trace t2.json",
                   "--records r.csv"):  # fmt: skip
        done(f"report two-by-two t.json {option}")
        assert Path(option.split()[1]).exists()
    done("run two-by-two --resume t.json --worker virtual -o whole.json")
    done("check two-by-two whole.json --times measured")


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


def has_the_table_alone(shown):
    """Nothing is left of the status."""
    lines = screen(shown)
    assert lines[0].startswith("machine: ")
    assert lines[1].split()[0] == "method"
    assert lines[3].startswith("windows")


STATUS = (
    r"\d+ s: windows: (iteration \d+, )?best 1\d\d\.\d\d s, bound 1\d\d\.\d\d s, gap \d\.\d\d %, "
    r"\d+ s left *$"
)


@pytest.mark.full
@pytest.mark.parametrize("columns", [30, 60, 80])
def test_a_terminal_shows_one_line_that_is_renewed(columns):
    """A narrow one loses pieces, and is never too small."""
    shown, code = on_terminal([*SEARCH, "8"], columns)
    assert code == 0, shown
    assert "\x1b" not in shown
    status = re.findall(r"\r([^\r\n]*windows[^\r\n]*)", shown.partition("method")[0])
    best = [text for text in status if "best" in text]
    assert len(best) > (3 if columns == 80 else 0)
    assert all(len(text) < columns for text in status)
    if columns < 80:
        assert not any("iteration" in text for text in status)
        return
    for text in best:
        assert re.match(STATUS, text), text
    has_the_table_alone(shown)


@pytest.mark.full
def test_ctrl_c_on_a_terminal_prints_the_best_so_far():
    shown, code = on_terminal([*SEARCH, "50"], press_after="best")
    assert (code, "Traceback" in shown) == (130, False)
    has_the_table_alone(shown)


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


@pytest.mark.parametrize("quiet", ["-q {}", "{} --quiet", "{} -q"])
def test_quiet_leaves_remarks_out_and_keeps_errors(quiet, call):
    """Neither what was read nor what was written is said."""
    Path("r.csv").write_text("prompt_tokens,output_tokens\n5,6\n")
    for line, remarks in (
        ("solve two-by-two --method exact", ["note: "]),
        ("solve r.csv --clients 2 -o s.json",
         ["r.csv, format requests: 1 of 1 requests", "written to"]),
    ):  # fmt: skip
        code, _, err = call(line)
        assert code == 0
        assert all(remark in err for remark in remarks)
        code, out, err = call(quiet.format(line))
        assert (code, err) == (0, "")
        assert "method" in out
    code, _, err = call(quiet.format("solve nothing-there"))
    assert (code, "unknown shipped instance" in err) == (2, True)
