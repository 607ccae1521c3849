"""Estimators, batcher, offloader and clock, each by itself."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from orsched import Worker
from orsched.costs import AffineCost, BilinearCost, LevelsCost, PoolingCost
from orsched.data.memory import BlockMemory
from orsched.heuristics.scls.batching import (
    Batcher,
    Offloader,
    SlicedBatch,
    SliceMemory,
    bilinear_of,
)
from orsched.heuristics.scls.sliced import Clock
from tests.heuristics.scls.parts import MS, PLAIN, padding_worker
from tests.in_order import in_order


def offloader(workers, max_min, costs=None, blocks=None):
    blocks = blocks or [None] * workers
    views = [
        SimpleNamespace(worker=padding_worker(blocks=each), blocks_of=lambda request: 10)
        for each in blocks
    ]
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
    clock.skip_to(8)
    assert clock.next_ns == 10
    clock.skip_to(16)
    assert clock.next_ns == 16
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
    assert [(b.requests, b.longest, b.serving_ns) for b in found] == [
        ([8], 9, 11 * MS),
        ([7, 9], 1, 4 * MS),
    ]


@pytest.mark.parametrize(
    ("worker", "rule", "share", "expected"),
    [
        (padding_worker(blocks=100), "worker", 1.0, [8, 8, 3]),
        (padding_worker(blocks=100, clients=50), "worker", 1.0, [33, 10, 3]),
        (padding_worker(blocks=100, clients=50), "worker", 0.9, [30, 9, 3]),
        (padding_worker(clients=50), "deepspeed", 1.0, [28, 28, 28]),
        (padding_worker(clients=50, cap=16), "worker", 1.0, [50, 50, 50]),
        (Worker(50, PLAIN, None, BlockMemory(25, 4, "paged")), "worker", 1.0, [25, 8, 3]),
        (Worker(50, PLAIN, None, BlockMemory(100, 1, "whole")), "worker", 1.0, [9, 5, 2]),
        (padding_worker(blocks=2), "worker", 1.0, [1, 1, 1]),
    ],
)
def test_the_largest_batch_by_length(worker, rule, share, expected):
    memory = SliceMemory([worker], 2, 10, rule, share)
    assert memory.most(np.array([3, 10, 30])).tolist() == expected
    assert [memory.most_of(length) for length in (1, 8, 28)] == expected


def test_the_smallest_worker_decides():
    memory = SliceMemory([padding_worker(clients=50), padding_worker(3), padding_worker()], 2, 9)
    assert memory.most_of(5) == 3


def test_the_estimate_of_a_linear_cost_is_exact():
    affine = bilinear_of(Worker(7, AffineCost()))
    assert affine.prefill_ns([100] * 5) == AffineCost().prefill_ns([100] * 5)
    assert affine.rounds_ns(128, 5, 5 * 101, 101) == AffineCost().rounds_ns(128, 5)
    assert bilinear_of(Worker(7, PLAIN)) is PLAIN


def test_estimates_are_never_negative():
    falling = in_order(BilinearCost, -5, 1, 1, 1, 1, 1, -3, 1)
    assert bilinear_of(Worker(3, falling)) == in_order(BilinearCost, 0, 1, 1, 1, 1, 1, 0, 1)
    pooling = PoolingCost.from_ms(alpha=0.001, beta=0.1, c=5, gamma=0.01, delta=0.002)
    levels = LevelsCost(levels=((4, 10), (16, 30)), round_fixed_ns=5)
    for cost in (pooling, levels):
        for clients in (1, 2, 500):
            estimate = bilinear_of(Worker(clients, cost))
            assert min(estimate.to_dict().values()) >= 0
            assert estimate.round_ns(1, 9, 9) > 0
