"""What is refused before the work: lost files, idle options, missing packages, limits."""

import errno
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

import orsched
from orsched.checker import check
from orsched.common.errors import InputError, MissingDependencyError, ResourceError
from orsched.costs import AffineCost
from orsched.data.memory import BlockMemory, PrefixCache
from orsched.files import save_cost
from orsched.files.native import save_instance
from orsched.instances.synthetic import gsm8k
from tests.blocking import run_without
from tests.in_order import in_order

WORKERS = '[workers]\nfiles = ["plain.json", "worker.toml"]\n'


@pytest.mark.parametrize("line", [
    "solve i.json --method fcfs -o i.json",
    "solve i.json --method fcfs -o sub/../i.json",
    "solve i.json --method fcfs --trace i.json",
    "solve i.json --method windows --initial s.json -o s.json",
    "solve r.csv --clients 2 --cost c.json --method fcfs -o c.json",
    "simulate i.json -o i.json",
    "simulate i.json --config empty.json -o empty.json",
    "simulate i.json --workers worker.toml -o c.json",
    "simulate i.json --workers plain.json,worker.toml --trace plain.json",
    "simulate i.json --config w.toml -o plain.json",
    "simulate i.json --config w.toml --trace c.json",
    "report i.json s.json --trace s.json",
    "convert i.json i.json",
    "convert r.csv c.json --clients 2 --cost c.json",
])  # fmt: skip
def test_an_input_is_never_overwritten(done, refused, folder, line):
    """Nor is a file that an input names."""
    done("convert two-by-two i.json")
    done("solve i.json --method fcfs -o s.json")
    worker = orsched.load("two-by-two").worker
    save_cost(worker.cost, "c.json")
    texts = {"r.csv": "prompt_tokens,output_tokens\n5,6\n", "empty.json": "", "w.toml": WORKERS,
             "plain.json": json.dumps(worker.to_dict()),
             "worker.toml": 'clients = 2\ncost = "c.json"\n'}  # fmt: skip
    for name, text in texts.items():
        Path(name).write_text(text)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    (folder / "sub").mkdir()
    refused("would be overwritten", line)
    (folder / "sub").rmdir()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_chart_for_each_of_several_similar_methods(done, folder):
    methods = "fcfs,fcfs,hybrid,hybrid+gate_factor=0.5"
    done(f"compare two-by-two --methods {methods} --gantt g --iterations 1")
    assert sorted(p.name for p in (folder / "g").iterdir()) == [
        "fcfs-none-2.png", "fcfs-none.png", "hybrid+gate_factor=0.5-clairvoyant.png",
        "hybrid-clairvoyant.png", "latency.png", "timeline.png",
    ]  # fmt: skip


def test_a_reader_that_goes_away_is_no_error():
    command = [sys.executable, "-m", "orsched", "generate", "gsm8k", "--set", "requests=100000"]
    done = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    done.stdout.read(10)
    done.stdout.close()
    assert (done.wait(), done.stderr.read()) == (0, b"")
    done.stderr.close()


@pytest.mark.parametrize(("code", "error"), [
    (71, MemoryError()),
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
])  # fmt: skip
def test_what_fails_has_the_code_of_its_cause(call, monkeypatch, code, error):
    monkeypatch.setattr("orsched.files.locate.load", Mock(side_effect=error))
    found, _, err = call("info two-by-two")
    assert found == code
    assert not isinstance(error, MemoryError) or err == "orsched: error: not enough memory\n"


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
def test_the_other_kind_of_file_is_named(done, refused, suffix):
    done("convert two-by-two", f"i{suffix}")
    done("solve two-by-two --method fcfs -o", f"s{suffix}")
    refused("is 'orsched/schedule', not 'orsched/instance'", "solve", f"s{suffix}")
    refused("is 'orsched/instance', not 'orsched/schedule'", "check two-by-two", f"i{suffix}")


def test_links_in_circles_are_no_file(refused):
    Path("round").symlink_to("round")
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


@pytest.mark.parametrize(("package", "words", "remedy"), [
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
])  # fmt: skip
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


@pytest.mark.parametrize("line", [
    "solve two-by-two --method fcfs -o x.parquet",
    "simulate two-by-two --policy fcfs --records x.parquet",
    "convert two-by-two x.parquet",
    "generate uniform --set requests=3 --set clients=1 -o x.parquet",
    "run two-by-two --worker virtual --policy fcfs -o x.parquet",
])  # fmt: skip
def test_a_parquet_file_is_refused_before_the_work(refused, monkeypatch, folder, line):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setattr("orsched.files.locate.load", lambda name: 1 / 0)
    monkeypatch.setattr("orsched.instances.catalog.generate", lambda *a, **k: 1 / 0)
    refused("pip install 'orsched[parquet]'", line)
    assert list(folder.iterdir()) == []


STUDY = 'instances = ["two-by-two"]\npolicies = ["fcfs"]\nseeds = "0:6"\n'


def test_a_study_has_its_table_as_csv_and_says_so(done, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    Path("s.toml").write_text(STUDY)
    done("study s.toml --jobs 1")
    assert Path("s-study/table.csv").exists()
    assert not Path("s-study/table.parquet").exists()
    assert "table.parquet is not: it needs pip install 'orsched[parquet]'" in caplog.text


def test_a_flag_raises_the_limit_of_cells_for_one_command(call, done, refused, monkeypatch):
    monkeypatch.setenv("ORSCHED_MAX_CELLS", "5")
    Path("s.toml").write_text(STUDY)
    refused("say orsched --max-cells 6 COMMAND", "study s.toml --list")
    done("--max-cells 6 study s.toml --list")
    assert os.environ["ORSCHED_MAX_CELLS"] == "5"
    assert call("study s.toml --list")[0] == 2


def test_a_flag_raises_the_limit_of_rows(done, refused, monkeypatch):
    pytest.importorskip("pyarrow")
    monkeypatch.delenv("ORSCHED_MAX_ROWS", raising=False)
    save_instance(orsched.load("pang-100x20"), "some.parquet")
    refused("say orsched --max-rows 100 COMMAND", "--max-rows 99 info some.parquet")
    done("--max-rows 100 info some.parquet")
    assert "ORSCHED_MAX_ROWS" not in os.environ


@pytest.mark.parametrize("flag", ["--max-rows", "--max-cells", "--max-blocks", "--max-steps"])
@pytest.mark.parametrize("value", ["0", "-1", "many", "1e6"])
def test_limits_are_whole_numbers_above_zero(flag, value, refused):
    refused(flag, flag, value, "info")


def test_a_flag_raises_the_limit_of_blocks(done, refused, monkeypatch):
    worker = orsched.Worker(2, memory=BlockMemory(100, 1, "paged", PrefixCache("lru")))
    save_instance(orsched.Instance(orsched.Requests([30], [20]), worker), "case.json")
    monkeypatch.setenv("ORSCHED_MAX_BLOCKS", "104")
    said = "105 blocks of prefix caches are more than the 104"
    assert "case.json" in refused(said, "solve case.json --method vllm")
    done("--max-blocks 105 solve case.json --method vllm")


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
