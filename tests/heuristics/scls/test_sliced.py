"""Sequence level and slices on cases small enough to add up by hand."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

import orsched
from orsched import BlockMemory, Worker, summarise
from orsched.costs import AffineCost, BilinearCost, LevelsCost, PoolingCost
from orsched.heuristics.scls import ABLATION, SliceParams, offloading
from orsched.heuristics.scls.offloading import Batcher, Offloader, SlicedBatch, SliceMemory
from orsched.heuristics.scls.sliced import Clock
from tests.heuristics.scls.parts import MS, PLAIN, instance, padding_worker, run, steps
from tests.in_order import in_order

PREFILL, DECODE = 0, 1


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


def test_each_strategy_of_the_ablation_adds_one_feature():
    pairs = pairwise(ABLATION[name] for name in ("SO", "PM", "AB", "LB", "SCLS"))
    changes = [{key for key in after if before.get(key) != after[key]} for before, after in pairs]
    assert changes == [{"batching", "interval"}, {"batch_size"}, {"offloading"}, {"interval"}]
    assert SliceParams(**ABLATION["SCLS"]) == SliceParams()
    assert ABLATION["SLS"] == ABLATION["SO"] | {"slice_tokens": None}


def offloader(workers, max_min, costs=None, blocks=None):
    fleet = [padding_worker(blocks=each) for each in blocks or [None] * workers]
    views = [SimpleNamespace(worker=each, blocks_of=lambda request: 10) for each in fleet]
    return Offloader(views, costs or [PLAIN] * workers, 2, max_min)


def batches(*times_ms):
    return [SlicedBatch([i], 1, ms * MS) for i, ms in enumerate(times_ms)]


def places(parts, found):
    return [(worker, each.requests) for worker, each in parts.offload(found)]


def test_the_longest_batch_goes_to_the_least_loaded():
    parts = offloader(2, max_min=True)
    found = places(parts, batches(4, 10, 5, 7))
    # 10 to 0; 7 to 1; 5 to 1, which has 7; 4 to 0, which has 10.
    assert found == [(0, [1]), (1, [3]), (1, [2]), (0, [0])]
    assert parts.loads_ns == [14 * MS, 12 * MS]
    parts.done(0, SlicedBatch([1], 1, 10 * MS))
    assert places(parts, batches(1)) == [(0, [0])]


def test_in_turn_goes_on_where_it_stopped():
    parts = offloader(3, max_min=False)
    assert [w for w, _ in places(parts, batches(9, 1))] == [0, 1]
    assert [w for w, _ in places(parts, batches(1, 1))] == [2, 0]
    assert parts.loads_ns == [10 * MS, 1 * MS, 1 * MS]


def test_unequal_workers_are_loaded_by_their_own_times():
    slow = BilinearCost.from_ms((0, 0, 3, 0), (0, 0, 0, 3))
    parts = offloader(2, max_min=True, costs=[slow, PLAIN])
    found = places(parts, batches(9, 9, 9))
    assert found == [(0, [0]), (1, [1]), (1, [2])]
    assert parts.loads_ns == [9 * MS, 6 * MS]  # (1 + 2) ms, three times as long on worker 0


def test_a_request_goes_where_it_fits():
    parts = offloader(3, max_min=False, blocks=[9, 10, 9])
    assert [w for w, _ in places(parts, batches(1, 1))] == [1, 1]
    parts = offloader(3, max_min=True, blocks=[8, 9, 9])
    assert {w for w, _ in places(parts, batches(1, 1, 1))} == {1, 2}  # nobody holds 10 blocks


def test_the_clock_follows_equation_12():
    clock = Clock(3, 0.5, adaptive=True)
    clock.advance([10, 8])
    assert (clock.interval_ns, clock.next_ns) == (4, 4)
    clock.advance([1, 5])
    assert (clock.interval_ns, clock.next_ns) == (3, 7)
    for moment, following in ((8, 10), (16, 16)):
        clock.skip_to(moment)
        assert clock.next_ns == following
    fixed = Clock(3, 0.5, adaptive=False)
    fixed.advance([100])
    assert fixed.next_ns == 3


def test_batches_in_order_end_at_size_and_memory():
    memory = SliceMemory([padding_worker(blocks=20)], 2, 9)
    batcher = Batcher(PLAIN, memory, 3, adaptive=False)
    # Padded to 3 + 2 tokens four fit; to 8 + 2 two; 30 + 2 fit nowhere, and are served alone.
    found = batcher.cut([0, 1, 2, 3, 4, 5, 6], [3, 1, 1, 1, 8, 1, 30])
    assert [b.requests for b in found] == [[0, 1, 2], [3, 4], [5], [6]]
    assert [b.serving_ns // MS for b in found] == [5, 10, 3, 32]


def test_the_adaptive_batcher_separates_long_from_short():
    cost = BilinearCost.from_ms((1, 0, 0, 0), (0, 0, 0, 1))
    batcher = Batcher(cost, SliceMemory([padding_worker(blocks=1000)], 2, 9), None, adaptive=True)
    found = batcher.cut([7, 8, 9], [1, 9, 1])
    # Together 27 + 2 ms, apart (9 + 2) + (2 + 2); the longest first, as Algorithm 1 returns them.
    rows = [(b.requests, b.longest, b.serving_ns) for b in found]
    assert rows == [([8], 9, 11 * MS), ([7, 9], 1, 4 * MS)]


@pytest.mark.parametrize(("worker", "rule", "share", "expected"), [
    (padding_worker(blocks=100), "worker", 1.0, [8, 8, 3]),
    (padding_worker(blocks=100, clients=50), "worker", 1.0, [33, 10, 3]),
    (padding_worker(blocks=100, clients=50), "worker", 0.9, [30, 9, 3]),
    (padding_worker(clients=50), "deepspeed", 1.0, [28, 28, 28]),
    (padding_worker(clients=50, cap=16), "worker", 1.0, [50, 50, 50]),
    (Worker(50, PLAIN, None, BlockMemory(25, 4, "paged")), "worker", 1.0, [25, 8, 3]),
    (Worker(50, PLAIN, None, BlockMemory(100, 1, "whole")), "worker", 1.0, [9, 5, 2]),
    (padding_worker(blocks=2), "worker", 1.0, [1, 1, 1]),
])  # fmt: skip
def test_the_largest_batch_by_length(worker, rule, share, expected):
    memory = SliceMemory([worker], 2, 10, rule, share)
    assert memory.most(np.array([3, 10, 30])).tolist() == expected
    assert [memory.most_of(length) for length in (1, 8, 28)] == expected


def test_the_smallest_worker_decides():
    memory = SliceMemory([padding_worker(clients=50), padding_worker(3), padding_worker()], 2, 9)
    assert memory.most_of(5) == 3


def test_the_estimate_of_a_linear_cost_is_exact():
    affine = offloading.bilinear_of(Worker(7, AffineCost()))
    assert affine.prefill_ns([100] * 5) == AffineCost().prefill_ns([100] * 5)
    assert affine.rounds_ns(128, 5, 5 * 101, 101) == AffineCost().rounds_ns(128, 5)
    assert offloading.bilinear_of(Worker(7, PLAIN)) is PLAIN


def test_estimates_are_never_negative():
    falling = in_order(BilinearCost, -5, 1, 1, 1, 1, 1, -3, 1)
    flat = in_order(BilinearCost, 0, 1, 1, 1, 1, 1, 0, 1)
    assert offloading.bilinear_of(Worker(3, falling)) == flat
    pooling = PoolingCost.from_ms(alpha=0.001, beta=0.1, c=5, gamma=0.01, delta=0.002)
    levels = LevelsCost(levels=((4, 10), (16, 30)), round_fixed_ns=5)
    for cost in (pooling, levels):
        for clients in (1, 2, 500):
            estimate = offloading.bilinear_of(Worker(clients, cost))
            assert min(estimate.to_dict().values()) >= 0
            assert estimate.round_ns(1, 9, 9) > 0
