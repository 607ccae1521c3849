"""What a terminal, an encoding or a spreadsheet gets; a time limit ends every phase."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import orsched
from orsched.cli.commands import run
from orsched.cli.ending import ended_by
from orsched.cli.output import printable, table
from orsched.common.errors import TimeLimitError
from orsched.data.requests import Requests
from orsched.files import load_instance, read_requests_csv, save_instance, write_requests_csv
from orsched.instances import catalog

EVIL = "\x1b]0;owned\x07\x1b[2Jname\norsched: is valid\x9b1m\u202e"


@pytest.fixture
def evil(tmp_path):
    """Write an instance with names that no terminal should get."""
    instance = orsched.load("two-by-two")
    ids = [f"{EVIL}{row}" for row in range(len(instance))]
    save_instance(
        instance.replace(name=EVIL, requests=instance.requests.replace(ids=ids)),
        tmp_path / "evil.json",
    )
    return tmp_path / "evil.json"


def _orsched(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "orsched", *map(str, arguments)],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        timeout=120,
    )


def test_a_text_is_printed_on_one_line_without_control_characters():
    assert printable("Müller 日本 🙂") == "Müller 日本 🙂"
    assert printable("a\x1b[1m\r\n\t\x7f") == "a\\x1b[1m\\r\\n\\t\\x7f"
    assert printable("\x9b\u202e\ud800") == "\\x9b\\u202e\\ud800"
    assert table([{"a\x1b": "b\nc"}]).splitlines()[0] == "a\\x1b"


@pytest.mark.parametrize(
    "arguments",
    [
        ["solve", "{}", "--method", "fcfs"],
        ["bound", "{}"],
        ["compare", "{}", "--methods", "fcfs,offline"],
        ["simulate", "{}", "--policy", "vllm"],
        ["run", "{}", "--worker", "virtual", "--policy", "fcfs"],
        ["-v", "solve", "{}", "--method", "fcfs", "--format", "csv", "-o", "{}.schedule.json"],
        ["check", "{}", "{}.schedule.json"],
        ["check", "{}", "{}.broken.json"],
        ["solve", "{}.broken.json"],
    ],
    ids=" ".join,
)
def test_names_from_files_reach_no_terminal(evil, arguments, capsys):
    schedule = orsched.solve(load_instance(evil), "fcfs").schedule
    orsched.save_schedule(schedule, f"{evil}.schedule.json")
    document = json.loads(Path(f"{evil}.schedule.json").read_text())
    document["work"]["client"][0] = 1
    document["method"] = EVIL
    Path(f"{evil}.broken.json").write_text(json.dumps(document))
    assert run([argument.format(evil) for argument in arguments]) in (0, 1, 2)
    shown = "".join(capsys.readouterr())
    assert shown
    lines = shown.split("\n")
    assert all(line.isprintable() for line in lines), [x for x in lines if not x.isprintable()]
    assert "orsched: is valid\\x9b" not in [line[:19] for line in lines]


def test_what_an_encoding_lacks_is_escaped(tmp_path):
    encoding = "latin-1"
    study = 'instances = [{name = "two-by-two", label = "日本"}, "two-by-two"]\npolicies = ["fcfs"]'
    (tmp_path / "s.toml").write_text(study, "utf-8")
    done = _orsched("study", tmp_path / "s.toml", "--jobs", 1, PYTHONIOENCODING=encoding)
    assert done.returncode == 0, done.stderr
    done = _orsched("bound", tmp_path / "日本.json", PYTHONIOENCODING=encoding)
    assert (done.returncode, b"\\u65e5\\u672c.json" in done.stderr) == (2, True)


def test_json_on_a_narrow_output_is_json():
    code = (
        "import sys; from orsched.cli.output import escape_what_cannot_be_encoded as escape\n"
        "import json; escape(); sys.stdout.write(json.dumps('é日🙂', ensure_ascii=False))"
    )
    for encoding in ("latin-1", "ascii"):
        shown = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            check=True,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(sys.path),
                "PYTHONIOENCODING": encoding,
            },
        ).stdout
        assert json.loads(shown.decode(encoding)) == "é日🙂"


@pytest.mark.parametrize("text", ["=HYPERLINK(1)", "+1+cmd", "-1+2", "@SUM(1)", "\t=1"])
def test_formulas_in_csv_are_written_as_they_are_and_named(tmp_path, text, caplog):
    requests = Requests([1, 2], [1, 1], ids=["a", text])
    with caplog.at_level(logging.WARNING):
        write_requests_csv(requests, tmp_path / "x.csv")
    assert "a spreadsheet would run 1 text as a formula" in caplog.text
    assert "x.csv" in caplog.text
    assert read_requests_csv(tmp_path / "x.csv") == requests
    caplog.clear()
    instance = orsched.load("two-by-two")
    names = [text] + [f"r{row}" for row in range(1, len(instance))]
    instance = instance.replace(requests=instance.requests.replace(ids=names))
    schedule = orsched.solve(instance, "fcfs").schedule
    from orsched.views.records import write_records

    with caplog.at_level(logging.WARNING):
        write_records(instance, schedule, tmp_path / "records.csv")
    assert "records.csv: a spreadsheet would run" in caplog.text


def test_numbers_and_plain_names_are_no_formulas(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        write_requests_csv(Requests([1, 2], [1, 1], ids=["-5", "a=b"]), tmp_path / "x.csv")
    assert caplog.text == ""


def test_a_package_that_cannot_be_loaded_is_not_said_to_be_missing(tmp_path, capsys):
    (tmp_path / "pyarrow.py").write_text(
        "raise ImportError('libarrow.so: failed to map segment: Cannot allocate memory')"
    )
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from orsched.cli.commands import run\n"
        "sys.exit(run(['solve', 'two-by-two', '-o', sys.argv[1] + '/x.parquet']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 71
    assert "cannot be loaded: libarrow.so: failed to map" in done.stderr
    assert "pip install" not in done.stderr


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


@pytest.mark.parametrize(
    "phase", ["orsched.files.locate.load", "orsched.solving.checked_run.bound"]
)
@pytest.mark.parametrize("command", ["solve", "compare"])
def test_loading_and_bounding_are_ended(monkeypatch, capsys, phase, command):
    monkeypatch.setattr(phase, _forever)
    assert run([command, "two-by-two", "--time-limit", "0.05"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert "the time limit ended before there was a checked schedule" in err


def test_generating_is_ended(monkeypatch):
    monkeypatch.setattr("orsched.instances.catalog.generate", _forever)
    assert run(["compare", "gsm8k", "--seeds", "0:2", "--time-limit", "0.05"]) == 3


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


def test_compare_says_which_method_had_no_time(capsys, monkeypatch):
    monkeypatch.setattr(
        "orsched.common.stop.FIRST_S", 1000.0
    )  # no alarm: each method looks at the clock
    arguments = ["compare", "gsm8k-llama65b", "--methods", "fcfs,hybrid", "--time-limit", "1e-6"]
    assert run(arguments) == 3
    assert capsys.readouterr().err.startswith("orsched: fcfs: the time limit ended")


@pytest.fixture
def slow_windows(monkeypatch):
    """The method ``windows`` has no schedule when its time ends, and no policy had one."""

    def too_late(self, instance, run):
        raise TimeLimitError("the time limit ended before there was a schedule")

    monkeypatch.setattr("orsched.models.windows.method.WindowsMethod.__call__", too_late)
    monkeypatch.setattr("orsched.solving.checked_run._first", lambda instance, run: None)


def test_finished_methods_are_printed_beside_one_that_timed_out(slow_windows, capsys, tmp_path):
    arguments = ["compare", "two-by-two", "--methods", "fcfs,windows,online", "--format", "json"]
    arguments += ["--time-limit", "30", "--report", str(tmp_path / "r.html")]
    assert run(arguments) == 3
    out, err = capsys.readouterr()
    rows = json.loads(out)
    assert [row["method"] for row in rows] == ["fcfs", "windows", "online"]
    assert [row["error"] for row in rows] == [
        None, "the time limit ended before there was a schedule", None,
    ]  # fmt: skip
    assert rows[1]["makespan_s"] is None
    assert "orsched: windows: the time limit ended before there was a schedule\n" in err
    assert (tmp_path / "r.html").is_file()


def test_a_library_comparison_names_what_timed_out(slow_windows):
    found = orsched.compare(orsched.load("two-by-two"), ("windows", "fcfs"))
    assert [result.schedule.method for result in found] == ["fcfs"]
    assert found.timed_out == ("windows: the time limit ended before there was a schedule",)
    with pytest.raises(TimeLimitError, match="windows: the time limit"):
        orsched.compare(orsched.load("two-by-two"), ("windows",))


def test_seeds_before_one_that_timed_out_are_printed(monkeypatch, capsys):
    generate = catalog.generate

    def slow_from_2_on(name, *, seed, **arguments):
        if seed == 2:
            raise TimeLimitError("the time limit ended before there was a checked schedule")
        return generate(name, seed=seed, **arguments)

    monkeypatch.setattr(catalog, "generate", slow_from_2_on)
    arguments = ["compare", "gsm8k", "--seeds", "0:4", "--methods", "fcfs", "--format", "json"]
    arguments += ["--set", "requests=20", "--set", "clients=4", "--each", "--time-limit", "1000"]
    assert run(arguments) == 3
    out, err = capsys.readouterr()
    assert [row["seed"] for row in json.loads(out)] == [0, 1]
    assert "orsched: seed 2: the time limit ended" in err
