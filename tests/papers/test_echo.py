"""Echo's figures: workloads with the paper's means, the machine, a small day measured."""

import numpy as np
import pytest

from orsched.costs import floor_faults
from orsched.papers import find, paper
from orsched.papers.echo import RERUNS, SHARES, _run, arrivals_ns, machine


def job(**given):
    (first, *_) = RERUNS["runs"].jobs(find("echo", 6).settings(False, {}))
    return first | {"day_s": 10.0, "bulk_share": 0.0075} | given


def test_bulk_prompts_have_the_papers_mean_and_share():
    found = paper("echo", table=1, settings={"seeds": 1})
    for row in found.printed[2:]:
        ours, printed = (float(row[name].replace(",", "")) for name in ("ours", "printed"))
        assert ours == pytest.approx(printed, rel=0.1)


def test_the_peak_is_six_times_the_night():
    times = np.concatenate([arrivals_ns(seed, 600.0) for seed in range(20)])
    hours = np.bincount(times * 24 // (600 * 10**9), minlength=24)
    assert 5 < hours[12:14].sum() / hours[4:6].sum() < 7


def test_the_machine_reads_its_weights_once_a_step_and_with_attention_a_hit_is_not_free():
    plain, attending = machine(), machine(attention=True)
    assert floor_faults(plain, 200) == floor_faults(attending, 200) == []
    parts = plain.prefill_ns([100, 50]) + plain.round_ns(3, 900, 500)
    assert plain.mixed_ns([100, 50], 3, 900, 500) == parts - 14_200_000
    alone, behind = (attending.prefill_ns([500], [k]) for k in (0, 20_000))
    assert behind - alone == round(500 * 20_000 * 2.57)
    assert alone == pytest.approx(plain.prefill_ns([500]), rel=0.02)


def test_a_small_day_is_measured():
    found, other = (
        _run(job(workload="nextqa", policy=name)) for name in ("slack", "echo-bs")
    )  # 30 bulk requests: all documents fit into the cache
    for each in (found, other):
        assert 0 <= each["answered"] <= 30
        assert 0 <= each["attainment_%"] <= each["tokens_in_time_%"] + 100
        assert len(each["ttft_ms"]) == len(each["tpot_ms"]) == len(SHARES)
        shares = (each["running_interactive_%"], each["running_bulk_%"], each["free_%"])
        seen = [sum(parts) for parts in zip(*shares, strict=True)]
        assert all(total == pytest.approx(100) or total == 0 for total in seen)
    assert found["hit_rate_%"] >= other["hit_rate_%"] > 50
    assert found["attainment_%"] >= 90 > other["attainment_%"]


def test_attention_leaves_time_for_less_bulk_work():
    plain, told = (_run(job(policy="echo", attention=known, bulk_share=0.01)) for known in (0, 1))
    assert told["bulk_tokens_per_s"] < plain["bulk_tokens_per_s"]


@pytest.mark.full
def test_a_bound_is_above_what_policies_do():
    given = {"workloads": "loogle-short", "policies": "slack,bound", "seeds": 1}
    slack, bound = paper("echo", 6, settings=given | {"day_s": 60, "bulk_share": 0.1}).rows
    assert 0 < slack["bulk_tokens_per_s"] <= bound["bulk_tokens_per_s"]
