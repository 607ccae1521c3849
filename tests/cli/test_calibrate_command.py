"""``orsched calibrate``: from measurements in a file, and from a worker where there is torch."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from orsched.calibration.candidates import joined
from orsched.calibration.measurements import Measurements
from orsched.calibration.step_files import write_measurements
from orsched.costs import AffineCost, BilinearCost
from orsched.files import load_cost
from orsched.files.native import load_fitted_cost
from orsched.solving.scenario import read_workers

COST = AffineCost()


def measured(prefill_ns, round_ns):
    """Return steps of some numbers of requests, of lengths and with times that are given."""
    prompts = [(n, p) for n in (1, 2, 4) for p in (8, 64, 512)]
    rounds = [(n, c) for n in (1, 4, 16) for c in (8, 64, 512)]
    return Measurements(
        phase=["prefill"] * 9 + ["decode"] * 9,
        count=[n for n, _ in prompts + rounds],
        duration_ns=[*(prefill_ns([p] * n) for n, p in prompts), *(round_ns(n) for n, _ in rounds)],
        tokens=[n * p for n, p in prompts] + [0] * 9,
        longest=[p for _, p in prompts] + [0] * 9,
        context_sum=[0] * 9 + [n * c for n, c in rounds],
        context_max=[0] * 9 + [c for _, c in rounds],
    )


@pytest.fixture
def call(call):
    """Calibrate; return (exit code, stdout, stderr)."""
    return lambda line, *words: call(f"calibrate {line}", *words)


@pytest.fixture
def steps():
    """Steps with exactly the times of an affine model."""
    write_measurements(measured(COST.prefill_ns, COST.round_ns), "steps.csv")


def test_a_file_is_fitted_and_the_best_model_written(call, as_json, steps):
    code, out, err = call("--from steps.csv -o cost.json --format json")
    assert (code, "cost model written to cost.json" in err) == (0, True)
    found = json.loads(out)
    assert found["chosen"] in ("affine", "profiled")
    rows = {row["model"]: row for row in found["models"]}
    assert " ".join(rows) == "affine levels bilinear pooling profiled linear roofline"
    assert rows["affine"]["worst_%"] < 0.001
    assert rows["levels"]["mean_%"] > 1
    assert [row["chosen"] for row in found["models"]].count(True) == 1
    cost, report = load_fitted_cost("cost.json")
    assert cost.prefill_ns([100]) == pytest.approx(COST.prefill_ns([100]), rel=1e-3)
    assert report["errors"]["all"]["points"] == rows["affine"]["points"]
    assert set(report["others"]) == set(rows) - {found["chosen"]}


def test_a_model_can_be_chosen_and_a_table_is_printed(call, done, steps):
    code, out, err = call("--from steps.csv -o cost.json --cost-model bilinear")
    assert (code, type(load_cost("cost.json"))) == (0, BilinearCost)
    lines = out.splitlines()
    assert lines[0].split()[:4] == ["model", "chosen", "points", "score_%"]
    assert [line.split()[0] for line in lines if " yes " in line] == ["bilinear"]
    assert "to which nothing was fitted" in err
    out = done("--from steps.csv --format csv")
    assert len(list(csv.DictReader(io.StringIO(out)))) == 7


def rehearsed(factor):
    """A grid, a run like it, and a last run whose stages take longer by a factor."""
    grid = measured(COST.prefill_ns, COST.round_ns)
    slow = np.where(np.array(grid.phase) == "prefill", factor, 1.0) * grid.column("duration_ns")
    last = replace(grid, duration_ns=slow.astype(int), run=[2] * len(grid))
    return joined(grid, replace(grid, run=[1] * len(grid)), last)


def test_a_model_that_misses_its_own_rehearsal_is_not_handed_out(call):
    write_measurements(rehearsed(1.05), "fair.csv")
    assert call("--from fair.csv -o cost.json")[0] == 0
    write_measurements(rehearsed(1.5), "moved.csv")
    code, _, err = call("--from moved.csv -o no.json")
    assert (code, Path("no.json").exists()) == (2, False)
    assert "affine misses the prefill steps of its own rehearsal by -33.3 %, above 10 %" in err
    assert "more --repeats and --requests; --cost-model affine writes it all the same" in err
    assert call("--from moved.csv")[0] == 0  # nothing is handed out
    code, _, err = call("--from moved.csv -o own.json --cost-model affine")
    assert (code, Path("own.json").exists()) == (0, True)
    assert "warning: affine misses the prefill steps" in err


@pytest.mark.parametrize(("options", "message"), [
    ("--cost-model cubic", "no fit for 'cubic'"),
    ("-o cost.parquet", "ends in .json"),
    ("-o nowhere/cost.json", "folder does not exist"),
    ("--measurements steps.txt", "ends in .csv"),
    ("--measurements steps.csv", "the command reads it"),
    ("--slots 3", "does not apply to measurements of a file"),
    ("--memory 1GiB", "does not apply to measurements of a file"),
    ("--worker-file w.json", "name no worker"),
    ("--from absent.csv", "absent.csv"),
    ("--judge none.csv", "none.csv"),
])  # fmt: skip
def test_what_cannot_be_is_refused_before_any_work(refused, steps, options, message):
    assert "Traceback" not in refused(message, f"--from steps.csv {options}")


def test_one_path_for_two_outputs_is_refused(refused):
    refused("writes it, too", "-o same.json --worker-file same.json")


@pytest.fixture
def torch():
    torch = pytest.importorskip("torch", reason="the extra 'runner' is not installed")
    threads = torch.get_num_threads()
    yield torch
    torch.set_num_threads(threads)


def test_a_worker_is_measured(torch, call, as_json):
    code, out, err = call(
        "--slots 4 --length 64 --prefill-cap 128 --repeats 1 --requests 12 --threads 1 "
        "--device cpu --memory 8MiB -o cost.json --measurements rows.csv --worker-file w.json "
        "--cost-model affine --format json"
    )
    assert code == 0, err
    found = json.loads(out)
    (written,) = read_workers("w.json")
    assert written.cost == load_cost("cost.json")
    assert (written.clients, written.prefill_cap_tokens) == (4, 128)
    assert written.memory.to_dict() == found["memory"]
    fewest = min(batch["slots"] * batch["length"] for batch in found["batches"])
    assert written.memory.blocks == fewest // written.memory.block_tokens
    _, report = load_fitted_cost("cost.json")
    assert (report["worker"]["slots"], report["worker"]["dtype"]) == (4, "float32")
    moved = max(report["speed"]["reference_ns"]) / min(report["speed"]["reference_ns"]) - 1
    assert report["speed"]["moved"] == pytest.approx(moved, abs=1e-4)
    told = "the machine's speed moved"
    assert (told in err) == (moved > 0.1)
    assert any(told in warning for warning in report["warnings"]) == (moved > 0.1)
    assert as_json("--from rows.csv --cost-model affine")["models"] == found["models"]


def test_a_busy_machine_is_told_before_anything_is_measured(torch, call, monkeypatch):
    monkeypatch.setattr("orsched.runner.devices.settings.cores", lambda: 2)
    code, _, err = call("--slots 2 --length 2 --prefill-cap 64 --device cpu --threads 3")
    assert code == 2  # too short for a grid
    assert "orsched: warning: 3 threads share 2 cores" in err


@pytest.mark.parametrize(("options", "message"), [
    ("--slots 0", "slots"), ("--length 1", "too few sizes"), ("--prefill-cap 3", "too few sizes"),
    ("--repeats 0", "repeats"), ("--requests -1", "requests"), ("--threads 0", "threads"),
    ("--slots 999999999", "GiB are free"), ("--seed -1", "seed"), ("--dtype int8", "unknown type"),
    ("--device abacus", "torch cannot use"), ("--model nobody", "unknown model"),
    ("--memory 12apples", "not a number of bytes"), ("--memory auto", "say how many bytes"),
])  # fmt: skip
def test_a_worker_that_cannot_be_is_refused(torch, refused, options, message):
    refused(message, f"--device cpu --slots 2 --length 40 {options}")


def test_runs_are_judged_by_their_sums(as_json, done, steps):
    Path("run.csv").write_text(
        "phase,start_ns,end_ns,rounds,active,context_sum,context_max,prompts,tokens,longest\n"
        "prefill,0,30000000,1,0,0,0,2,100,60\n"
        "decode,30000000,100000000,2,3,90,40,0,0,0\n"
    )
    asked = "--from steps.csv --judge run.csv --judge run.csv"
    one, two = as_json(f"{asked} -o cost.json")["runs"]
    assert one == two
    assert one["file"] == "run.csv"
    cost = load_cost("cost.json")
    expected = cost.prefill_ns([60, 40]) + cost.rounds_ns(2, 3, 90, 40)
    assert one["predicted_s"] == pytest.approx(expected / 1e9)
    assert one["measured_s"] == pytest.approx(0.1)
    assert one["error"] == pytest.approx(expected / 1e8 - 1)
    assert set(one["phases"]) == {"prefill", "decode"}
    assert json.loads(Path("cost.json").read_text())["fit"]["runs"] == [one, two]
    assert done(asked).count("run.csv") == 2


def test_the_template_is_measurements_that_can_be_fitted(done, as_json):
    Path("rows.csv").write_text(done("--template"))
    assert as_json("--from rows.csv -o cost.json")["chosen"] == "affine"
    assert load_cost("cost.json").round_ns(64) == pytest.approx(42.5e6, rel=0.02)


@pytest.mark.parametrize(("unit", "scale"), [("ms", 1), ("s", 0.001), ("us", 1000), ("ns", 10**6)])
def test_durations_in_any_unit(done, unit, scale):
    def time(ms):
        return str(round(ms * scale)) if unit == "ns" else f"{ms * scale:g}"

    rows = [f"prefill,1,{time(10 + size / 10)},{size}" for size in (10, 20, 40, 80, 160, 320)]
    rows += [f"decode,{count},{time(20 + count)}," for count in (1, 2, 4, 8, 16, 32)]
    Path("rows.csv").write_text("\n".join([f"phase,count,duration_{unit},tokens", *rows]))
    done("--from rows.csv --cost-model affine -o cost.json")
    cost = load_cost("cost.json")
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
def test_wrong_measurements_name_row_and_remedy(refused, text, said):
    Path("rows.csv").write_text(text)
    assert refused(said, "--from rows.csv").count("\n") == 1
