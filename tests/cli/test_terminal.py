"""What a terminal, an encoding or a spreadsheet gets; a time limit ends every phase."""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

import orsched
from orsched.cli.ending import ended_by
from orsched.cli.output import printable, table
from orsched.common.errors import TimeLimitError
from orsched.data.requests import Requests
from orsched.files import read_requests_csv, save_instance, save_schedule, write_requests_csv
from orsched.instances import catalog
from orsched.views.records import write_records

EVIL = "\x1b]0;owned\x07\x1b[2Jname\norsched: is valid\x9b1m\u202e"


def with_ids(ids, **changes):
    instance = orsched.load("two-by-two")
    return instance.replace(requests=instance.requests.replace(ids=ids), **changes)


def python(*arguments, **environment):
    path = os.pathsep.join(sys.path)
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": path, **environment},
        timeout=120,
    )


def test_a_text_is_printed_on_one_line_without_control_characters():
    assert printable("Müller 日本 🙂") == "Müller 日本 🙂"
    assert printable("a\x1b[1m\r\n\t\x7f") == "a\\x1b[1m\\r\\n\\t\\x7f"
    assert printable("\x9b\u202e\ud800") == "\\x9b\\u202e\\ud800"
    assert table([{"a\x1b": "b\nc"}]).splitlines()[0] == "a\\x1b"


@pytest.mark.parametrize("line", [
    "solve evil.json --method fcfs",
    "bound evil.json",
    "compare evil.json --methods fcfs,offline",
    "simulate evil.json --policy vllm",
    "run evil.json --worker virtual --policy fcfs",
    "-v solve evil.json --method fcfs --format csv -o new.json",
    "check evil.json plan.json",
    "check evil.json broken.json",
    "solve broken.json",
])  # fmt: skip
def test_names_from_files_reach_no_terminal(call, line):
    instance = with_ids([f"{EVIL}{row}" for row in range(4)], name=EVIL)
    save_instance(instance, "evil.json")
    save_schedule(orsched.solve(instance, "fcfs").schedule, "plan.json")
    document = json.loads(Path("plan.json").read_text())
    document["work"]["client"][0] = 1
    document["method"] = EVIL
    Path("broken.json").write_text(json.dumps(document))
    code, *shown = call(line)
    assert code in (0, 1, 2)
    shown = "".join(shown)
    assert shown
    lines = shown.split("\n")
    assert all(line.isprintable() for line in lines), [x for x in lines if not x.isprintable()]
    assert "orsched: is valid\\x9b" not in [line[:19] for line in lines]


def test_what_an_encoding_lacks_is_escaped():
    study = 'instances = [{name = "two-by-two", label = "日本"}, "two-by-two"]\npolicies = ["fcfs"]'
    Path("s.toml").write_text(study, "utf-8")
    done = python(*["-m", "orsched", "study", "s.toml", "--jobs", "1"], PYTHONIOENCODING="latin-1")
    assert done.returncode == 0, done.stderr
    done = python("-m", "orsched", "bound", "日本.json", PYTHONIOENCODING="latin-1")
    assert (done.returncode, b"\\u65e5\\u672c.json" in done.stderr) == (2, True)


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_json_on_a_narrow_output_is_json(encoding):
    code = (
        "import sys; from orsched.cli.output import escape_what_cannot_be_encoded as escape\n"
        "import json; escape(); sys.stdout.write(json.dumps('é日🙂', ensure_ascii=False))"
    )
    done = python("-c", code, PYTHONIOENCODING=encoding)
    assert done.returncode == 0
    assert json.loads(done.stdout.decode(encoding)) == "é日🙂"


@pytest.mark.parametrize("text", ["=HYPERLINK(1)", "+1+cmd", "-1+2", "@SUM(1)", "\t=1"])
def test_formulas_in_csv_are_written_as_they_are_and_named(text, caplog):
    requests = Requests([1, 2], [1, 1], ids=["a", text])
    instance = with_ids([text, "r1", "r2", "r3"])
    schedule = orsched.solve(instance, "fcfs").schedule
    with caplog.at_level(logging.WARNING):
        write_requests_csv(requests, "x.csv")
        write_records(instance, schedule, "records.csv")
    assert "x.csv: a spreadsheet would run 1 text as a formula" in caplog.text
    assert "records.csv: a spreadsheet would run" in caplog.text
    assert read_requests_csv("x.csv") == requests


def test_numbers_and_plain_names_are_no_formulas(caplog):
    with caplog.at_level(logging.WARNING):
        write_requests_csv(Requests([1, 2], [1, 1], ids=["-5", "a=b"]), "x.csv")
    assert caplog.text == ""


def test_a_package_that_cannot_be_loaded_is_not_said_to_be_missing(folder):
    (folder / "pyarrow.py").write_text(
        "raise ImportError('libarrow.so: failed to map segment: Cannot allocate memory')"
    )
    code = (
        "import sys; sys.path.insert(0, '.')\nfrom orsched.cli.commands import run\n"
        "sys.exit(run(['solve', 'two-by-two', '-o', 'x.parquet']))"
    )
    done = python("-c", code)
    assert done.returncode == 71
    assert b"cannot be loaded: libarrow.so: failed to map" in done.stderr
    assert b"pip install" not in done.stderr


pytestmark = pytest.mark.skipif(
    not hasattr(signal, "setitimer"), reason="this system has no interval timers"
)


def _forever(*args, **kwargs):
    while True:
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def _no_grace(monkeypatch):
    """The alarm rings soon: what it ends here would go on for ever, on any machine."""
    monkeypatch.setattr("orsched.common.stop.FIRST_S", 0.0)
    monkeypatch.setattr("orsched.solving.methods.FIRST_S", 0.0)


@pytest.mark.parametrize(("phase", "line"), [
    ("orsched.files.locate.load", "solve two-by-two"),
    ("orsched.files.locate.load", "compare two-by-two"),
    ("orsched.solving.checked_run.bound_once", "solve two-by-two"),
    ("orsched.solving.checked_run.bound_once", "compare two-by-two"),
    ("orsched.instances.catalog.generate", "compare gsm8k --seeds 0:2"),
])  # fmt: skip
def test_every_phase_is_ended(monkeypatch, call, phase, line):
    monkeypatch.setattr(phase, _forever)
    code, out, err = call(f"{line} --time-limit 0.05")
    assert (code, out) == (3, "")
    assert "the time limit ended before there was a checked schedule" in err


def test_it_rings_again_after_a_method_kept_its_incumbent():
    rings = []
    with ended_by(0.01):
        for _ in range(2):
            with pytest.raises(TimeLimitError):
                _forever()
            rings.append(True)
    assert len(rings) == 2


def test_nothing_rings_afterwards_or_without_a_limit():
    before = signal.getsignal(signal.SIGALRM)
    for limit in (0.01, None, float("inf"), 1e300):
        with ended_by(limit):
            pass
        assert signal.getsignal(signal.SIGALRM) == before
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_other_threads_go_without():
    ended = []

    def work():
        with ended_by(0.001):
            time.sleep(0.2)
        ended.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert ended == [True]


def test_compare_says_which_method_had_no_time(call, monkeypatch):
    monkeypatch.setattr("orsched.common.stop.FIRST_S", 1000.0)  # no alarm: each looks at the clock
    code, _, err = call("compare gsm8k-llama65b --methods fcfs,hybrid --time-limit 1e-6")
    assert code == 3
    assert err.startswith("orsched: fcfs: the time limit ended")


TOO_LATE = "the time limit ended before there was a schedule"


@pytest.fixture
def slow_windows(monkeypatch):
    """The method ``windows`` has no schedule when its time ends, and no policy had one."""
    late = Mock(side_effect=TimeLimitError(TOO_LATE))
    monkeypatch.setattr("orsched.models.windows.method.WindowsMethod.__call__", late)
    monkeypatch.setattr("orsched.solving.checked_run._first", lambda instance, run: None)


def test_finished_methods_are_printed_beside_one_that_timed_out(slow_windows, call):
    command = "compare two-by-two --methods fcfs,windows,online --format json --time-limit 30"
    code, out, err = call(f"{command} --report r.html")
    assert code == 3
    rows = json.loads(out)
    assert [row["method"] for row in rows] == ["fcfs", "windows", "online"]
    assert [row["error"] for row in rows] == [None, TOO_LATE, None]
    assert rows[1]["makespan_s"] is None
    assert f"orsched: windows: {TOO_LATE}\n" in err
    assert Path("r.html").is_file()


def test_a_library_comparison_names_what_timed_out(slow_windows):
    found = orsched.compare(orsched.load("two-by-two"), ("windows", "fcfs"))
    assert [result.schedule.method for result in found] == ["fcfs"]
    assert found.timed_out == (f"windows: {TOO_LATE}",)
    with pytest.raises(TimeLimitError, match="windows: the time limit"):
        orsched.compare(orsched.load("two-by-two"), ("windows",))


def test_seeds_before_one_that_timed_out_are_printed(monkeypatch, call):
    generate = catalog.generate

    def slow_from_2_on(name, *, seed, **arguments):
        if seed == 2:
            raise TimeLimitError("the time limit ended before there was a checked schedule")
        return generate(name, seed=seed, **arguments)

    monkeypatch.setattr(catalog, "generate", slow_from_2_on)
    code, out, err = call(
        "compare gsm8k --seeds 0:4 --methods fcfs --format json --set requests=20 "
        "--set clients=4 --each --time-limit 1000"
    )
    assert code == 3
    assert [row["seed"] for row in json.loads(out)] == [0, 1]
    assert "orsched: seed 2: the time limit ended" in err
