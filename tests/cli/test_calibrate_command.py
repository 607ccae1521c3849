"""``orsched calibrate``: from measurements in a file, and from a worker where there is torch."""

from __future__ import annotations

import csv
import io
import json

import pytest

from orsched.calibration.measurements import Measurements
from orsched.calibration.step_files import write_measurements
from orsched.cli.commands import run
from orsched.costs import AffineCost, BilinearCost
from orsched.files import load_cost
from orsched.files.native import load_fitted_cost
from orsched.solving.scenario import read_workers

COST = AffineCost()


@pytest.fixture
def call(capsys):
    """Run the command line in this process; return (exit code, stdout, stderr)."""

    def invoke(*args):
        code = run(["calibrate", *(str(a) for a in args)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return invoke


@pytest.fixture
def source(tmp_path):
    """A file of steps with exactly the times of an affine model."""
    prompts = [(n, p) for n in (1, 2, 4) for p in (8, 64, 512)]
    rounds = [(n, c) for n in (1, 4, 16) for c in (8, 64, 512)]
    stages = [COST.prefill_ns([p] * n) for n, p in prompts]
    found = Measurements(
        phase=["prefill"] * 9 + ["decode"] * 9,
        count=[n for n, _ in prompts + rounds],
        duration_ns=stages + [COST.round_ns(n) for n, _ in rounds],
        tokens=[n * p for n, p in prompts] + [0] * 9,
        longest=[p for _, p in prompts] + [0] * 9,
        context_sum=[0] * 9 + [n * c for n, c in rounds],
        context_max=[0] * 9 + [c for _, c in rounds],
    )
    path = tmp_path / "steps.csv"
    write_measurements(found, path)
    return path


def test_a_file_is_fitted_and_the_best_model_written(call, source, tmp_path):
    target = tmp_path / "cost.json"
    code, out, err = call("--from", source, "-o", target, "--format", "json")
    assert code == 0
    found = json.loads(out)
    assert found["chosen"] in ("affine", "profiled")
    rows = {row["model"]: row for row in found["models"]}
    assert " ".join(rows) == "affine levels bilinear pooling profiled linear roofline"
    assert rows["affine"]["worst_%"] < 0.001
    assert rows["levels"]["mean_%"] > 1
    assert [row["chosen"] for row in found["models"]].count(True) == 1
    cost, report = load_fitted_cost(target)
    assert cost.prefill_ns([100]) == pytest.approx(COST.prefill_ns([100]), rel=1e-3)
    assert report["errors"]["all"]["points"] == rows["affine"]["points"]
    assert set(report["others"]) == set(rows) - {found["chosen"]}
    assert f"cost model written to {target}" in err


def test_a_model_can_be_chosen_and_a_table_is_printed(call, source, tmp_path):
    target = tmp_path / "cost.json"
    code, out, err = call("--from", source, "-o", target, "--cost-model", "bilinear")
    assert (code, type(load_cost(target))) == (0, BilinearCost)
    lines = out.splitlines()
    assert lines[0].split()[:4] == ["model", "chosen", "points", "score_%"]
    assert [line.split()[0] for line in lines if " yes " in line] == ["bilinear"]
    assert "to which nothing was fitted" in err
    code, out, _ = call("--from", source, "--format", "csv")
    assert len(list(csv.DictReader(io.StringIO(out)))) == 7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--cost-model", "cubic"], "no fit for 'cubic'"),
        (["-o", "cost.parquet"], "ends in .json"),
        (["-o", "nowhere/cost.json"], "no such folder"),
        (["--measurements", "steps.txt"], "ends in .csv"),
        (["--measurements", "{source}"], "the command reads it"),
        (["--slots", "3"], "does not apply to measurements of a file"),
        (["--memory", "1GiB"], "does not apply to measurements of a file"),
        (["--worker-file", "w.json"], "name no worker"),
        (["--from", "absent.csv"], "absent.csv"),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(refused, source, options, message, monkeypatch):
    monkeypatch.chdir(source.parent)
    given = [option.format(source=source) for option in options]
    err = refused(message, "--from", source, *given)
    assert "Traceback" not in err


def test_one_path_for_two_outputs_is_refused(refused, source, tmp_path):
    path = tmp_path / "same.json"
    refused("writes it, too", "-o", path, "--worker-file", path)


def test_a_worker_is_measured(call, tmp_path):
    torch = pytest.importorskip("torch", reason="the extra 'runner' is not installed")
    cost, rows, worker = (tmp_path / name for name in ("cost.json", "rows.csv", "worker.json"))
    threads = torch.get_num_threads()
    try:
        code, out, err = call(
            *("--slots", 4, "--length", 64, "--prefill-cap", 128, "--repeats", 1),
            *("--requests", 12, "--threads", 1, "--device", "cpu", "--memory", "8MiB"),
            *("-o", cost, "--measurements", rows, "--worker-file", worker, "--format", "json"),
        )
    finally:
        torch.set_num_threads(threads)
    assert code == 0, err
    found = json.loads(out)
    (written,) = read_workers(str(worker))
    assert written.cost == load_cost(cost)
    assert (written.clients, written.prefill_cap_tokens) == (4, 128)
    assert written.memory.to_dict() == found["memory"]
    fewest = min(batch["slots"] * batch["length"] for batch in found["batches"])
    assert written.memory.blocks == fewest // written.memory.block_tokens
    _, report = load_fitted_cost(cost)
    assert report["worker"]["slots"] == 4
    assert report["worker"]["dtype"] == "float32"
    moved = max(report["speed"]["reference_ns"]) / min(report["speed"]["reference_ns"]) - 1
    assert report["speed"]["moved"] == pytest.approx(moved, abs=1e-4)
    told = "the machine's speed moved"
    assert (told in err) == (moved > 0.1)
    assert any(told in warning for warning in report["warnings"]) == (moved > 0.1)
    again = json.loads(call("--from", rows, "--format", "json")[1])
    assert again["models"] == found["models"]


def test_a_busy_machine_is_told_before_anything_is_measured(call, monkeypatch):
    torch = pytest.importorskip("torch", reason="the extra 'runner' is not installed")
    monkeypatch.setattr("orsched.runner.devices.settings.cores", lambda: 2)
    threads = torch.get_num_threads()
    try:
        code, _, err = call(
            *("--slots", 2, "--length", 2, "--prefill-cap", 64, "--device", "cpu"),
            *("--threads", 3),
        )
    finally:
        torch.set_num_threads(threads)
    assert code == 2  # too short for a grid
    assert "orsched: warning: 3 threads share 2 cores" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--slots", 0], "slots"),
        (["--length", 1], "too few sizes"),
        (["--prefill-cap", 3], "too few sizes"),
        (["--repeats", 0], "repeats"),
        (["--requests", -1], "requests"),
        (["--threads", 0], "threads"),
        (["--slots", 999_999_999], "GiB are free"),
        (["--seed", -1], "seed"),
        (["--dtype", "int8"], "unknown type"),
        (["--device", "abacus"], "torch cannot use"),
        (["--model", "nobody"], "unknown model"),
        (["--memory", "12 apples"], "not a number of bytes"),
        (["--memory", "auto"], "say how many bytes"),
    ],
)
def test_a_worker_that_cannot_be_is_refused(refused, options, message):
    pytest.importorskip("torch", reason="the extra 'runner' is not installed")
    refused(message, "--device", "cpu", "--slots", 2, "--length", 40, *options)


def test_runs_are_judged_by_their_sums(call, refused, source, tmp_path):
    steps = tmp_path / "run.csv"
    steps.write_text(
        "phase,start_ns,end_ns,rounds,active,context_sum,context_max,prompts,tokens,longest\n"
        "prefill,0,30000000,1,0,0,0,2,100,60\n"
        "decode,30000000,100000000,2,3,90,40,0,0,0\n"
    )
    judged = ["--judge", steps, "--judge", steps]
    target = tmp_path / "cost.json"
    code, out, _ = call("--from", source, *judged, "--format", "json", "-o", target)
    assert code == 0
    one, two = json.loads(out)["runs"]
    assert one == two
    assert one["file"] == str(steps)
    cost = load_cost(target)
    expected = cost.prefill_ns([60, 40]) + cost.rounds_ns(2, 3, 90, 40)
    assert one["predicted_s"] == pytest.approx(expected / 1e9)
    assert one["measured_s"] == pytest.approx(0.1)
    assert one["error"] == pytest.approx(expected / 1e8 - 1)
    assert set(one["phases"]) == {"prefill", "decode"}
    assert json.loads(target.read_text())["fit"]["runs"] == [one, two]
    code, out, _ = call("--from", source, *judged)
    assert out.count("run.csv") == 2
    refused("none.csv", "--from", source, "--judge", tmp_path / "none.csv")


def test_the_template_is_measurements_that_can_be_fitted(call, tmp_path):
    code, out, _ = call("--template")
    assert code == 0
    path = tmp_path / "rows.csv"
    path.write_text(out)
    code, out, _ = call("--from", path, "-o", tmp_path / "cost.json", "--format", "json")
    assert code == 0
    assert json.loads(out)["chosen"] == "affine"
    assert load_cost(tmp_path / "cost.json").round_ns(64) == pytest.approx(42.5e6, rel=0.02)


@pytest.mark.parametrize(("unit", "scale"), [("ms", 1), ("s", 0.001), ("us", 1000), ("ns", 10**6)])
def test_durations_in_any_unit(call, tmp_path, unit, scale):
    def time(ms):
        return str(round(ms * scale)) if unit == "ns" else f"{ms * scale:g}"

    rows = [f"prefill,1,{time(10 + size / 10)},{size}" for size in (10, 20, 40, 80, 160, 320)]
    rows += [f"decode,{count},{time(20 + count)}," for count in (1, 2, 4, 8, 16, 32)]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join([f"phase,count,duration_{unit},tokens", *rows]))
    code, _, _ = call("--from", path, "--cost-model", "affine", "-o", tmp_path / "cost.json")
    assert code == 0
    cost = load_cost(tmp_path / "cost.json")
    assert cost.prefill_ns([100]) == pytest.approx(20e6, rel=1e-3)
    assert cost.round_ns(10) == pytest.approx(30e6, rel=1e-3)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("phase,count,duration\n", "did you mean duration_"),
        ("phase,count,duration_ms,duration_ns\n", "the column appears twice"),
        ("phase,count\n", "'duration_ns': the column is missing"),
        ("# a comment\nphase,count,duration_ms\ndecode,1,-2\n", "row 3, field 'duration_ms'"),
        ("phase,count,duration_ms\ndecode,1,two\n", "'two' is not a duration above 0"),
        ("# nothing\n", "orsched calibrate --template"),
    ],
)
def test_wrong_measurements_name_row_and_remedy(refused, tmp_path, text, said):
    path = tmp_path / "rows.csv"
    path.write_text(text)
    err = refused(said, "--from", path)
    assert err.count("\n") == 1
