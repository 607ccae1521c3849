"""Sequence level and slices on cases small enough to add up by hand."""

from __future__ import annotations

from itertools import pairwise

import pytest

import orsched
from orsched.common.errors import InputError
from orsched.heuristics.scls import ABLATION, SliceParams
from orsched.metrics.summary import summarise
from tests.heuristics.scls.parts import MS, instance, run, steps

PREFILL, DECODE = 0, 1


def finish_ms(problem, schedule):
    return summarise(problem, schedule)["jct_ns"]["max"] / MS


def test_sequence_level_serves_a_batch_to_its_end():
    problem = instance([3, 1], [4, 2])
    schedule, policy = run(problem, **ABLATION["SLS"])
    # Padded to 3 tokens; request 1 is done after two rounds and waits for two more.
    assert steps(schedule)[0] == (0, PREFILL, 0, 3, 1)
    assert schedule.makespan_ns == 7 * MS
    found = summarise(problem, schedule)
    assert (found["invalid_tokens"], found["pad_tokens"], found["restarts"]) == (2, 2, 0)
    assert found["jct_ns"]["mean"] == 7 * MS  # both are returned together
    assert policy.batches == 1


def test_sequence_level_takes_fixed_batches_in_order_of_arrival():
    problem = instance([1, 9, 1, 1], [1, 1, 1, 1])
    schedule, _ = run(problem, **ABLATION["SLS"] | {"batch_size": 2})
    # 1 and 9 together: 9 ms and a round; then 1 and 1: 1 ms and a round.
    assert [step[2:4] for step in steps(schedule)] == [(0, 9), (9, 10), (10, 11), (11, 12)]


def test_round_robin_goes_by_arrival():
    problem = instance([1, 2, 3, 4], [1, 1, 1, 1], workers=2)
    schedule, _ = run(problem, **ABLATION["SO"])
    stages = [step for step in steps(schedule) if step[1] == PREFILL]
    assert stages == [(0, PREFILL, 0, 3, 1), (1, PREFILL, 0, 4, 1)]  # 1, 3 and 2, 4


def test_slices_return_who_is_done_and_prefill_the_rest_anew():
    problem = instance([3, 1], [4, 2])
    schedule, policy = run(problem, slice_tokens=2, interval_s=0.004)
    # Together 3 + 2 ms, apart (1 + 2) + (3 + 2): together. Request 1 is done with the slice.
    # Request 0 is back at 5 ms, has missed the fetch at 4 ms and waits for that at 8 ms: it has
    # 3 + 2 tokens to prefill.
    assert steps(schedule) == [
        (0, PREFILL, 0, 3, 1), (0, DECODE, 3, 5, 2),
        (0, PREFILL, 8, 13, 1), (0, DECODE, 13, 15, 2),
    ]  # fmt: skip
    found = summarise(problem, schedule)
    assert (found["invalid_tokens"], found["restarts"]) == (0, 1)
    assert (policy.batches, policy.early_returns) == (2, 0)


def test_a_batch_that_is_done_early_returns_early():
    problem = instance([2, 2], [1, 3], limit=9)
    schedule, policy = run(problem, slice_tokens=9, interval_s=1.0)
    assert steps(schedule)[-1][3] == 2 + 3  # not 2 + 9
    assert (policy.batches, policy.early_returns) == (1, 1)


def test_what_the_policy_counts_is_in_the_run():
    problem = instance([2, 2], [1, 3], limit=9)
    counted = orsched.solve(problem, "scls").schedule.run["counted"]
    assert counted == {"batches": 1, "early_returns": 1}


def test_a_fetch_while_all_are_busy_takes_who_was_there():
    problem = instance([3, 1, 1], [2, 2, 2], [0, 1, 4.5])
    schedule, policy = run(problem, slice_tokens=2, interval_s=0.004)
    # Request 0 runs from 0 to 5 ms. The fetch at 4 ms takes request 1 alone; load is then 5 + 3
    # ms, so the next fetch is at 4 + max(8 / 2, 4) = 8 ms and takes request 2.
    assert [step[2] for step in steps(schedule) if step[1] == PREFILL] == [0, 5, 8]
    assert policy.clock.interval_ns == 4 * MS


def test_the_interval_grows_with_the_least_load():
    problem = instance([8] * 4, [2] * 4, [0, 0, 0, 1], clients=2)
    schedule, policy = run(problem, slice_tokens=2, interval_s=0.001)
    seen = [step[2] for step in steps(schedule) if step[1] == PREFILL]
    # 0 and 1, then 2: two batches of 8 + 2 ms at time 0, so T = 20 / 2 ms: request 3 joins no
    # earlier than at 10 ms, and is served last.
    assert seen == [0, 10, 20]
    assert policy.batches == 3


def test_one_token_a_slice_under_the_prefill_rule_needs_no_round():
    problem = instance([2], [3], rule="prefill")
    schedule, _ = run(problem, slice_tokens=1, interval_s=0.001)
    assert [step[1] for step in steps(schedule)] == [PREFILL] * 3
    assert [round(step[3] - step[2]) for step in steps(schedule)] == [2, 3, 4]


def test_a_prompt_longer_than_a_stage_is_prefilled_in_chunks():
    problem = instance([5], [6], cap=5)
    schedule, _ = run(problem, slice_tokens=3, interval_s=0.001)
    # The second stay prefills 5 + 3 tokens under a cap of 5.
    assert [s[3] - s[2] for s in steps(schedule) if s[1] == PREFILL] == [5, 5, 3]


def test_a_batch_beyond_the_cap_is_prefilled_in_stages():
    problem = instance([2, 3, 3], [1, 1, 2], cap=6)
    schedule, _ = run(problem, slice_tokens=2, interval_s=0.001)
    # 2 and 3 are padded to 6 tokens together; then 3; then two rounds for all.
    assert [s[1:4] for s in steps(schedule)] == [
        (PREFILL, 0, 3), (PREFILL, 3, 6), (DECODE, 6, 7), (DECODE, 7, 8),
    ]  # fmt: skip


def test_an_idle_time_of_many_intervals_is_passed_at_once():
    problem = instance([1, 1], [1, 1], [0, 10**9])
    schedule, policy = run(problem, slice_tokens=1, interval_s=0.001, interval_share=1e-6)
    assert schedule.makespan_ns == (10**9 + 2) * MS
    assert policy.clock.next_ns > 10**15


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"slice_tokens": 0}, "slice_tokens"),
        ({"batch_size": 1.5}, "batch_size"),
        ({"batching": "fifo"}, "batching"),
        ({"interval_s": 0}, "interval_s"),
        ({"interval_share": 1.1}, "interval_share"),
        ({"interval_s": True}, "interval_s"),
        ({"memory_share": float("nan")}, "memory_share"),
        ({"interval": "none"}, "interval"),
        ({"interval": "none", "batching": "arrival"}, "interval"),
    ],
)
def test_parameters_are_checked(values, field):
    with pytest.raises(InputError) as error:
        SliceParams(**values)
    assert error.value.field == field


def test_each_strategy_of_the_ablation_adds_one_feature():
    names = ["SO", "PM", "AB", "LB", "SCLS"]
    changes = []
    for before, after in pairwise(names):
        pairs = ABLATION[before], ABLATION[after]
        changes.append({key for key in pairs[1] if pairs[0].get(key) != pairs[1][key]})
    assert changes == [{"batching", "interval"}, {"batch_size"}, {"offloading"}, {"interval"}]
    assert SliceParams(**ABLATION["SCLS"]) == SliceParams()
    assert ABLATION["SLS"] == ABLATION["SO"] | {"slice_tokens": None}
