"""What is seen of a search while it runs: records, lines, one line, a notebook's cell."""

import io
import re
import sys
import types
from math import inf
from time import monotonic, sleep

import pytest

import orsched
from orsched.solving import progress
from orsched.solving.methods import Progress
from orsched.solving.progress import Cell, InPlace, Lines, State, Watch, clear_line, columns

PANG = orsched.load("pang-100x20")


def _record(**changes):
    values = {"makespan_ns": 179_994_000_000, "bound_ns": 177_467_000_000, "seconds_left": 26.0}
    return Progress("windows", 12, improved=True, **{**values, **changes})


@pytest.mark.parametrize("method", ["hybrid", "windows", "fcfs"])
def test_records_have_bound_gap_and_times(method):
    seen = []
    limits = {"time_limit": 600, "iterations": 3, "gap": 0.001}
    result = orsched.solve(PANG, method, callback=seen.append, **limits)
    assert seen
    for record in seen:
        assert record.seconds_spent > 0
        assert 0 <= record.seconds_left <= 600
        if method == "fcfs":  # it does not know what the bound is a bound of
            assert record.bound_ns is record.gap is None
        else:
            assert record.bound_ns == result.bound_ns
            assert record.gap == (record.makespan_ns - record.bound_ns) / record.bound_ns
    assert [r.seconds_spent for r in seen] == sorted(r.seconds_spent for r in seen)


def test_a_line_has_all_of_it_and_loses_the_least_important_first():
    state = State("windows")
    assert state.line() == "0 s: windows"
    state.take(_record())
    whole = "0 s: windows: iteration 12, best 179.99 s, bound 177.47 s, gap 1.42 %, 26 s left"
    assert state.line() == whole
    assert state.line(len(whole)) == whole
    seen = [state.line(width) for width in range(len(whole), 0, -1)]
    assert all(columns(text) <= width for text, width in zip(seen, range(len(whole), 0, -1)))  # noqa: B905
    words = ("best", "gap", "left", "bound", "iteration")
    kept = [[word in text for word in words] for text in seen]
    assert all(row == sorted(row, reverse=True) for row in kept)
    state.take(_record(makespan_ns=None, bound_ns=None, seconds_left=inf))
    assert state.line() == "0 s: windows: iteration 12, no schedule yet"
    state.name("writing")
    assert state.line() == "0 s: writing"


def test_the_time_left_goes_on_between_records():
    state = State("x")
    state.take(_record(seconds_left=0.05))
    sleep(0.06)
    assert state.seconds_left == 0


def test_names_cannot_move_the_cursor_and_wide_ones_take_two_columns():
    assert State("a\x1b[2Jb\n").line() == "0 s: a\\x1b[2Jb\\n"
    assert columns("日本") == 4
    assert State("日本" * 50).line(20) == "0 s: " + "日本" * 3 + "日"


def test_times_as_people_say_them():
    assert [progress.duration(s) for s in (0, 59.4, 119.4, 119.6, 3599, 7260)] == [
        "0 s", "59 s", "119 s", "2 min 0 s", "59 min 59 s", "2 h 1 min",
    ]  # fmt: skip


class _Terminal(io.StringIO):
    def isatty(self):
        return True


def test_what_takes_a_moment_shows_nothing(monkeypatch):
    monkeypatch.setattr(InPlace, "first_s", 600.0)
    stream = _Terminal()
    with Watch("x", InPlace(stream)) as watch:
        watch.callback(_record())
    assert stream.getvalue() == ""


def test_in_place_covers_what_was_there_and_leaves_nothing(monkeypatch):
    monkeypatch.setattr(InPlace, "first_s", 0.01)
    monkeypatch.setattr(InPlace, "interval_s", 0.01)
    stream = _Terminal()
    with Watch("a long name", InPlace(stream)) as watch:
        _until(lambda: "a long name" in stream.getvalue())
        watch.say("b")
        _until(lambda: " s: b" in stream.getvalue())
        assert re.search(r"\r\d+ s: b" + " " * len("long name "), stream.getvalue())
        clear_line()
        assert stream.getvalue().rstrip(" ").endswith("\r")
        clear_line(end=True)
        before = stream.getvalue()
        sleep(0.05)
        assert stream.getvalue() == before  # results follow: nothing is shown any more
    assert InPlace.current is None
    assert "\n" not in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_lines_are_written_whole(monkeypatch):
    written = []
    lines = Lines(written.append)
    lines.first_s = 0.01
    monkeypatch.setattr(progress, "INTERVAL_S", 0.01)
    with Watch("x", lines) as watch:
        watch.callback(_record())
        _until(lambda: len(written) > 2)
    whole = r"\d+ s: windows: iteration 12, best 179.99 s, bound 177.47 s, gap 1.42 %, \d+ s left"
    early = r"\d+ s: x.*"  # a line of the time before the record
    assert all(re.fullmatch(f"{whole}|{early}", line) for line in written)
    assert re.fullmatch(whole, written[-1])


def test_solve_shows_progress_in_lines_where_there_is_no_terminal(monkeypatch, capsys):
    monkeypatch.setattr(progress, "INTERVAL_S", 0.05)
    seen = []

    def slow(record):
        seen.append(record)
        sleep(0.01)  # an interval at least in all

    shown = orsched.solve(PANG, progress=True, iterations=18, callback=slow)
    assert "best" in capsys.readouterr().err
    assert seen
    assert shown.checked
    orsched.solve(PANG, iterations=3)
    assert capsys.readouterr() == ("", "")


@pytest.fixture
def notebook(monkeypatch):
    """IPython as a notebook has it; what it displays."""
    shown = []

    def display(page, **_):
        shown.append(page)
        return types.SimpleNamespace(update=display)

    shell = types.SimpleNamespace(kernel=object())
    parts = {"IPython": {"get_ipython": lambda: shell}, "IPython.display": {"display": display}}
    for name, names in parts.items():
        monkeypatch.setitem(sys.modules, name, types.SimpleNamespace(**names))
    return shown


def test_a_notebook_renews_one_display(notebook, monkeypatch, capsys):
    monkeypatch.setattr(progress, "TICK_S", 0.0)
    orsched.solve(PANG, progress=True, time_limit=600, gap=0.008)
    assert len(notebook) > 2
    assert capsys.readouterr() == ("", "")
    first, last = notebook[0], notebook[-1]
    assert "<progress value=" in first["text/html"]
    assert "<progress" not in last["text/html"]
    assert last["text/html"].endswith(", done</div>")
    assert "gap 0." in last["text/plain"]
    assert "best" in last["text/html"]


def test_what_a_notebook_shows_is_escaped(notebook):
    with Watch("<b>", Cell()) as watch:
        watch.callback(Progress("<script>", 1, 5, True))
    assert "<script>" not in "".join(page["text/html"] for page in notebook)


def test_a_real_kernel_displays_and_renews():
    client = pytest.importorskip("jupyter_client")
    pytest.importorskip("ipykernel")
    manager = client.KernelManager()
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    manager.kernel_spec.argv = command
    manager.start_kernel()
    kernel = manager.client()
    kernel.start_channels()
    try:
        kernel.wait_for_ready(timeout=60)
        code = "import orsched, orsched.solving.progress\norsched.solving.progress.TICK_S = 0\n"
        code += "_ = orsched.solve(orsched.load('pang-100x20'), progress=True, iterations=4)"
        messages = []
        kernel.execute_interactive(code, timeout=60, output_hook=messages.append)
    finally:
        kernel.stop_channels()
        manager.shutdown_kernel(now=True)
    kinds = [message["msg_type"] for message in messages]
    assert kinds.count("display_data") == 1, messages
    assert kinds.count("update_display_data") >= 2
    assert "stream" not in kinds
    shown = [message["content"] for message in messages if "display" in message["msg_type"]]
    assert len({each["transient"]["display_id"] for each in shown}) == 1
    assert "best" in shown[-1]["data"]["text/html"]


def _until(condition):
    end = monotonic() + 120
    while not condition():
        assert monotonic() < end
        sleep(0.005)


def test_lines_of_a_long_run_come_ever_less_often():
    lines, state = Lines(lambda text: None), State("search")
    lines.show(state)
    assert lines.interval_s == 2
    state.begin -= 600
    lines.show(state)
    assert 60 <= lines.interval_s < 70


def test_a_schedule_below_the_bound_of_plain_ones_is_told_without_that_bound():
    # A prompt of 50 beside a round takes the 9 ms of its weights, one after the other 18 ms.
    cost = orsched.costs.RooflineCost.from_s(
        fixed=1e-3, weights=8e-3, token=1e-4, context=0, attended=0
    )
    instance = orsched.Instance(
        orsched.Requests([50] * 40, list(range(2, 42))), orsched.Worker(10, cost)
    )
    seen = []
    found = orsched.solve(instance, "vllm@clairvoyant+order=longest", callback=seen.append)
    plain = orsched.solve(instance, "hybrid", iterations=1)
    assert found.makespan_ns < plain.bound_ns
    assert [(each.bound_ns, each.gap) for each in seen] == [(None, None)]
    assert found.gap >= 0
