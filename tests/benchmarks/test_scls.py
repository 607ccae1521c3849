"""The setting of SCLS: its constants give what the paper prints; a short run of each scheduler."""

from __future__ import annotations

import pytest

from benchmarks.reproductions import scls_runs, scls_setting
from benchmarks.reproductions.scls import change, overloaded
from orsched.heuristics.scls.continuous import ILS
from orsched.heuristics.scls.sliced import SCLS
from orsched.instances.datasets import VARIABLE
from orsched.models.batch.batcher import serving_ns


@pytest.fixture(autouse=True)
def _no_data(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)


def test_the_constants_give_figure_11():
    cost = scls_setting.HF.bilinear()
    together = serving_ns(cost, 16, 1024, 128)
    separate = serving_ns(cost, 15, 10, 128) + serving_ns(cost, 1, 1024, 128)
    assert together == pytest.approx(13.5e9, rel=1e-6)
    assert separate == pytest.approx(7.6e9, rel=1e-6)
    assert serving_ns(scls_setting.DS.bilinear(), 16, 1024, 128) < together


def test_the_synthetic_lengths_have_the_shape_of_sharegpt():
    prompts, outputs, source = scls_setting.lengths(20_000, 0)
    assert source == "synthetic"
    assert prompts.max() == outputs.max() == 1024
    assert 150 < prompts.mean() < 200
    assert 300 < outputs.mean() < 350
    assert 0.75 < (outputs < 512).mean() < 0.85


def test_arrivals_end_with_the_time():
    requests, _ = scls_setting.workload(10.0, 1, seconds=30)
    assert requests.arrival_ns.max() < 30e9
    assert 240 < len(requests) < 360


@pytest.mark.parametrize("engine", ["HF", "DS"])
def test_slices_waste_fewer_tokens_than_whole_batches(engine):
    requests, _ = scls_setting.workload(4.0, 0, seconds=20)
    worker = scls_setting.static_worker(scls_setting.ENGINES[engine])
    instance = scls_setting.instance(requests, worker, 2)
    found = {
        name: scls_runs._run(SCLS, scls_setting.slice_params(engine, **values), instance)
        for name, values in (("SLS", scls_runs.ABLATION["SLS"]), ("SCLS", {}))
    }
    assert found["SCLS"]["invalid"] < found["SLS"]["invalid"]
    assert found["SCLS"]["requests_per_s"] > found["SLS"]["requests_per_s"]


def test_iteration_level_wastes_nothing():
    requests, _ = scls_setting.workload(4.0, 0, seconds=20)
    instance = scls_setting.instance(requests, scls_setting.continuous_worker(scls_setting.DS), 2)
    found = scls_runs._run(ILS, {"parallel": 12}, instance)
    assert found["invalid"] == found["pads"] == found["reschedules"] == 0
    assert found["batch"] <= 12


def test_changes_are_in_per_cent():
    assert change(3.0, 2.0) == 50
    assert overloaded({"requests_per_s": 8.9, "rate": 10})
    assert not overloaded({"requests_per_s": 9.1, "rate": 10})
