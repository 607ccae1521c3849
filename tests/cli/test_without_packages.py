"""A package that is not installed: one line that says what to install, before any work."""

from __future__ import annotations

import pytest

from orsched.files.native import save_instance
from orsched.instances.gsm8k import gsm8k
from tests.blocking import run_without

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
