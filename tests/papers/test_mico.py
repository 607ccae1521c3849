"""MICO's figures: the setting, gains of pairs of variants, curves that end at a run's totals."""

import numpy as np
import pytest

from orsched.heuristics.mico import ABLATION
from orsched.papers import find, paper
from orsched.papers import mico as mico_setting
from orsched.papers.mico import RERUNS, SETTING, _curve, cache_lengths, ends_by_cloud, scheduled
from orsched.solving.method_choice import choose


def job(**given):
    (first, *_) = RERUNS["caches"].jobs(find("mico", 7).settings(False, {}))
    return first | given


def test_the_setting_is_the_papers_and_iteration_level_wins():
    problem = mico_setting.instance(job(queries=400))
    requests, limit, buckets = problem.requests, 1024, SETTING["buckets"]
    assert (requests.prompt_tokens + requests.output_tokens).max() <= limit
    true = (requests.output_tokens * buckets // limit).clip(max=buckets - 1)
    guessed = requests.predicted_tokens * buckets // limit
    assert abs((true == guessed).mean() - 0.8537) < 0.06
    assert abs(true - guessed).max() <= 1
    new, old = (scheduled(job(variant=name, queries=100))[1] for name in ("QI", "neither"))
    assert new.makespan_ns < old.makespan_ns
    assert sum(map(len, ends_by_cloud(new, 3))) == 100


@pytest.mark.parametrize("variant", ["QI", "neither"])
def test_curves_end_at_the_totals_of_the_run(variant):
    problem, schedule = scheduled(job(variant=variant, queries=30))
    sums, _ = cache_lengths(problem, schedule)
    ends = ends_by_cloud(schedule, 3)
    for k in range(3):
        curve = np.array(_curve(schedule, k, ends[k], np.arange(0, 4001, 10)))
        assert curve[-1, 1] == sums["engine"][k]
        assert curve[-1, 2] == len(ends[k])
        assert (np.diff(curve[:, 1:], axis=0) >= 0).all()


def test_gains_are_ratios_of_makespans_cell_by_cell():
    given = {"seeds": 2, "queries": 60, "batches": "2,3", "clouds": "2,3", "lengths": "law"}
    found = paper("mico", table=1, settings=given)
    assert [(row["clouds"], row["batch"]) for row in found.rows] == [(2, 2), (2, 3), (3, 2), (3, 3)]
    cell = job(queries=60, clouds=2, batch=3, backoff=1)
    ratios = [
        scheduled(cell | {"variant": "neither", "backoff": 0, "seed": seed})[1].makespan_ns
        / scheduled(cell | {"variant": "QI", "seed": seed})[1].makespan_ns
        for seed in range(2)
    ]
    assert found.values["2_clouds_batch_3_x"] == pytest.approx(np.mean(ratios))
    assert min(row["throughput_x"] for row in found.rows) > 1


@pytest.mark.parametrize(
    ("name", "variant"), [("QI", "QI"), ("I", "I"), ("Q", "Q"), ("baseline", "neither")]
)
def test_presets_are_the_variants_of_the_ablation(name, variant):
    chosen = choose(f"mico-{name}")
    blind = ABLATION[variant]["distribution"] == "quantity"
    assert str(chosen.information) == ("none" if blind else "predicted")
    given = {"distribution": "workload", "batching": "iteration"} | chosen.parameters
    assert {key: given[key] for key in ABLATION[variant]} == ABLATION[variant]
    assert chosen.parameters["order"] == "random"
