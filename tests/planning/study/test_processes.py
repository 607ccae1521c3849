"""Worker processes that die, fail or hang, here and on a Ray cluster."""

import json
import signal
import subprocess
import time
from importlib.util import find_spec

import pytest

from tests.planning.study.grids import POLICIES, command, finished, frozen, orsched, table

HAS_RAY = find_spec("ray") is not None
NEEDS_RAY = pytest.mark.skipif(not HAS_RAY, reason="ray is not installed: extra 'ray'")
RAY = pytest.param(("--cluster", "ray"), id="ray", marks=[pytest.mark.full, NEEDS_RAY])
LOCAL = pytest.param((), id="local")

STUDY = """
instances = ["two-by-two", "packing"]
seeds = 0
policies = [{{name = "mine:{name}", parameters = {{{rest}tag = [0, 1, 2]}}}}]
"""


def study(folder, name, rest=""):
    (folder / "mine.py").write_text(POLICIES)
    (folder / "marks").mkdir()
    (folder / "s.toml").write_text(STUDY.format(name=name, rest=rest))


@pytest.mark.parametrize("cluster", [LOCAL, RAY])
@pytest.mark.parametrize("times", [1, 2])
def test_the_cell_of_a_killed_process_is_tried_once_more(tmp_path, cluster, times):
    study(tmp_path, "Dies", f'marks = "{tmp_path / "marks"}", times = {times}, ')
    # One job, so that both deaths strike the same cell.
    done = orsched("study", "s.toml", "--jobs", 1, "--format", "json", *cluster, cwd=tmp_path)
    rows = table(tmp_path / "s-study")
    errors = [row["error"] for row in rows if row["status"] == "failed"]
    assert len(rows) == 6
    assert len(errors) == times - 1
    assert all("its process died 2 times" in error for error in errors)
    assert done.returncode == (4 if errors else 0), done.stderr
    assert len(json.loads(done.stdout)) == 6  # nothing else went to stdout


@pytest.mark.parametrize("cluster", [LOCAL, RAY])
def test_a_failing_cell_does_not_stop_the_rest(tmp_path, cluster):
    study(tmp_path, "Fails")
    done = orsched("study", "s.toml", "--jobs", 2, *cluster, cwd=tmp_path)
    assert done.returncode == 4
    assert "2 cells failed: ZeroDivisionError: a policy's own mistake" in done.stderr
    rows = table(tmp_path / "s-study")
    assert [row["status"] for row in rows] == ["ok", "failed", "ok"] * 2
    assert all((row["makespan_ns"] == "") == (row["status"] == "failed") for row in rows)
    records = [json.loads(content) for _, content in finished(tmp_path / "s-study").values()]
    traces = [record["traceback"] for record in records if record["status"] == "failed"]
    assert all("mine.py" in trace for trace in traces)

    before = finished(tmp_path / "s-study")
    again = orsched("study", "s.toml", cwd=tmp_path)
    assert "(0 run now, 6 before)" in again.stderr
    assert finished(tmp_path / "s-study") == before
    retried = orsched("study", "s.toml", "--retry-failed", cwd=tmp_path)
    assert "(2 run now, 4 before)" in retried.stderr
    assert retried.returncode == 4


@pytest.mark.full
@NEEDS_RAY
def test_a_ray_cluster_and_processes_make_the_same_table(tmp_path):
    (tmp_path / "s.toml").write_text(
        'instances = [{generator = "uniform", requests = 50, clients = 4}]\n'
        'policies = ["fcfs", "online"]\nseeds = "0:3"\narrivals = ["gamma:rate=2,cv=2"]\n'
    )
    assert orsched("study", "s.toml", "-o", "here", cwd=tmp_path).returncode == 0
    there = orsched("study", "s.toml", "-o", "there", "--cluster", "ray", cwd=tmp_path)
    assert there.returncode == 0, there.stderr
    assert frozen(tmp_path / "here") == frozen(tmp_path / "there")


@pytest.mark.skipif(HAS_RAY, reason="ray is installed")
def test_without_ray_the_extra_is_named(tmp_path):
    study(tmp_path, "Fails")
    done = orsched("study", "s.toml", "--cluster", "ray", cwd=tmp_path)
    assert done.returncode == 2
    assert "orsched[ray]" in done.stderr


@pytest.mark.full
def test_a_cell_that_hangs_is_ended_by_its_limit(tmp_path):
    study(tmp_path, "Hangs")
    done = orsched("study", "s.toml", "--jobs", 2, "--cell-time-limit", 6, cwd=tmp_path)
    assert done.returncode == 4
    rows = table(tmp_path / "s-study")
    assert [row["status"] for row in rows] == ["ok", "failed", "ok"] * 2
    assert rows[1]["error"] == "not done within the time limit of 6 s"


def test_ctrl_c_leaves_a_table_and_a_folder_to_go_on_with(tmp_path):
    study(tmp_path, "Hangs")
    folder = tmp_path / "s-study"
    given = command(tmp_path, "study", "s.toml", "--jobs", 2)
    process = subprocess.Popen(**given, stderr=subprocess.PIPE)
    end = time.monotonic() + 60
    while len(finished(folder)) < 2 and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "orsched: interrupted"
    # A cell may end and be stored while the table is being written.
    assert 2 <= len(table(folder)) <= len(finished(folder))
    listed = orsched("study", "s.toml", "--list", cwd=tmp_path)
    assert f"6 cells, {len(finished(folder))} finished" in listed.stdout
