"""The script for a machine with a GPU runs on a CPU, without what is missing there."""

import json

import pytest

from tests.blocking import run_without

pytest.importorskip("torch", reason="the extra 'runner' is not installed")

MISSING = ("pytest", "click", "pyscipopt", "ortools", "pydantic", "plotly", "ray", "jsonschema")


def script(repo_root, *arguments):
    program = f"from benchmarks.speed.device import main\nsys.exit(main({arguments!r}))"
    return run_without(MISSING, program, repo_root, timeout=None)


def test_help_needs_nothing_that_is_missing(repo_root):
    done = script(repo_root, "--help")
    assert done.returncode == 0, done.stderr
    assert "--quick" in done.stdout


@pytest.mark.full
def test_the_table_has_every_method_at_both_sizes(repo_root, tmp_path):
    out, saved = tmp_path / "device.json", tmp_path / "saved"
    given = ("--device", "cpu", "--quick", "--slots", "3", "--out", str(out), "--save", str(saved))
    done = script(repo_root, *given)
    assert done.returncode == 0, done.stderr
    (section,) = json.loads(out.read_text())["sections"]
    assert [(row["slots"], row["policy"], row["again"]) for row in section["rows"]] == [
        *((3, policy, 0) for policy in ("fcfs", "online", "hybrid", "vllm", "gittins")),
        *((3, "hybrid", 1), (3, "fcfs", 1), (3, "hybrid", 2)),
        *((6, policy, 0) for policy in ("hybrid", "online", "fcfs")),
    ]
    for row in section["rows"]:
        assert row["requests"] == 5 * row["slots"]
        assert 0 < row["busy_%"] <= 100
        assert 0 < row["slots_%"] <= 100
        assert row["gaps_%"] + row["busy_%"] <= 100.01
        positive = ("run_s", "prefill_mfu_%", "decode_bandwidth_%", "roofline_%")
        assert min(row[name] for name in positive) > 0
        assert row["weights_s"] + row["tokens_s"] > 0
        assert isinstance(row["roofline_error_%"], float)
    assert len(section["targets"]) == 6
    assert_others_can_use(saved)


def assert_others_can_use(folder):
    """The files calibrate and judge as those of the data folder do, and name the machine."""
    from orsched.calibration.candidates import calibrate
    from orsched.calibration.step_files import judge, read_measurements, read_steps
    from orsched.files import load_cost

    cost = calibrate(read_measurements(folder / "calibration.csv")).candidate().cost
    assert cost == load_cost(folder / "machine.json")
    document = json.loads((folder / "machine.json").read_text())
    facts, runs = document["fit"]["machine"], document["fit"]["runs"]
    assert {"title", "device", "date", "software", "error"} <= set(facts)
    names = ["fcfs", "online", "hybrid", "vllm", "gittins"]
    assert [run["file"] for run in runs] == [f"{name}_steps.csv" for name in names]
    for run in runs:
        again = judge(cost, run["file"], read_steps(folder / run["file"]))
        assert again.to_dict() == run


@pytest.mark.full
def test_no_time_left_is_said_and_not_hidden(repo_root):
    done = script(repo_root, "--device", "cpu", "--quick", "--slots", "2", "--minutes", "0.01")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("no time is left") == 11
    assert "no figure" in done.stdout


def test_a_roofline_takes_the_longer_of_weights_and_tokens():
    """Hand-checked: one layer's numbers, peaks of 1,000 FLOP/s and 100 bytes/s."""
    import numpy as np

    from benchmarks.speed.device_roofline import roofline_s
    from orsched.calibration.observed import StepContents
    from orsched.runner.utilization import ModelSize, Peaks

    size = ModelSize(1, 2, 1, 5, 90, 10, 2)  # 100 weights, 200 bytes; 20 bytes of cache a token
    columns = {
        "worker": [0, 0, 0], "phase": [0, 1, 2], "start_ns": [0, 1, 2], "end_ns": [1, 2, 3],
        "rounds": [1, 3, 1], "active": [0, 2, 1], "context_sum": [0, 10, 9],
        "context_max": [0, 6, 9], "prompts": [1, 0, 1], "tokens": [20, 0, 4], "longest": [20, 0, 4],
        "cached": [0, 0, 0], "attended": [210, 0, 10],
    }  # fmt: skip
    steps = StepContents(**{name: np.array(values) for name, values in columns.items()})
    found = roofline_s(size, steps, Peaks(1000.0, 100.0))
    # the stage computes (2 * 90 * 20 + 2 * 10) / 1000 = 3.62 s, longer than 2 s of weights; three
    # rounds read the weights, 2 s each; the mixed step computes 5 tokens in 0.94 s and reads 2 s
    assert found["tokens"] == pytest.approx(3.62)
    assert found["weights"] == pytest.approx(3 * 2 + 2)
    assert found["context"] == pytest.approx((3 * 10 + 2 * 3 + 9) * 20 / 100)
    assert found["attended"] == pytest.approx(4 * 1 * 2 * 5 * 220 / 1000)
