"""Predictions beside measured rows: by hand, what is left out, and a gate on recorded rows."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.validation.__main__ import main
from benchmarks.validation.rates import steady_ms
from orsched.calibration import MODELS
from orsched.costs import AffineCost, RooflineCost
from orsched.planning.validation.errors import (
    errors_of,
    plain_model,
    precision_of,
    validate,
)
from orsched.planning.validation.served import Served
from orsched.views.planning_charts import DIMENSIONS, Validation, order
from tests.refusals import refusal

SILICON = Path(__file__).parent / "silicon"
PLAIN = RooflineCost.from_s(fixed=0.01, weights=0, token=0, context=0, attended=0)


@pytest.mark.parametrize(("path", "name"), [
    ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
    ("Qwen/Qwen3-235B-A22B-FP8", "qwen3-235b"),
    ("nvidia/Qwen3-32B-NVFP4/", "qwen3-32b"),
    ("deepseek-ai/DeepSeek-R1-0528", "deepseek-r1"),
])  # fmt: skip
def test_models_are_known_without_tuning_and_precision(path, name):
    assert plain_model(path) == name


def test_the_precision_is_that_of_the_row_or_of_the_name():
    assert precision_of(Served("a", "x/y-NVFP4")) == "fp4"
    assert precision_of(Served("a", "x/y-FP8", precision="bf16")) == "bf16"
    assert precision_of(Served("a", "x/y")) == "bf16"


LLAMA = {"model": "meta-llama/Llama-3.1-8B-Instruct", "gpu": "h100_sxm", "engine": "vllm",
         "measured": {"tpot": 0.01}}  # fmt: skip


@pytest.mark.parametrize(("changes", "reason"), [
    ({"refused": "requests failed"}, "requests failed"),
    ({"gpu": ""}, "does not name the GPU"), ({"engine": ""}, "does not name the engine"),
    ({"gpu": "abacus"}, "GPU 'abacus' is not in the catalogue"),
    ({"model": "x/Abacus-1"}, "model 'x/Abacus-1' is not in the catalogue"),
    ({"tensor": 16}, "more than 8 GPUs"),
    ({"tensor": 4, "data": 4}, "more than 8 GPUs"),
    ({"measured": {}}, "nothing is measured"),
])  # fmt: skip
def test_what_is_not_expressible_is_said(changes, reason):
    assert reason in refusal(errors_of, Served("a", **{**LLAMA, **changes})).problem


def test_an_error_is_above_0_where_the_prediction_is_too_large():
    (row,) = errors_of(Served("a", **LLAMA))
    assert row["metric"] == "tpot"
    assert row["error"] == pytest.approx(row["predicted"] / 0.01 - 1)
    assert {"id", "measured", "concurrency", *DIMENSIONS} <= set(row)


def rows_of(pairs):
    """Return rows of throughput, (measured, predicted) of one GPU each."""
    return [{"id": str(k), "metric": "throughput", "measured": true, "predicted": value,
             "error": value / true - 1, "pace": [true, value], "gpu": "ab"[k % 2]}
            for k, (true, value) in enumerate(pairs)]  # fmt: skip


def test_the_order_of_configurations_is_kendalls_tau():
    assert order(rows_of([(1, 10), (2, 20), (3, 30)])) == 1
    assert order(rows_of([(1, 30), (2, 20), (3, 10)])) == -1
    assert order(rows_of([(1, 10), (2, 30), (3, 20)])) == pytest.approx(1 / 3)  # 2 of 3 pairs
    assert order(rows_of([(1, 1)])) is None
    assert order(rows_of([(1, 1), (1, 2)])) is None


def test_groups_have_medians_of_errors():
    found = Validation(tuple(rows_of([(1, 1.1), (1, 0.8), (1, 1.3), (1, 1.5)])), ())
    every, *by_gpu = found.groups()
    assert (every["rows"], every["throughput"]) == (4, pytest.approx(0.25))
    assert every["throughput_bias"] == pytest.approx(0.2)
    assert every["tpot"] is None
    assert [(each["by"], each["value"], each["rows"]) for each in by_gpu] == [
        ("gpu", "a", 2), ("gpu", "b", 2)]  # fmt: skip


def test_rows_and_reasons_of_the_recorded_tables():
    """Each configuration is predicted or left out with a reason, never both."""
    found = validate([SILICON / "rows.csv", SILICON / "runs.csv"])
    ids, out = {row["id"] for row in found.rows}, [each["id"] for each in found.skipped]
    assert not ids & set(out)
    assert len(ids) + len(out) == 138
    assert sum(found.reasons.values()) == len(out)
    assert all(np.isfinite([row["predicted"], row["error"]]).all() for row in found.rows)
    json.dumps(found.to_dict())


MEDIANS = {("dense", "tpot"): 0.0772, ("dense", "ttft"): 0.2956, ("experts", "tpot"): 0.1118,
           ("experts", "ttft"): 0.35}  # fmt: skip
"""Medians of absolute errors on the recorded rows, as of the fit of the constants."""

WANTED = {"tpot": 0.18, "ttft": 0.4}


def test_errors_on_recorded_rows_do_not_grow():
    """A change that makes a median error five per cent worse than recorded is refused."""
    rows = validate([SILICON / "rows.csv"]).rows
    for (kind, metric), recorded in MEDIANS.items():
        mine = [abs(row["error"]) for row in rows if row["metric"] == metric
                and bool(MODELS[row["model"]].experts) is (kind == "experts")]  # fmt: skip
        assert len(mine) > 20
        assert np.median(mine) <= 1.05 * recorded < WANTED[metric]


def test_the_command_prints_tables_json_and_a_picture(tmp_path, capsys):
    lines = (SILICON / "rows.csv").read_text().splitlines()
    rows = [line for line in lines if "Llama-3.1-8B" in line][:2]
    small = tmp_path / "small.csv"
    small.write_text("\n".join((lines[0], *rows)) + "\n")
    assert main([str(small), "--by", "gpu", "-o", str(tmp_path / "p.svg")]) == 0
    printed = capsys.readouterr()
    assert [line.split()[0] for line in printed.out.splitlines()[1:]] == ["all", "gpu"]
    assert "2 predicted, 0 left out" in printed.err
    assert "predicted TPOT, s" in (tmp_path / "p.svg").read_text()
    assert main([str(small), "--only", "no-such-model", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == []
    assert main([str(small), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 4
    small.write_text("prompt_tokens\n5\n")
    assert main([str(small)]) == 2


def test_the_steady_round_has_as_many_requests_as_arrive_in_it():
    """Ten a second with 100 tokens in rounds of 10 ms: ten are served at once."""
    cost = AffineCost(round_fixed_ns=5_000_000, round_client_ns=500_000)
    assert steady_ms(cost, 10, 100, 100) == pytest.approx(10)
    assert steady_ms(cost, 100, 100, 100) > 1000
