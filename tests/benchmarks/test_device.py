"""The script for a machine with a GPU runs on a CPU, without what is missing there."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="the extra 'runner' is not installed")

MISSING = ("pytest", "click", "pyscipopt", "ortools", "pydantic", "plotly", "ray", "jsonschema")

SCRIPT = f"""
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {MISSING}:
            raise ImportError(name + " is blocked")

sys.meta_path.insert(0, Blocker())
from benchmarks.speed.device import main
sys.exit(main(sys.argv[1:]))
"""


def script(repo_root, *arguments):
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        cwd=repo_root,
        capture_output=True,
        text=True,
        check=False,
    )


def test_help_needs_nothing_that_is_missing(repo_root):
    done = script(repo_root, "--help")
    assert done.returncode == 0, done.stderr
    assert "--quick" in done.stdout


@pytest.mark.full
def test_the_table_has_every_method_at_both_sizes(repo_root, tmp_path):
    out = tmp_path / "device.json"
    done = script(repo_root, "--device", "cpu", "--quick", "--slots", "3", "--out", str(out))
    assert done.returncode == 0, done.stderr
    (section,) = json.loads(out.read_text())["sections"]
    assert [(row["slots"], row["policy"]) for row in section["rows"]] == [
        (slots, policy) for slots in (3, 6) for policy in ("online", "hybrid", "fcfs")
    ]
    for row in section["rows"]:
        assert row["requests"] == 5 * row["slots"]
        assert 0 < row["busy_%"] <= 100
        assert 0 < row["slots_%"] <= 100
        assert row["gaps_%"] + row["busy_%"] <= 100.01
        assert row["run_s"] > 0
        assert row["prefill_mfu_%"] > 0
        assert row["decode_bandwidth_%"] > 0
    assert len(section["targets"]) == 4


@pytest.mark.full
def test_no_time_left_is_said_and_not_hidden(repo_root):
    done = script(repo_root, "--device", "cpu", "--quick", "--slots", "2", "--minutes", "0.01")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("no time is left") == 6
    assert "no figure" in done.stdout
