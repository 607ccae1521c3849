"""SCLS's setting and figures: constants, lengths, what a run totals, what is fitted."""

import numpy as np
import pytest

import orsched
from orsched.costs import BilinearCost
from orsched.heuristics.scls.sliced import ABLATION, SCLS
from orsched.instances.datasets import VARIABLE
from orsched.models.batch.batcher import serving_ns
from orsched.papers import scls_runs, scls_setting
from orsched.papers import scls_runs as profiles
from orsched.papers.reruns import change, pick
from orsched.papers.scls import RERUNS


@pytest.fixture(autouse=True)
def _no_data(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)


def test_shares_of_slices_are_all_requests():
    shares = scls_runs.slice_shares(np.array([1, 1, 2, 9, 30]))
    assert [shares[name] for name in ("1 %", "2 %", "more %")] == [40, 20, 40]
    assert sum(shares.values()) == pytest.approx(100)
    assert change(3.0, 2.0) == 50


def test_the_constants_give_figure_11_and_the_batcher_its_better_half():
    cost = scls_setting.HF.bilinear()
    together = serving_ns(cost, 16, 1024, 128)
    assert together == pytest.approx(13.5e9, rel=1e-6)
    assert serving_ns(scls_setting.DS.bilinear(), 16, 1024, 128) < together
    found = orsched.paper("scls", figure=11)
    assert found.values["HF_separate_s"] == pytest.approx(7.6, rel=1e-6)
    assert [each.verdict for each in found.verdicts] == ["NOT COMPARABLE", "HOLDS", "HOLDS"]


def test_the_synthetic_lengths_have_the_shape_of_sharegpt():
    prompts, outputs, source = scls_setting.lengths(20_000, 0)
    assert source == "synthetic"
    assert prompts.max() == outputs.max() == 1024
    assert 150 < prompts.mean() < 200
    assert 300 < outputs.mean() < 350
    found = orsched.paper("scls", figure=6, settings={"requests": 20_000})
    assert found.values["up_to_512_%"] == pytest.approx(100 * (outputs <= 512).mean())
    assert sum(row["in_step_%"] for row in found.rows) == pytest.approx(100)


@pytest.mark.parametrize(("answers", "prompts"), [(1.0, 1.0), (0.5, 4.0)])
def test_arrivals_end_with_the_time_and_lengths_at_the_limits(answers, prompts):
    requests = scls_setting.workload(10.0, 1, 30, answers, prompts)
    plain = scls_setting.workload(10.0, 1, 30)
    assert requests.arrival_ns.max() < 30e9
    assert 240 < len(requests) < 360
    limit = scls_setting.LIMIT
    assert requests.output_tokens.max() <= answers * limit
    assert list(requests.prompt_tokens) == [
        min(int(n * prompts), limit) for n in plain.prompt_tokens
    ]


@pytest.mark.parametrize("engine", ["HF", "DS"])
def test_slices_waste_fewer_tokens_than_whole_batches(engine):
    requests = scls_setting.workload(4.0, 0, seconds=20)
    worker = scls_setting.static_worker(scls_setting.ENGINES[engine])
    instance = scls_setting.instance(requests, worker, 2)
    params = scls_setting.slice_params(engine)
    found = {
        name: scls_runs.figures(SCLS, params | values, instance)
        for name, values in (("SLS", ABLATION["SLS"]), ("SCLS", {}))
    }
    assert found["SCLS"]["invalid"] < found["SLS"]["invalid"]
    assert found["SCLS"]["requests_per_s"] > found["SLS"]["requests_per_s"]


@pytest.mark.parametrize("preset", ["scls-hf", "scls-ds"])
def test_the_presets_set_what_the_runs_set(preset):
    from orsched.solving.method_choice import read_spec

    params = scls_setting.slice_params(preset.removeprefix("scls-").upper())
    assert read_spec(preset).parameters == params


def rows_of(*changed):
    """Return rows of Fig. 12 at one rate: SLS serves 2 of 10 requests a second, others differ."""
    base = {"rate": 10.0, "requests_per_s": 2.0, "mean_s": 8.0, "p95_s": 9.0, "batch": 4.0,
            "invalid": 50.0, "pads": 40.0, "end_std_s": 3.0, "early_%": 0.5,
            "below_3_%": 90.0}  # fmt: skip
    return [{"engine": e, "strategy": s, **base, **more} for e, s, more in changed]


def test_gains_are_changes_against_the_baseline_where_it_is_overloaded():
    better = {"requests_per_s": 3.0, "mean_s": 4.0, "batch": 10.0}
    rows = rows_of(
        ("HF", "SLS", {}), ("HF", "SCLS", better), ("DS", "SLS", {}), ("DS", "SCLS", better),
        ("DS", "ILS", {"requests_per_s": 9.5}),
    )  # fmt: skip
    found = RERUNS["by-rate"].values(rows)
    assert found["HF_SLS_throughput_%_low"] == found["HF_SLS_throughput_%_high"] == 50
    assert (found["DS_SLS_mean_%_high"], found["DS_SLS_batch_%_low"]) == (-50, 150)
    assert found["DS_ILS_throughput_%_low"] == pytest.approx(100 * (3 - 9.5) / 9.5)


def test_a_fit_to_a_bilinear_machine_has_no_error_and_a_slower_one_has():
    machine = BilinearCost.from_ms(p=(0.2, 0.5, 0.1, 9), d=(0.003, 0.2, 0.01, 7))
    settings = {"model": "none", "threads": 1, "repeats": 1, "sizes": [1, 2, 4, 8],
                "lengths": [16, 64, 256]}  # fmt: skip
    done = []
    for job in profiles.jobs(settings):
        n, length = job["size"], job["length"]
        ns = machine.prefill_ns([length] * n)
        figures = {"tokens": n * length, "longest": length, "context_sum": 0, "context_max": 0}
        if job["kind"] == "round":
            ns = machine.round_ns(n, n * length, length)
            figures = {"tokens": 0, "longest": 0, "context_sum": n * length, "context_max": length}
        elif job["kind"] == "slice":
            ns += machine.rounds_ns(128, n, n * (length + 1), length + 1) + 2_000_000
        done.append((job, {"taken_ms": ns / 1e6, "duration_ns": ns, **figures}))
    rows = profiles.rows(done, settings)
    found = profiles.values(rows)
    assert found["prefill_rmse_ms"] < 1e-3
    assert found["round_rmse_ms"] < 1e-3
    assert found["slice_rmse_ms"] == pytest.approx(2.0, abs=1e-3)
    assert profiles.straightness(pick(rows, kind="prefill"))["least_correlation_size"] > 0.9999
