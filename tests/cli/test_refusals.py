"""What the command line refuses before it works: lost files, doubled and idle options."""

from __future__ import annotations

import csv
import errno
import io
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from orsched.cli.output import print_rows
from orsched.common.errors import InputError, MissingDependencyError, ResourceError
from orsched.costs import AffineCost
from orsched.files import load_instance, save_cost

FEW = ("--set", "requests=3", "--set", "clients=2")


@pytest.fixture
def call(call, tmp_path, monkeypatch):
    """Run the command line in an empty folder; return (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    return call


def test_an_input_is_never_overwritten(call, tmp_path):
    call("convert", "two-by-two", "i.json")
    call("solve", "i.json", "--method", "fcfs", "-o", "s.json")
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    for command in (
        ("solve", "i.json", "--method", "fcfs", "-o", "i.json"),
        ("solve", "i.json", "--method", "fcfs", "-o", "../" + tmp_path.name + "/i.json"),
        ("solve", "i.json", "--method", "fcfs", "--trace", "i.json"),
        ("simulate", "i.json", "-o", "i.json"),
        ("report", "i.json", "s.json", "--trace", "s.json"),
        ("convert", "i.json", "i.json"),
    ):
        code, out, err = call(*command)
        assert (code, out) == (2, "")
        assert "would be overwritten" in err
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_two_outputs_have_two_names(call, tmp_path):
    code, _, err = call("solve", "two-by-two", "-o", "x.json", "--trace", "./x.json")
    assert code == 2
    assert "--output writes it, too" in err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("-o", "x.txt"),
        ("--report", "x.pdf"),
        ("--gantt", "x.bmp"),
        ("--usage", "x.html"),
        ("--trace", "x.csv"),
        ("--records", "x"),
        ("-o", "nowhere/x.json"),
    ],
)
def test_outputs_are_looked_at_before_the_work(call, monkeypatch, option, name):
    def fail(*args, **kwargs):
        raise AssertionError("the work began")

    monkeypatch.setattr("orsched.solving.solver.solve", fail)
    code, _, err = call("solve", "two-by-two", option, name)
    assert code == 2
    assert name in err
    assert "name a file that ends in" in err or "no such folder" in err


def test_a_chart_for_each_of_several_similar_methods(call, tmp_path):
    methods = "fcfs,fcfs,hybrid,hybrid+gate_factor=0.5"
    code, _, _ = call(
        "compare", "two-by-two", "--methods", methods, "--gantt", "g", "--iterations", 1
    )
    assert code == 0
    assert sorted(p.name for p in (tmp_path / "g").iterdir()) == [
        "fcfs-none-2.png",
        "fcfs-none.png",
        "hybrid+gate_factor=0.5-clairvoyant.png",
        "hybrid-clairvoyant.png",
        "latency.png",
        "timeline.png",
    ]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("solve", "two-by-two", "--method", "fcfs@"), "names no information"),
        (
            ("solve", "pang-100x20", "--method", "hybrid@predicted", "--information", "predicted"),
            "--information",
        ),
        (
            ("solve", "two-by-two", "--method", "online+steal=false", "--param", "steal=true"),
            "--param steal",
        ),
        (("solve", "two-by-two", "--param", "x=" + "[" * 100_000), "no parameter 'x'"),
        (("convert", "two-by-two", "x.json", "--clients", 3), "--clients"),
        (("convert", "two-by-two", "x.json", "--spread"), "--spread"),
        (("generate", "gsm8k", "--set", "seed=3"), "--seed"),
        (("compare", "gsm8k", "--seeds", "0:2", "--set", "seed=3"), "--seeds"),
        (("compare", "gsm8k", "--seeds", "0:" + "9" * 30), "at most"),
        (("compare", "gsm8k", "--seeds", "0:2", "--time-limit", "nan"), "--time-limit"),
        (("generate", "gsm8k", "--set", "name=3"), "name"),
        (("generate", "uniform", *FEW, "--set", "prompt_tokens=3"), "prompt_tokens"),
        (("generate", "uniform", *FEW, "--set", "rate=1e-12"), "rate"),
    ],
)
def test_doubled_idle_and_wrong_options_are_named(call, tmp_path, arguments, named):
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert named in err
    assert not list(tmp_path.iterdir())


def test_a_foreign_trace_becomes_a_csv_of_requests(call, tmp_path):
    source = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
    (tmp_path / "azure.csv").write_text(source)
    assert call("convert", "azure.csv", "r.csv", "--clients", 2)[0] == 0
    assert call("convert", "r.csv", "i.json", "--clients", 2)[0] == 0
    requests = load_instance(tmp_path / "i.json").requests
    assert (requests.prompt_tokens.tolist(), requests.output_tokens.tolist()) == ([374], [44])


def test_a_generator_takes_a_name(call, tmp_path):
    assert call("generate", "gsm8k", "--set", "name=mine", "-o", "m.json")[0] == 0
    assert load_instance(tmp_path / "m.json").name == "mine"


def test_no_violations_are_a_csv_table_without_rows(call):
    call("solve", "two-by-two", "--method", "fcfs", "-o", "s.json")
    code, out, _ = call("check", "two-by-two", "s.json", "--format", "csv")
    assert code == 0
    assert list(csv.DictReader(io.StringIO(out))) == []
    assert out.startswith("kind,message,")
    assert json.loads(call("check", "two-by-two", "s.json", "--format", "json")[1]) == []


def test_csv_columns_can_be_given(capsys):
    print_rows([{"a": 1}], "csv", ["a", "b"])
    assert capsys.readouterr().out == "a,b\n1,\n"


def test_a_memory_error_has_words(call, monkeypatch):
    def fail(*args, **kwargs):
        raise MemoryError

    monkeypatch.setattr("orsched.files.locate.load", fail)
    code, _, err = call("info", "two-by-two")
    assert (code, err) == (71, "orsched: error: not enough memory\n")


def test_a_reader_that_goes_away_is_no_error():
    command = [sys.executable, "-m", "orsched", "generate", "gsm8k", "--set", "requests=100000"]
    done = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    done.stdout.read(10)
    done.stdout.close()
    assert (done.wait(), done.stderr.read()) == (0, b"")
    done.stderr.close()


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (71, OSError(errno.ENOSPC, "No space left on device")),
        (71, OSError(errno.EAGAIN, "fork")),
        (71, RuntimeError("can't start new thread")),
        (71, ImportError("cannot allocate memory in static TLS block")),
        (71, ResourceError("its process died 2 times (signal 9)")),
        (2, FileNotFoundError(errno.ENOENT, "No such file or directory")),
        (2, PermissionError(errno.EACCES, "Permission denied")),
        (2, OSError(errno.ENAMETOOLONG, "File name too long")),
        (2, MissingDependencyError("pip install 'orsched[fast]'")),
        (2, InputError("is wrong")),
        (70, RuntimeError("no such thing")),
    ],
)
def test_what_fails_has_the_code_of_its_cause(call, monkeypatch, code, error):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr("orsched.files.locate.load", fail)
    assert call("info", "two-by-two")[0] == code


def shell(line):
    """Run a line of the shell in which $ORSCHED is the command line."""
    command = f"{shlex.quote(sys.executable)} -m orsched"
    return subprocess.run(["sh", "-c", line.replace("$ORSCHED", command)], capture_output=True)


def test_closed_standard_output_is_an_error():
    done = shell("$ORSCHED compare two-by-two --methods fcfs >&-")
    assert (done.returncode, done.stdout) == (71, b"")
    assert done.stderr.startswith(b"orsched: error: standard output is closed")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is full")
def test_a_full_disk_is_no_bad_input(tmp_path):
    full = tmp_path / "full.json"
    full.symlink_to("/dev/full")
    for line in ("$ORSCHED info > /dev/full", f"$ORSCHED convert two-by-two '{full}'"):
        done = shell(line)
        assert done.returncode == 71, (line, done.stderr)
        assert b"No space left on device" in done.stderr
        assert b"Traceback" not in done.stderr
        assert b"Exception ignored" not in done.stderr


@pytest.mark.parametrize("suffix", [".json", ".parquet"])
def test_the_other_kind_of_file_is_named(call, suffix):
    call("convert", "two-by-two", f"i{suffix}")
    call("solve", "two-by-two", "--method", "fcfs", "-o", f"s{suffix}")
    code, _, err = call("solve", f"s{suffix}")
    assert (code, "is 'orsched/schedule', not 'orsched/instance'" in err) == (2, True)
    code, _, err = call("check", "two-by-two", f"i{suffix}")
    assert (code, "is 'orsched/instance', not 'orsched/schedule'" in err) == (2, True)


def test_a_cost_model_is_no_target(call, tmp_path):
    (tmp_path / "r.csv").write_text("prompt_tokens,output_tokens\n5,6\n")
    save_cost(AffineCost(), tmp_path / "c.json")
    before = (tmp_path / "c.json").read_bytes()
    code, _, err = call("convert", "r.csv", "c.json", "--clients", 2, "--cost", "c.json")
    assert code == 2
    assert "would be overwritten" in err
    assert (tmp_path / "c.json").read_bytes() == before


def test_links_in_circles_are_no_file(call, tmp_path):
    (tmp_path / "round").symlink_to("round")
    code, _, err = call("solve", "round", "--method", "fcfs")
    assert code == 2
    assert "round" in err
