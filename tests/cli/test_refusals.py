"""What is refused before the work: lost files, idle options, missing packages, limits."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import orsched
from orsched.checker import check
from orsched.cli.commands import run
from orsched.cli.output import print_rows
from orsched.common.errors import InputError, MissingDependencyError, ResourceError
from orsched.costs import AffineCost
from orsched.data.memory import BlockMemory, PrefixCache
from orsched.files import load_instance, save_cost
from orsched.files.native import save_instance
from orsched.instances.synthetic import gsm8k
from tests.blocking import run_without
from tests.in_order import in_order

FEW = ("--set", "requests=3", "--set", "clients=2")


@pytest.fixture
def call(call, tmp_path, monkeypatch):
    """Run the command line in an empty folder; return (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    return call


def test_an_input_is_never_overwritten(call, refused, tmp_path):
    call("convert two-by-two i.json")
    call("solve i.json --method fcfs -o s.json")
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    for command in (
        ("solve", "i.json", "--method", "fcfs", "-o", "i.json"),
        ("solve", "i.json", "--method", "fcfs", "-o", "../" + tmp_path.name + "/i.json"),
        ("solve", "i.json", "--method", "fcfs", "--trace", "i.json"),
        ("simulate", "i.json", "-o", "i.json"),
        ("report", "i.json", "s.json", "--trace", "s.json"),
        ("convert", "i.json", "i.json"),
    ):
        refused("would be overwritten", *command)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_two_outputs_have_two_names(refused, tmp_path):
    refused("--output writes it, too", "solve two-by-two -o x.json --trace ./x.json")
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
def test_outputs_are_looked_at_before_the_work(refused, monkeypatch, option, name):
    def fail(*args, **kwargs):
        raise AssertionError("the work began")

    monkeypatch.setattr("orsched.solving.solver.solve", fail)
    err = refused(name, "solve two-by-two", option, name)
    assert "name a file that ends in" in err or "no such folder" in err


def test_a_chart_for_each_of_several_similar_methods(call, tmp_path):
    methods = "fcfs,fcfs,hybrid,hybrid+gate_factor=0.5"
    code, _, _ = call("compare two-by-two --methods", methods, "--gantt", "g", "--iterations", 1)
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
def test_doubled_idle_and_wrong_options_are_named(refused, tmp_path, arguments, named):
    refused(named, *arguments)
    assert not list(tmp_path.iterdir())


def test_a_foreign_trace_becomes_a_csv_of_requests(call, tmp_path):
    source = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
    (tmp_path / "azure.csv").write_text(source)
    assert call("convert azure.csv r.csv --clients 2")[0] == 0
    assert call("convert r.csv i.json --clients 2")[0] == 0
    requests = load_instance(tmp_path / "i.json").requests
    assert (requests.prompt_tokens.tolist(), requests.output_tokens.tolist()) == ([374], [44])


def test_a_generator_takes_a_name(call, tmp_path):
    assert call("generate gsm8k --set name=mine -o m.json")[0] == 0
    assert load_instance(tmp_path / "m.json").name == "mine"


def test_no_violations_are_a_csv_table_without_rows(call):
    call("solve two-by-two --method fcfs -o s.json")
    code, out, _ = call("check two-by-two s.json --format csv")
    assert code == 0
    assert list(csv.DictReader(io.StringIO(out))) == []
    assert out.startswith("kind,message,")
    assert json.loads(call("check two-by-two s.json --format json")[1]) == []


def test_csv_columns_can_be_given(capsys):
    print_rows([{"a": 1}], "csv", ["a", "b"])
    assert capsys.readouterr().out == "a,b\n1,\n"


def test_a_memory_error_has_words(call, monkeypatch):
    def fail(*args, **kwargs):
        raise MemoryError

    monkeypatch.setattr("orsched.files.locate.load", fail)
    code, _, err = call("info two-by-two")
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
    assert call("info two-by-two")[0] == code


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
def test_the_other_kind_of_file_is_named(call, refused, suffix):
    call("convert two-by-two", f"i{suffix}")
    call("solve two-by-two --method fcfs -o", f"s{suffix}")
    refused("is 'orsched/schedule', not 'orsched/instance'", "solve", f"s{suffix}")
    refused("is 'orsched/instance', not 'orsched/schedule'", "check two-by-two", f"i{suffix}")


def test_a_cost_model_is_no_target(refused, tmp_path):
    (tmp_path / "r.csv").write_text("prompt_tokens,output_tokens\n5,6\n")
    save_cost(AffineCost(), tmp_path / "c.json")
    before = (tmp_path / "c.json").read_bytes()
    refused("would be overwritten", "convert r.csv c.json --clients 2 --cost c.json")
    assert (tmp_path / "c.json").read_bytes() == before


def test_links_in_circles_are_no_file(refused, tmp_path):
    (tmp_path / "round").symlink_to("round")
    refused("round", "solve round --method fcfs")


PROGRAM = """
import sys
import orsched.solving.solver
WORK = {work}
if not WORK:
    orsched.solving.solver.solve = None  # is not reached
from orsched.cli import main
main({words})
"""


def full(*values):
    return pytest.param(*values, marks=pytest.mark.full)


@pytest.mark.parametrize(
    ("package", "words", "remedy"),
    [
        ("matplotlib", "simulate two-by-two --gantt g.png", "pip install matplotlib"),
        ("plotly", "compare two-by-two --report r.html", "pip install plotly"),
        ("torch", "run two-by-two --model tiny", "pip install 'orsched[runner]'"),
        ("ray", "study s.toml --cluster ray", "pip install 'orsched[ray]'"),
        ("sklearn", "predict train none.jsonl -o m.json", "pip install 'orsched[predict]'"),
        full("matplotlib", "compare two-by-two --gantt folder", "pip install matplotlib"),
        full("matplotlib", "solve two-by-two --usage u.png", "pip install matplotlib"),
        full("plotly", "simulate two-by-two --report r.html", "pip install plotly"),
        full("pyarrow", "simulate two-by-two -o s.parquet", "pip install 'orsched[parquet]'"),
        full("torch", "calibrate --model tiny", "pip install 'orsched[runner]'"),
    ],
)
def test_what_needs_it_is_refused_in_one_line(tmp_path, package, words, remedy):
    (tmp_path / "s.toml").write_text('instances = ["two-by-two"]\npolicies = ["fcfs"]\n')
    program = PROGRAM.format(work=False, words=words.split())
    done = run_without([package], program, tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    last = done.stderr.splitlines()[-1]
    assert last.startswith("orsched: error: ")
    assert remedy in last
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("method", "objective", "faster"),
    [("windows", "makespan", "about 100"), ("latency_search", "jct_mean", "10 to 70")],
)
def test_a_search_without_numba_runs_and_says_what_makes_it_faster(
    tmp_path, method, objective, faster
):
    save_instance(gsm8k(0, requests=8, clients=3), tmp_path / "small.json")
    words = ["solve", "small.json", "--method", method, "--iterations", "1"]
    words += ["--objective", objective]
    done = run_without(["numba"], PROGRAM.format(work=True, words=words), tmp_path)
    assert done.returncode == 0
    (line,) = [line for line in done.stderr.splitlines() if "numba" in line]
    told = f"{method} is {faster} times faster with numba: pip install 'orsched[fast]'"
    assert line == f"orsched: {told}"


COMMANDS = [
    ["solve", "two-by-two", "--method", "fcfs", "-o", "x.parquet"],
    ["simulate", "two-by-two", "--policy", "fcfs", "--records", "x.parquet"],
    ["convert", "two-by-two", "x.parquet"],
    ["generate", "uniform", "--set", "requests=3", "--set", "clients=1", "-o", "x.parquet"],
    ["run", "two-by-two", "--worker", "virtual", "--policy", "fcfs", "-o", "x.parquet"],
]


@pytest.fixture
def bare(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    return tmp_path


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: arguments[0])
def test_a_parquet_file_is_refused_before_the_work(bare, arguments, refused, monkeypatch):
    monkeypatch.setattr("orsched.files.locate.load", lambda name: 1 / 0)
    monkeypatch.setattr("orsched.instances.catalog.generate", lambda *a, **k: 1 / 0)
    refused("pip install 'orsched[parquet]'", *arguments)
    assert list(bare.iterdir()) == []


def test_a_study_has_its_table_as_csv_and_says_so(bare, capsys, caplog):
    (bare / "s.toml").write_text('instances = ["two-by-two"]\npolicies = ["fcfs"]\n')
    assert run(["study", "s.toml", "--jobs", "1"]) == 0
    assert (bare / "s-study" / "table.csv").exists()
    assert not (bare / "s-study" / "table.parquet").exists()
    assert "table.parquet is not: it needs pip install 'orsched[parquet]'" in caplog.text


STUDY = """
instances = ["pang-100x20"]
policies = ["fcfs"]
seeds = "0:6"
"""


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.setenv("ORSCHED_MAX_CELLS", "5")
    path = tmp_path / "s.toml"
    path.write_text(STUDY)
    return str(path)


def test_a_flag_raises_the_limit_of_cells_for_one_command(study, refused):
    refused("say orsched --max-cells 6 COMMAND", "study", study, "--list")
    assert run(["--max-cells", "6", "study", study, "--list"]) == 0
    assert os.environ["ORSCHED_MAX_CELLS"] == "5"
    assert run(["study", study, "--list"]) == 2


def test_a_flag_raises_the_limit_of_rows(tmp_path, refused, monkeypatch):
    pytest.importorskip("pyarrow")
    monkeypatch.delenv("ORSCHED_MAX_ROWS", raising=False)
    path = tmp_path / "some.parquet"
    orsched.save_instance(orsched.load("pang-100x20"), path)
    refused("say orsched --max-rows 100 COMMAND", "--max-rows 99 info", str(path))
    assert run(["--max-rows", "100", "info", str(path)]) == 0
    assert "ORSCHED_MAX_ROWS" not in os.environ


@pytest.mark.parametrize("flag", ["--max-rows", "--max-cells", "--max-blocks", "--max-steps"])
@pytest.mark.parametrize("value", ["0", "-1", "many", "1e6"])
def test_limits_are_whole_numbers_above_zero(flag, value, refused):
    refused(flag, flag, value, "info")


def test_a_flag_raises_the_limit_of_blocks(tmp_path, refused, monkeypatch):
    path = tmp_path / "case.json"
    memory = BlockMemory(100, 1, "paged", PrefixCache("lru"))
    worker = orsched.Worker(2, memory=memory)
    orsched.save_instance(orsched.Instance(orsched.Requests([30], [20]), worker), path)
    monkeypatch.setenv("ORSCHED_MAX_BLOCKS", "104")
    said = refused(
        "105 blocks of prefix caches are more than the 104", "solve", str(path), "--method", "vllm"
    )
    assert str(path) in said
    assert run(["--max-blocks", "105", "solve", str(path), "--method", "vllm"]) == 0


class Late(AffineCost):
    """A cost model in whose calls the alarm of a time limit rings."""

    armed = False

    def prefill_ns(self, prompts):
        if Late.armed:
            raise orsched.TimeLimitError("over")
        return super().prefill_ns(prompts)


def test_a_deadline_that_rings_in_the_checker_is_no_violation(monkeypatch):
    worker = orsched.Worker(2, in_order(Late, 25, 1, 29, 1))
    instance = orsched.Instance(orsched.Requests([3, 4], [5, 6]), worker, first_token="decode")
    schedule = orsched.solve(instance, "fcfs").schedule
    assert check(instance, schedule) == []
    monkeypatch.setattr(Late, "armed", True)
    with pytest.raises(orsched.TimeLimitError):
        check(instance, schedule)


def test_a_deadline_that_rings_in_a_certificate_is_no_violation(monkeypatch):
    from orsched.checker import certificates

    def rings(*_):
        raise orsched.TimeLimitError("over")

    instance = orsched.load("pang-100x20")
    document = orsched.bound(instance).to_dict()
    assert certificates.certificate_violations(instance, document) == []
    monkeypatch.setattr(certificates, "_differences", rings)
    with pytest.raises(orsched.TimeLimitError):
        certificates.certificate_violations(instance.replace(), document)
