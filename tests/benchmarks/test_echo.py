"""Echo's setting has the shape that the paper prints, and a small day runs through its figures."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.reproductions import echo_setting as setting
from benchmarks.reproductions.echo_runs import run
from orsched.costs import floor_faults, knows_cached, prefill_ns

SHAPES = {"loogle-short": 0.91, "toolbench": 0.85, "nextqa": 0.88}


@pytest.mark.parametrize("workload", SHAPES)
def test_bulk_prompts_have_the_papers_mean_and_share(workload):
    problem = setting.instance(workload, day_s=30)
    prompts = problem.requests.prompt_tokens[problem.bulk]
    of = setting.WORKLOADS[workload]
    assert len(prompts) == of.requests
    assert abs(prompts.mean() / of.prompt - 1) < 0.1
    prefixes = problem.requests.prefixes
    shared = prefixes.counts[problem.bulk].sum() * prefixes.block_tokens / prompts.sum()
    assert abs(shared - SHAPES[workload]) < 0.03


def test_the_peak_is_six_times_the_trough():
    times = np.concatenate([setting.arrivals_ns(seed, 600.0) for seed in range(20)])
    hours = np.bincount(times * 24 // (600 * 10**9), minlength=24)
    assert 5 < hours[12:14].sum() / hours[4:6].sum() < 7


def test_the_cost_model_keeps_to_its_floor():
    assert floor_faults(setting.A100, 200) == []
    prompts, active, total = [100, 50], 3, 900
    parts = setting.A100.prefill_ns(prompts) + setting.A100.round_ns(active, total, 500)
    mixed = setting.A100.mixed_ns(prompts, active, total, 500)
    assert mixed == parts - setting.A100.fixed_ns  # the weights are read once
    single = sum(setting.A100.round_ns(3, 900 + 3 * i, 500 + i) for i in range(7))
    assert setting.A100.rounds_ns(7, active, total, 500) == single


def test_with_attention_a_hit_is_not_free():
    cost = setting.A100_ATTENDING
    assert knows_cached(cost)
    assert floor_faults(cost, 200) == []
    alone, behind = (prefill_ns(cost, [500], [k]) for k in (0, 20_000))
    assert behind - alone == round(500 * 20_000 * 2.57)
    assert alone == pytest.approx(prefill_ns(setting.A100, [500]), rel=0.02)
    plain, told = (
        run("loogle-short", "echo", (), 0, (("day_s", 10.0), ("bulk", 20), ("attention", known)))
        for known in (False, True)
    )
    assert told.bulk_tokens < plain.bulk_tokens


def test_a_small_day_is_measured():
    changes = (("day_s", 10.0), ("bulk", 30))
    found = run("nextqa", "slack", (), 0, changes)
    other = run("nextqa", "echo", (("configuration", "bs"),), 0, changes)
    for each in (found, other):
        assert 0 <= each.answered <= 30
        assert 0 <= each.attainment <= each.tokens_in_time + 1
        assert each.hit.sum() % setting.BLOCK_TOKENS == 0
        assert each.samples[0].online <= len(each.ttft_s)
    assert found.hit_rate >= other.hit_rate > 0.5  # all documents fit into the cache
    assert found.attainment >= 0.9 > other.attainment
